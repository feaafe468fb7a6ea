//! `isotherm sim`: a trace under a policy, with device models or without (`--hit-only`). The lab does the work.

use std::path::Path;

use isotherm_lab::sample::Samples;
use isotherm_lab::sim::{
    Begin, Device, Observe, Recorded, Report, Run, Setup, Source, Tier, TimeMode, TraceFile,
    Volumes, Watch, hit_only_file,
};
use isotherm_lab::size::Size;
use isotherm_report::{Page, cost_curve, run_page, sizes_page};
use serde_json::Value;

use super::progress::shown;
use crate::Failure;
use crate::lab::args::{self, SimArgs, TraceOptions, WorldArgs};
use crate::lab::sim_text::{curve, figures, hits};
use crate::lab::trace::{find, options};
use crate::policy_spec::PolicySpec;

/// The default extent size, which is that of the papers.
const EXTENT: u32 = 4 << 10;

/// `isotherm sim`.
///
/// # Errors
/// A trace cannot be read or does not fit the options.
pub fn run(args: &SimArgs) -> Result<(), Failure> {
    // Wrong options are reported before a trace is opened.
    if args.energy_bound && args.world.time != Some(args::TimeMode::Trace) {
        return Err(Failure::usage(
            "--energy-bound needs --time trace: in a closed loop there is no time at which a disk could sleep",
        ));
    }
    let setup = if args.as_recorded {
        None
    } else {
        let policy = args.policy.clone().map_or_else(usual_policy, Ok)?;
        Some(setup(&args.world, &policy)?)
    };
    let files = args
        .traces
        .iter()
        .map(|t| file(&args.read, t))
        .collect::<Result<Vec<_>, _>>()?;
    let sizes = &args.world.fast_size;
    let reports = if let Some(mut setup) = setup {
        setup.observe = observe(args);
        play(args, &setup, files)?
    } else {
        let runs = files.iter().map(|f| as_recorded(args, f));
        runs.collect::<Result<Vec<_>, _>>()?
    };
    if args.page.wanted() {
        args.page.write(&page(&reports, sizes)?)?;
    }
    let values = reports
        .iter()
        .map(|r| serde_json::to_value(r).map_err(|e| Failure::failed(e.to_string())))
        .collect::<Result<Vec<Value>, _>>()?;
    let whole = if let [one] = &values[..] {
        one.clone()
    } else {
        Value::from(values)
    };
    args.json.print(&whole, || {
        if sizes.len() > 1 || args.sample.is_some() {
            curve(&reports)
        } else if args.world.hit_only {
            hits(&reports)
        } else {
            figures(&reports)
        }
    })?;
    if !args.as_recorded {
        say_extent(&args.world);
        say_size(&args.world);
    }
    Ok(())
}

/// The page of one run, or the curves over several sizes.
fn page(reports: &[Report], sizes: &[Size]) -> Result<Page, Failure> {
    match reports {
        [one] => Ok(run_page(one, &Vec::from_iter(cost_curve(&one.policy, one)))),
        all if sizes.len() > 1 => Ok(sizes_page(all)),
        _ => Err(Failure::usage(
            "a page is of one run, or of several sizes: give one trace, --side-by-side to play them as one, or --fast-size 1%,2%,5%",
        )),
    }
}

/// The policy of a run for which none is named.
fn usual_policy() -> Result<PolicySpec, Failure> {
    isotherm_core::policy::DEFAULT
        .parse()
        .map_err(Failure::Failed)
}

/// Plays a recording of events in the state of the recorded volume.
fn as_recorded(args: &SimArgs, file: &TraceFile) -> Result<Report, Failure> {
    let recorded = Recorded::open(&file.path).map_err(|e| failed(&e))?;
    let policy = match &args.policy {
        Some(policy) => policy.clone(),
        None => recorded.policy().map_err(|e| failed(&e))?,
    };
    let tiers = tiers(&args.world, Some(&recorded.members()))?;
    let mut setup = setup_on(&args.world, &policy, tiers)?;
    setup.extent_bytes = recorded.extent_bytes();
    setup.observe = observe(args);
    let play = |watch: &Watch| {
        let run = Run::new(&setup, file).recorded(recorded).watch(watch);
        run.full()
    };
    shown(&file.name(), play).map_err(|e| failed(&e))
}

/// Plays each trace, or all side by side, with each size of the fast tier.
fn play(args: &SimArgs, setup: &Setup, files: Vec<TraceFile>) -> Result<Vec<Report>, Failure> {
    let mut reports = Vec::new();
    let sizes = &args.world.fast_size;
    let setups = (0..sizes.len().max(1)).map(|i| {
        let mut setup = setup.clone();
        if let (Some(size), Some(tier)) = (sizes.get(i), setup.tiers.first_mut()) {
            tier.size = *size;
        }
        setup
    });
    let setups: Vec<Setup> = setups.collect();
    if args.side_by_side {
        let all = files
            .into_iter()
            .map(|f| Box::new(f) as Box<dyn Source>)
            .collect();
        let volumes = Volumes::new(all);
        for setup in &setups {
            reports.push(one(args, setup, &volumes)?);
        }
    } else if let Some(rate) = args.sample {
        for f in &files {
            reports.extend(sampled(f, &setups, rate)?);
        }
    } else {
        for (f, setup) in files
            .iter()
            .flat_map(|f| setups.iter().map(move |s| (f, s)))
        {
            reports.push(if args.world.hit_only {
                shown(&f.name(), |watch| hit_only_file(setup, f, Some(watch)))
                    .map_err(|e| failed(&e))?
            } else {
                one(args, setup, f)?
            });
        }
    }
    Ok(reports)
}

/// The lab's default extent size is the papers', and a volume's is larger. The best policy may differ between the two.
pub fn say_extent(world: &WorldArgs) {
    if world.extent.is_none() {
        crate::log::note(format_args!(
            "NOTE: extents of 4K here, 64K in a volume made by `isotherm create`: policies may rank otherwise there; \
             --extent 64K plays what such a volume does, --extent 4K says that you know"
        ));
    }
}

/// A size without a unit is in bytes, which is rarely meant: it is named if the fast tier holds no whole extent.
pub fn say_size(world: &WorldArgs) {
    let extent = world.extent.unwrap_or(EXTENT);
    let bytes = world.fast_size.iter().filter_map(|size| size.bytes());
    for small in bytes.filter(|&b| b < u64::from(extent)) {
        crate::log::note(format_args!(
            "NOTE: --fast-size {small} is {small} bytes, less than an extent of {extent}: the fast tier has one extent; {small}% or {small}G \
             has a unit"
        ));
    }
}

/// Plays each setup on samples of one trace, which is read once.
fn sampled(file: &TraceFile, setups: &[Setup], rate: f64) -> Result<Vec<Report>, Failure> {
    let Some(first) = setups.first() else {
        return Ok(Vec::new());
    };
    let samples = Samples::read(file, first, rate).map_err(|e| failed(&e))?;
    let run = |s| samples.run(s, None).map_err(|e| failed(&e));
    setups.iter().map(run).collect()
}

fn one(args: &SimArgs, setup: &Setup, source: &dyn Source) -> Result<Report, Failure> {
    shown(&source.name(), |watch| {
        let run = Run::new(setup, source).watch(watch);
        let run = run.energy_bound(args.energy_bound);
        if args.world.hit_only {
            run.hit_only()
        } else {
            run.full()
        }
    })
    .map_err(|e| failed(&e))
}

/// Converts an error of the lab.
pub fn failed(error: &isotherm_lab::LabError) -> Failure {
    Failure::failed(error.to_string())
}

/// The path of the trace, as given or below `$ISOTHERM_TRACES`.
///
/// # Errors
/// It is in neither place, or the options are wrong.
pub fn file(read: &TraceOptions, trace: &Path) -> Result<TraceFile, Failure> {
    let (path, options) = (find(trace)?, options(read)?);
    super::trace::say_assumed(&path, &options)?;
    Ok(TraceFile {
        path,
        options,
        label: trace.display().to_string(),
    })
}

/// The setup from the command line.
///
/// # Errors
/// The options contradict each other.
pub fn setup(args: &WorldArgs, policy: &PolicySpec) -> Result<Setup, Failure> {
    setup_on(args, policy, tiers(args, None)?)
}

/// The setup with these tiers.
fn setup_on(args: &WorldArgs, policy: &PolicySpec, tiers: Vec<Tier>) -> Result<Setup, Failure> {
    let time = time(args)?;
    let mut settings = args.set.clone();
    if let Some(years) = args.wear_years {
        settings.push(wear_setting(&tiers[0], years, args.wear_tbw)?);
    }
    let mut setup = Setup {
        tiers,
        extent_bytes: args.extent.unwrap_or(EXTENT),
        policy: policy.clone(),
        time,
        warm_up: args.warm_up,
        begin: Begin {
            new_volume: args.new_volume,
            client_us: args.client_us,
            rest_s: args.rest,
            full: args.full,
        },
        limit: args.limit,
        seed: args.seed,
        host_w: args.host_power,
        discards: !args.no_discards,
        observe: Observe {
            time_bins: args.time_bins,
            address_bins: args.address_bins,
        },
        settings,
        qos: isotherm_words::qos::spec(args.qos.iter().map(String::as_str))
            .map_err(Failure::usage)?,
    };
    setup.set_flash(args.flash, args.over_provisioning);
    if let Some(span) = args.span {
        setup.set_span(span);
    }
    setup.check().map_err(|e| Failure::usage(e.to_string()))?;
    Ok(setup)
}

/// The tiers: a pair from `--fast` and `--slow`, or those of `--tier`, with their standby timers. `members` are the numbers of members of a
/// volume that exists: sizes are its own then.
fn tiers(args: &WorldArgs, members: Option<&[usize]>) -> Result<Vec<Tier>, Failure> {
    let device = |d: Result<Device, _>| d.map_err(|e| Failure::usage(format!("{e}")));
    let mut tiers = Vec::new();
    let whole = Size::Share(1_000_000);
    if args.tier.is_empty() {
        let known = members.map(|_| whole);
        let Some(fast) = args.fast_size.first().copied().or(known) else {
            return Err(Failure::usage(
                "--fast-size is needed: bytes (8G) or a share of what the trace touches (10%)",
            ));
        };
        let named = |name: &Option<String>, usual: fn() -> Result<Device, _>| {
            device(name.as_deref().map_or_else(usual, Device::preset))
        };
        tiers.push(Tier::new(named(&args.fast, Device::usual_fast)?, fast));
        tiers.push(Tier::new(named(&args.slow, Device::usual_slow)?, whole));
    }
    for (i, t) in args.tier.iter().enumerate() {
        let last = i + 1 == args.tier.len();
        if t.size.is_none() && !last && members.is_none() {
            return Err(Failure::usage(format!(
                "--tier {}: every tier but the last needs a size: write --tier {}:8G or {}:10%",
                t.preset, t.preset, t.preset
            )));
        }
        tiers.push(Tier::new(
            device(Device::preset(&t.preset))?,
            t.size.unwrap_or(whole),
        ));
    }
    for (tier, &n) in tiers.iter_mut().zip(members.unwrap_or_default()) {
        let device = tier.devices[0].clone();
        tier.devices.resize(n, device);
    }
    let all = tiers.iter_mut().flat_map(|t| &mut t.devices);
    for (m, s) in all.zip(&args.standby) {
        // What is no number is refused with the other settings.
        m.standby_after_s = (*s != 0.0).then_some(*s);
    }
    let count = tiers.iter().map(|t| t.devices.len()).sum();
    if args.standby.len() > count {
        return Err(Failure::usage(format!(
            "--standby names {} members, there are {}",
            args.standby.len(),
            count
        )));
    }
    Ok(tiers)
}

/// The arrival of requests.
fn time(args: &WorldArgs) -> Result<TimeMode, Failure> {
    let is_trace = args.time == Some(args::TimeMode::Trace);
    if args.accelerate.is_some() && !is_trace {
        return Err(Failure::usage("--accelerate needs --time trace"));
    }
    if args.depth.is_some() && is_trace {
        return Err(Failure::usage(
            "--depth is of the closed loop: leave it out with --time trace",
        ));
    }
    Ok(if is_trace {
        TimeMode::Trace {
            acceleration: args.accelerate.unwrap_or(1.0),
        }
    } else {
        TimeMode::Closed {
            depth: args.depth.unwrap_or(1),
        }
    })
}

/// The wear budget with which a tier lasts for this number of years.
fn wear_setting(tier: &Tier, years: f64, tbw: Option<f64>) -> Result<(String, f64), Failure> {
    let sheets = tier.devices.iter().map(|d| d.sheet_for(0));
    let from_sheets = || -> Result<f64, Failure> {
        let mut sum = 0.0;
        for s in sheets {
            let s = s.map_err(|e| failed(&e))?;
            sum += s.write_limit_bytes().ok_or_else(|| {
                Failure::usage(format!(
                    "--wear-years: the data sheet of `{}` has no limit of writes: add --wear-tbw",
                    s.name
                ))
            })?;
        }
        Ok(sum)
    };
    let limit = match tbw {
        Some(tb) => tb * 1e12,
        None => from_sheets()?,
    };
    let rate = isotherm_models::bytes_per_day(limit, years)
        .map_err(|e| Failure::usage(format!("--wear-years: {e}")))?;
    Ok(("wear_bytes_per_day".to_owned(), rate as f64))
}

/// A page shows series, so they are collected unless the command line gives their number.
fn observe(args: &SimArgs) -> Observe {
    let page = args.page.wanted() && !args.world.hit_only;
    let or = |bins: u32, usual: u32| if bins == 0 && page { usual } else { bins };
    Observe {
        time_bins: or(args.world.time_bins, 120),
        address_bins: or(args.world.address_bins, 96),
    }
}
