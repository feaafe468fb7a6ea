//! What a run is told.

use isotherm_core::engine::knob;
use isotherm_core::policy::ParamError;
use isotherm_core::qos::Spec;
use isotherm_models::{FlashState, Options, Sheet, SheetError, Span, sheet};

use crate::LabError;
use crate::policy_spec::PolicySpec;
use crate::size::Size;

/// Flash devices that stand for the fast tier when none is named: the first that is large enough.
const FAST: [&str; 4] = [
    "intel-x25e-32",
    "intel-320-300",
    "sata-enterprise",
    "nvme-tlc",
];
/// Disks that stand for the slow tier when none is named.
const SLOW: [&str; 3] = ["wd5000aaks", "wd7500aaks", "exos-18tb"];

/// Which device model a member has.
#[derive(Clone, Debug)]
pub enum Model {
    /// This one.
    Sheet(Box<Sheet>),
    /// The first of these that is large enough.
    FirstThatFits(Vec<Sheet>),
}

/// One member device.
#[derive(Clone, Debug)]
pub struct Device {
    /// Its model.
    pub model: Model,
    /// What the model is told; `size` is set by the run.
    pub options: Options,
    /// Spin down after so many seconds without use.
    pub standby_after_s: Option<f64>,
}

impl Device {
    /// The preset called `name`, its extents spread over the whole drive.
    ///
    /// # Errors
    /// No such preset; the nearest is named.
    pub fn preset(name: &str) -> Result<Device, SheetError> {
        Ok(Device::of(Model::Sheet(Box::new(sheet(name)?))))
    }
    /// Of that model, its extents spread over the whole drive ([`Span::Full`]): touched extents are packed in the lab, and
    /// seeks should still be as long as on the drive in use.
    pub fn of(model: Model) -> Device {
        let options = Options {
            span: Span::Full,
            ..Options::default()
        };
        Device {
            model,
            options,
            standby_after_s: None,
        }
    }
    /// The smallest usual flash device that is large enough.
    ///
    /// # Errors
    /// A sheet of the tree is wrong, which a test rules out.
    pub fn usual_fast() -> Result<Device, SheetError> {
        Self::usual(&FAST)
    }
    /// The smallest usual disk that is large enough.
    ///
    /// # Errors
    /// A sheet of the tree is wrong, which a test rules out.
    pub fn usual_slow() -> Result<Device, SheetError> {
        Self::usual(&SLOW)
    }
    fn usual(names: &[&str]) -> Result<Device, SheetError> {
        let sheets = names.iter().map(|n| sheet(n)).collect::<Result<_, _>>()?;
        Ok(Device::of(Model::FirstThatFits(sheets)))
    }
    /// The sheet for a member of `bytes`.
    ///
    /// # Errors
    /// The drive is too small.
    pub fn sheet_for(&self, bytes: u64) -> Result<&Sheet, LabError> {
        let (found, largest) = match &self.model {
            Model::Sheet(s) => ((s.capacity() >= bytes).then_some(s.as_ref()), s.as_ref()),
            Model::FirstThatFits(list) => {
                let largest = list
                    .iter()
                    .max_by_key(|s| s.capacity())
                    .ok_or_else(|| LabError::setup("a device needs at least one sheet"))?;
                (list.iter().find(|s| s.capacity() >= bytes), largest)
            }
        };
        found.ok_or_else(|| {
            LabError::setup(format!(
                "{bytes} bytes do not fit on `{}` ({} bytes): choose a larger device (`isotherm devices` lists them), a smaller size, or --limit the trace",
                largest.name,
                largest.capacity()
            ))
        })
    }
}

/// One tier.
#[derive(Clone, Debug)]
pub struct Tier {
    /// Its devices; slots are shared out evenly.
    pub devices: Vec<Device>,
    /// Bytes of data it holds, or a share of the touched extents. Ignored for the slowest tier, which holds everything.
    pub size: Size,
}

impl Tier {
    /// A tier of one device.
    pub fn new(device: Device, size: Size) -> Tier {
        Tier {
            devices: vec![device],
            size,
        }
    }
}

/// When requests start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TimeMode {
    /// A request waits for nothing but a free place among `depth`.
    Closed {
        /// Requests in flight, at least 1.
        depth: u32,
    },
    /// At the trace's times divided by `acceleration`. Latency counts from that time, whatever the queue.
    Trace {
        /// 2 plays twice as fast.
        acceleration: f64,
    },
}

/// What to keep beside the totals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Observe {
    /// Time bins at least kept, 0 for no series. The run's length is not known beforehand: bins start at 1 ms, and when
    /// there would be more than twice as many, neighbours are joined.
    pub time_bins: u32,
    /// Address bins of the heat map and of the frequency over addresses, 0 for neither.
    pub address_bins: u32,
}

/// How a volume stands when the first request comes, and when the first one that counts does.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Begin {
    /// As `create` makes it: an extent gets its place on the slowest tier when it is first touched, side by side with the one
    /// before. Otherwise data lie there before the run, where the trace has them.
    pub new_volume: bool,
    /// Seconds between the last reply of the warm-up and the first request that counts, so that what the warm-up set off ends.
    pub rest_s: f64,
    /// The volume is full: every touched extent has a home where the policy puts first touches. Else an extent gets its home at its
    /// first touch, a read included, and that is recorded like any change of the map.
    pub full: bool,
}

/// Everything that a run depends on, the trace apart.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Fastest first, 1 to 8. The last one holds everything.
    pub tiers: Vec<Tier>,
    /// Extent size in bytes, a power of two from 4 KiB to 4 MiB.
    pub extent_bytes: u32,
    /// The policy.
    pub policy: PolicySpec,
    /// When requests start.
    pub time: TimeMode,
    /// Requests before anything counts.
    pub warm_up: u64,
    /// How the volume stands then, and before.
    pub begin: Begin,
    /// Requests at most.
    pub limit: Option<u64>,
    /// Of everything random; nothing in the engine or in the models is, so it only names the run.
    pub seed: u64,
    /// Power of the host beside the devices, watts.
    pub host_w: f64,
    /// Discards of the trace free extents (else they are left out, as in hit-only runs).
    pub discards: bool,
    /// What to keep beside the totals.
    pub observe: Observe,
    /// Knobs of the engine: budgets and throttles ([`isotherm_core::engine::KNOBS`]).
    pub settings: Vec<(String, f64)>,
    /// What classes are promised.
    pub qos: Spec,
}

impl Setup {
    /// The usual pair of devices with `fast` on the faster one: extents of 4 KiB, closed loop at depth 1.
    ///
    /// # Errors
    /// A sheet of the tree is wrong, which a test rules out.
    pub fn pair(policy: PolicySpec, fast: Size) -> Result<Setup, SheetError> {
        Ok(Setup {
            tiers: vec![
                Tier::new(Device::usual_fast()?, fast),
                Tier::new(Device::usual_slow()?, Size::Share(1_000_000)),
            ],
            extent_bytes: 4096,
            policy,
            time: TimeMode::Closed { depth: 1 },
            warm_up: 0,
            begin: Begin::default(),
            limit: None,
            seed: 0,
            host_w: 0.0,
            discards: true,
            observe: Observe::default(),
            settings: Vec::new(),
            qos: Spec::default(),
        })
    }

    /// All members lie there on their drives.
    pub fn set_span(&mut self, span: Span) {
        for d in self.tiers.iter_mut().flat_map(|t| &mut t.devices) {
            d.options.span = span;
        }
    }

    /// Flash of all devices begins in that state, with so much spare flash; `None` leaves each what it has.
    pub fn set_flash(&mut self, state: Option<FlashState>, over_provisioning: Option<f64>) {
        for d in self.tiers.iter_mut().flat_map(|t| &mut t.devices) {
            d.options.flash = state.unwrap_or(d.options.flash);
            d.options.over_provisioning = over_provisioning.or(d.options.over_provisioning);
        }
    }

    /// Check what can be checked without the trace.
    ///
    /// # Errors
    /// Names the setting and its range.
    pub fn check(&self) -> Result<(), LabError> {
        let bad = |what: &str| Err(LabError::setup(what));
        if !self.extent_bytes.is_power_of_two() || !(4096..=4 << 20).contains(&self.extent_bytes) {
            return bad("extent: must be a power of two from 4K to 4M");
        }
        if self.tiers.is_empty() || self.tiers.iter().any(|t| t.devices.is_empty()) {
            return bad("tiers: at least one, each with at least one device");
        }
        match self.time {
            TimeMode::Closed { depth: 0 } => return bad("depth: must be at least 1"),
            TimeMode::Closed { depth } if depth > 65_536 => {
                return bad("depth: must be at most 65536");
            }
            TimeMode::Trace { acceleration } if !(1e-6..=1e9).contains(&acceleration) => {
                return bad("accelerate: must be within 0.000001 and 1000000000");
            }
            _ => {}
        }
        let spare = self.tiers.iter().flat_map(|t| &t.devices);
        if spare
            .filter_map(|d| d.options.over_provisioning)
            .any(|s| !(0.01..=10.0).contains(&s))
        {
            return bad("over-provisioning: must be within 0.01 and 10");
        }
        if !(0.0..=1e6).contains(&self.begin.rest_s) {
            return bad("rest: must be within 0 and 1000000 s");
        }
        let closed = matches!(self.time, TimeMode::Closed { .. });
        if self.begin.rest_s > 0.0 && (self.warm_up == 0 || !closed) {
            return bad("rest: comes after a warm-up, in the closed loop");
        }
        if !(0.0..=1e6).contains(&self.host_w) {
            return bad("host power: must be within 0 and 1000000 W");
        }
        for (name, value) in &self.settings {
            check_setting(name, *value).map_err(LabError::setup)?;
        }
        let standby = self.tiers.iter().flat_map(|t| &t.devices);
        if standby
            .filter_map(|d| d.standby_after_s)
            .any(|s| !(0.001..=1e9).contains(&s))
        {
            return bad("standby: must be within 0.001 and 1000000000 seconds");
        }
        Ok(())
    }
}

/// Where members lie on their drives: `full` for spread over all of each, or the first byte of a run of their own size (`0` is
/// a disk's outer edge, where it is fastest).
///
/// # Errors
/// Neither of the two.
pub fn parse_span(text: &str) -> Result<Span, String> {
    if text == "full" {
        return Ok(Span::Full);
    }
    let start = if text == "0" {
        Some(0)
    } else {
        text.parse::<Size>().ok().and_then(Size::bytes)
    };
    start.map(|start| Span::At { start }).ok_or_else(|| {
        format!("`{text}`: `full`, or the first byte on the drive as a size (0, 100G)")
    })
}

/// As [`parse_span`] reads it.
pub fn span_name(span: Span) -> String {
    match span {
        Span::Full => "full".to_owned(),
        Span::At { start } => start.to_string(),
    }
}

/// Is there a knob of that name, and does it take the value?
///
/// # Errors
/// Names the nearest knob, or the range.
pub fn check_setting(name: &str, value: f64) -> Result<(), String> {
    match knob(name, value) {
        Ok(_) => Ok(()),
        Err(ParamError::Range(what) | ParamError::Value(what, _)) => Err(what.to_owned()),
        Err(ParamError::Unknown(near)) => Err(format!(
            "the engine has no setting `{name}`: did you mean `{near}`? (parameters of a policy follow its name: NAME,{name}=VALUE)"
        )),
    }
}
