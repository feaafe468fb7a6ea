//! The settings of a run.

use isotherm_core::engine::knob;
use isotherm_core::policy::ParamError;
use isotherm_core::qos::Spec;
use isotherm_models::{FlashState, Options, Sheet, SheetError, Span, sheet};

use crate::LabError;
use crate::policy_spec::PolicySpec;
use crate::size::Size;

/// Flash devices for the fast tier if none is named: the first that is large enough is used.
const FAST: [&str; 4] = [
    "intel-x25e-32",
    "intel-320-300",
    "sata-enterprise",
    "nvme-tlc",
];
/// Disks for the slow tier if none is named.
const SLOW: [&str; 3] = ["wd5000aaks", "wd7500aaks", "exos-18tb"];

/// The choice of a member's device model.
#[derive(Clone, Debug)]
pub enum Model {
    /// This sheet.
    Sheet(Box<Sheet>),
    /// The first of these sheets that is large enough.
    FirstThatFits(Vec<Sheet>),
}

/// One member device.
#[derive(Clone, Debug)]
pub struct Device {
    /// Its model.
    pub model: Model,
    /// The options of the model; the run sets `size`.
    pub options: Options,
    /// Spin down after this many seconds without use.
    pub standby_after_s: Option<f64>,
}

impl Device {
    /// The preset called `name`, its extents spread over the whole drive.
    ///
    /// # Errors
    /// There is no such preset; the message names the nearest one.
    pub fn preset(name: &str) -> Result<Device, SheetError> {
        Ok(Device::of(Model::Sheet(Box::new(sheet(name)?))))
    }
    /// A device with that model, whose extents are spread over the whole drive ([`Span::Full`]): the lab packs touched extents, but seeks
    /// should be as long as on the real drive.
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
    /// The smallest of the default flash devices that is large enough.
    ///
    /// # Errors
    /// A sheet in the tree is invalid; a test makes sure that none is.
    pub fn usual_fast() -> Result<Device, SheetError> {
        Self::usual(&FAST)
    }
    /// The smallest of the default disks that is large enough.
    ///
    /// # Errors
    /// A sheet in the tree is invalid; a test makes sure that none is.
    pub fn usual_slow() -> Result<Device, SheetError> {
        Self::usual(&SLOW)
    }
    fn usual(names: &[&str]) -> Result<Device, SheetError> {
        let sheets = names.iter().map(|n| sheet(n)).collect::<Result<_, _>>()?;
        Ok(Device::of(Model::FirstThatFits(sheets)))
    }
    /// The sheets among which the size of the member chooses.
    pub fn sheets(&self) -> &[Sheet] {
        match &self.model {
            Model::Sheet(s) => std::slice::from_ref(s),
            Model::FirstThatFits(list) => list,
        }
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
    /// Its devices. Slots are divided evenly among them.
    pub devices: Vec<Device>,
    /// Bytes of data that the tier holds, or a share of the touched extents. Ignored for the slowest tier, which can hold everything.
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

/// The time at which requests start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TimeMode {
    /// A request starts as soon as fewer than `depth` are in flight.
    Closed {
        /// Requests in flight, at least 1.
        depth: u32,
    },
    /// A request starts at its time in the trace divided by `acceleration`. Its latency counts from that time, including time in a queue.
    Trace {
        /// A factor of 2 plays the trace twice as fast.
        acceleration: f64,
    },
}

/// The figures to keep in addition to the totals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Observe {
    /// Fewest time bins to keep; 0 for no series. The length of the run is not known beforehand: bins start at 1 ms, and neighbouring bins
    /// are merged when there would be more than twice this number.
    pub time_bins: u32,
    /// Number of address bins of the heat map and of the frequency by address; 0 for neither.
    pub address_bins: u32,
}

/// The state of the volume at the first request, and at the first measured request; and the clients.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Begin {
    /// Whether a tiering volume is new, as `create` makes it: an extent gets its place on the slowest tier at its first touch, as near to its
    /// address as there is room. Otherwise the data is there before the run, at the addresses of the trace, as always in a cache volume.
    pub new_volume: bool,
    /// Microseconds that a client of the closed loop needs between a reply and its next request.
    pub client_us: f64,
    /// Seconds between the last reply of the warm-up and the first measured request, so that work that the warm-up caused is completed.
    pub rest_s: f64,
    /// Whether the volume is full: every touched extent already has a home where the policy places first touches. Otherwise an extent gets
    /// its home at its first touch. A first touch by a write is recorded like any change of the map. A first touch by a read is not: its data
    /// was there before the first request.
    pub full: bool,
}

/// Everything on which a run depends, except for the trace.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The tiers, fastest first, 1 to 8. The last one can hold everything.
    pub tiers: Vec<Tier>,
    /// Extent size in bytes, a power of two from 4 KiB to 4 MiB.
    pub extent_bytes: u32,
    /// The policy.
    pub policy: PolicySpec,
    /// The time at which requests start.
    pub time: TimeMode,
    /// Number of requests before measuring begins.
    pub warm_up: u64,
    /// The state of the volume at the start of the run and of the measured part.
    pub begin: Begin,
    /// Most requests to play.
    pub limit: Option<u64>,
    /// Seed of everything random. Nothing in the engine or in the models is random, so it only names the run.
    pub seed: u64,
    /// Power of the host without the devices, in watts.
    pub host_w: f64,
    /// Whether discards of the trace free extents; otherwise they are omitted, as in hit-only runs.
    pub discards: bool,
    /// The figures to keep in addition to the totals.
    pub observe: Observe,
    /// Knobs of the engine: budgets and throttles ([`isotherm_core::engine::KNOBS`]).
    pub settings: Vec<(String, f64)>,
    /// The promises to classes.
    pub qos: Spec,
}

impl Setup {
    /// The default pair of devices, with `fast` as the size of the fast tier: extents of 4 KiB, closed loop at depth 1.
    ///
    /// # Errors
    /// A sheet in the tree is invalid; a test makes sure that none is.
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

    /// Places all members at this span of their drives.
    pub fn set_span(&mut self, span: Span) {
        for d in self.tiers.iter_mut().flat_map(|t| &mut t.devices) {
            d.options.span = span;
        }
    }

    /// Sets the initial state of the flash of all devices, and their spare flash; `None` leaves a setting unchanged.
    pub fn set_flash(&mut self, state: Option<FlashState>, over_provisioning: Option<f64>) {
        for d in self.tiers.iter_mut().flat_map(|t| &mut t.devices) {
            d.options.flash = state.unwrap_or(d.options.flash);
            d.options.over_provisioning = over_provisioning.or(d.options.over_provisioning);
        }
    }

    /// Checks everything that does not depend on the trace.
    ///
    /// # Errors
    /// The message names the setting and its range.
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
        if !(0.0..=1e6).contains(&self.begin.client_us) {
            return bad("client time: must be within 0 and 1000000 us");
        }
        if self.begin.client_us > 0.0 && !closed {
            return bad("client time: is of the closed loop");
        }
        if !(0.0..=1e6).contains(&self.host_w) {
            return bad("host power: must be within 0 and 1000000 W");
        }
        self.observe.check(self.tiers.len())?;
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

/// Most bins of time, and of addresses.
const BINS_MAX: u32 = 1 << 20;
/// Most cells of a heat map, which take 4 bytes each.
const HEAT_MAX: u64 = 1 << 28;

impl Observe {
    /// Checks that a run needs no absurd amount of memory for its series. A run has up to twice as many bins of time as it was asked for.
    fn check(self, tiers: usize) -> Result<(), LabError> {
        if self.time_bins.max(self.address_bins) > BINS_MAX {
            let what = format!("time bins and address bins: at most {BINS_MAX}");
            return Err(LabError::Setup(what));
        }
        let rows = 2 * u64::from(self.time_bins.max(1));
        if rows * u64::from(self.address_bins) * tiers as u64 > HEAT_MAX {
            let what = format!(
                "time bins × address bins × tiers: at most {}, or the heat map needs too much memory",
                HEAT_MAX / 2
            );
            return Err(LabError::Setup(what));
        }
        Ok(())
    }
}

/// Parses the place of members on their drives: `full` if they are spread over the whole drive, or the first byte of a contiguous part (`0`
/// is a disk's outer edge, where it is fastest).
///
/// # Errors
/// The text is neither of the two.
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

/// The text from which [`parse_span`] reads the same span.
pub fn span_name(span: Span) -> String {
    match span {
        Span::Full => "full".to_owned(),
        Span::At { start } => start.to_string(),
    }
}

/// Checks that there is a knob of that name and that it accepts the value.
///
/// # Errors
/// The message names the nearest knob, or the range.
pub fn check_setting(name: &str, value: f64) -> Result<(), String> {
    match knob(name, value) {
        Ok(_) => Ok(()),
        Err(ParamError::Range(what) | ParamError::Value(what, _)) => Err(what.to_owned()),
        Err(ParamError::Unknown(near)) => Err(format!(
            "the engine has no setting `{name}`: did you mean `{near}`? (parameters of a policy follow its name: NAME,{name}=VALUE)"
        )),
    }
}
