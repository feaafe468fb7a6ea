//! `isotherm create`.

mod notes;
pub(super) mod stand_in;
pub(super) mod store;

use std::path::Path;

use isotherm_answers::{Created as CreatedAnswer, CreatedMember};
use isotherm_live::config::{MemberConfig, Size as LiveSize, VolumeConfig, format_uuid};
use isotherm_live::device::{NO_SUCH_DEVICE, bytes_of, denied, in_dev, rotates};
use isotherm_live::volume::{CreateHow, Created, description};
use isotherm_live::{ErrorKind, Volume};

use crate::Failure;
use crate::args::CreateArgs;
use crate::member::MemberSpec;
use crate::progress::Progress;
use crate::size::{Size, exact};

/// The default extent size.
const EXTENT: u32 = 64 << 10;

/// Creates a volume. If it fails, nothing is left behind.
///
/// # Errors
/// The description is wrong, or a device cannot be used.
pub fn run(args: &CreateArgs) -> Result<(), Failure> {
    let mut args = args.clone();
    // Until the end: it is closed after the volume.
    let store = store::make(&mut args)?;
    let made = create(&args);
    drop(store);
    made
}

fn create(args: &CreateArgs) -> Result<(), Failure> {
    let config = config_of(args)?;
    let how = CreateHow {
        force: args.force,
        preallocate: args.preallocate,
        keep: args.keep,
    };
    let bar = Progress::files();
    let made = Volume::create_as(&args.volume, config, how, &mut |done, all| {
        bar.file(
            "clearing the slow device (--keep leaves it as it is)",
            done,
            all,
        );
    });
    bar.finish();
    let mut made = made.map_err(|e| create_failed(&e, args))?;
    if args.without_flash {
        made.notes.extend(stand_in::take_out(&args.volume)?);
    }
    let config = VolumeConfig::load(&description(&args.volume))
        .map_err(|e| Failure::failed(e.to_string()))?;
    for note in &made.notes {
        crate::log::note(format_args!("isotherm: {note}"));
    }
    let swapped = notes::swapped(&config, |m| rotates(&m.path));
    let below = super::doctor::of_new(&args.volume, &config);
    for note in swapped.iter().chain(&below) {
        crate::log::note(format_args!("isotherm: {note}"));
    }
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let member = |(m, slots): (&MemberConfig, &u32)| CreatedMember {
        path: text(&m.path),
        tier: m.tier,
        slots: *slots,
        bytes: u64::from(*slots) * config.extent.0,
        paced: m.paced.clone(),
        sheet: m.sheet.clone(),
    };
    let members = config.members.iter().zip(&made.slots);
    let result = CreatedAnswer {
        volume: text(&args.volume),
        description: text(&description(&args.volume)),
        uuid: format_uuid(&made.uuid),
        volume_bytes: made.volume_bytes,
        extent_bytes: config.extent.0,
        block_bytes: made.block_bytes.into(),
        policy: config.policy.clone(),
        caching: made.caching,
        members: members.filter(|(m, _)| !m.removed).map(member).collect(),
    };
    args.json.print(&result, || summary(args, &made, &config))
}

/// The description of the volume that is asked for.
///
/// # Errors
/// It is wrong, or the volume's name cannot be used.
pub(super) fn config_of(args: &CreateArgs) -> Result<VolumeConfig, Failure> {
    let mut config = match &args.config {
        Some(file) => VolumeConfig::load(file).map_err(|e| Failure::failed(e.to_string()))?,
        None => from_options(args)?,
    };
    check_sizes(&config, args)?;
    config.name = name_for(&args.volume)?;
    Ok(config)
}

/// The size of a member must be a multiple of the extent.
fn check_sizes(config: &VolumeConfig, args: &CreateArgs) -> Result<(), Failure> {
    let extent = config.extent.0;
    let odd = |m: &&MemberConfig| m.size.is_some_and(|s| s.0 % extent != 0);
    let Some(m) = config.members.iter().find(odd) else {
        return Ok(());
    };
    let size = m.size.map_or(0, |s| s.0);
    let fit = size / extent * extent;
    let what = format!(
        "size {} of {} is not a multiple of the extent ({}): use {}",
        exact(size),
        m.path.display(),
        config.extent,
        exact(fit.max(extent))
    );
    Err(match &args.config {
        Some(file) => Failure::failed(format!("{}: {what}", file.display())),
        None => Failure::usage(what),
    })
}

fn summary(args: &CreateArgs, made: &Created, config: &VolumeConfig) -> String {
    let mut text = vec![format!(
        "{}: {} bytes ({:.2} GiB), extent {}, policy {}",
        args.volume.display(),
        made.volume_bytes,
        made.volume_bytes as f64 / f64::from(1 << 30),
        config.extent,
        config.policy
    )];
    let members = config.members.iter().zip(&made.slots);
    for (m, slots) in members.filter(|(m, _)| !m.removed) {
        let paced = match (&m.paced, &m.sheet) {
            (Some(p), _) => format!(", paced as {p}"),
            (None, Some(s)) => format!(", data sheet {s}"),
            (None, None) => String::new(),
        };
        text.push(format!(
            "  tier {}: {} ({slots} extents{paced})",
            m.tier,
            m.path.display()
        ));
    }
    if made.caching {
        text.push("  the policy keeps copies: caching adds no capacity, the volume is as large as its slowest tier".into());
    }
    if args.without_flash {
        let v = args.volume.display();
        text.push(format!(
            "  it has no flash yet: `isotherm cache {v} add DEVICE`"
        ));
    } else {
        text.extend(loss(made, config));
    }
    text.extend(notes::start_stops(config));
    text.join("\n") + "\n"
}

fn create_failed(error: &isotherm_live::Error, args: &CreateArgs) -> Failure {
    match error.kind {
        // An error in the options is wrong usage; an existing file is not.
        ErrorKind::Config if args.config.is_none() && !description(&args.volume).exists() => {
            Failure::usage(error.to_string())
        }
        _ => Failure::failed(error.to_string()),
    }
}

/// The name is the last part of the path. The path of the description must be free and writable.
fn name_for(volume: &Path) -> Result<String, Failure> {
    let ends_with_slash = volume.as_os_str().as_encoded_bytes().ends_with(b"/");
    let name = volume.file_name().filter(|_| !ends_with_slash);
    let Some(name) = name.and_then(|n| n.to_str()) else {
        return Err(Failure::usage(format!(
            "`{}` is no name for a volume: give a path such as dir/name",
            volume.display()
        )));
    };
    let dir = volume
        .parent()
        .filter(|d| !d.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    if !dir.is_dir() {
        return Err(Failure::failed(format!(
            "{}: no such directory: make it first",
            dir.display()
        )));
    }
    // This is checked before any device is written to.
    tempfile::tempfile_in(dir)
        .map_err(|e| Failure::file(dir, "write the description there", &e))?;
    if crate::control::client::connect(volume)?.is_some() {
        return Err(Failure::failed(format!(
            "{}: is being served: stop it first",
            volume.display()
        )));
    }
    Ok(name.to_owned())
}

fn from_options(args: &CreateArgs) -> Result<VolumeConfig, Failure> {
    let extent = args.extent.unwrap_or(EXTENT);
    let stand_in = args.without_flash.then(|| stand_in::of(&args.volume));
    let stand_in = stand_in.transpose()?;
    let fast = args.fast.iter().chain(&stand_in);
    let mut tiers: Vec<(u8, &MemberSpec)> = fast.map(|m| (0, m)).collect();
    tiers.extend(args.tier.iter().map(|(t, m)| (*t, m)));
    let slow_tier = tiers.iter().map(|(t, _)| t + 1).max().unwrap_or(0);
    tiers.extend(args.slow.iter().map(|m| (slow_tier, m)));
    let slowest = tiers.iter().map(|(t, _)| *t).max().unwrap_or(0);
    let mut slow_bytes = 0u64;
    for (_, m) in tiers.iter().filter(|(t, _)| *t == slowest) {
        slow_bytes = slow_bytes.saturating_add(whole(m)?);
    }
    if args.sleep.is_some() && slowest == 0 {
        return Err(Failure::usage(
            "--sleep: a volume of one tier has no disk that could sleep behind a faster one: leave it out",
        ));
    }
    let mut members = Vec::new();
    for (tier, m) in &tiers {
        let size = match m.size {
            None => None,
            Some(Size::Bytes(n)) => Some(n),
            // Rounded down to whole extents, because a share is rarely exact.
            Some(share) => Some(
                (share.of(slow_bytes) / u64::from(extent) * u64::from(extent))
                    .max(u64::from(extent)),
            ),
        };
        let named = |name: &str| match name {
            "fast" => 0,
            "slow" => slowest,
            n => n.parse().unwrap_or(u8::MAX),
        };
        let of_tier = |given: &[(String, String)]| {
            let found = given.iter().find(|(t, _)| named(t) == *tier);
            found.map(|(_, name)| name.clone())
        };
        members.push(MemberConfig {
            path: m.path.clone(),
            tier: *tier,
            size: size.map(LiveSize),
            paced: of_tier(&args.paced),
            sheet: of_tier(&args.sheet),
            standby_s: args.sleep.filter(|_| *tier > 0),
            ..MemberConfig::default()
        });
    }
    for (option, given) in [("paced", &args.paced), ("sheet", &args.sheet)] {
        let beyond = |t: &str| t.parse().is_ok_and(|t: u8| t > slowest);
        if let Some((t, _)) = given.iter().find(|(t, _)| beyond(t)) {
            return Err(Failure::usage(format!(
                "--{option} {t}=...: the volume has tiers 0 to {slowest}"
            )));
        }
    }
    let mut io = isotherm_live::config::IoConfig::for_extents(u64::from(extent));
    // If disks should sleep, or be quiet, background work should not wake them.
    if args.sleep.is_some() || args.goal.as_deref() == Some("quiet") {
        io.sleep_hold_s = Some(HOLD_S);
    }
    Ok(VolumeConfig {
        name: String::new(),
        uuid: None,
        extent: LiveSize(u64::from(extent)),
        policy: policy_of(args, slowest)?,
        qos: Vec::new(),
        io,
        members,
    })
}

/// With `--sleep` or `--goal quiet`, background work waits for a sleeping disk for up to this time.
const HOLD_S: f64 = 3600.0;

/// The policy of `--policy`, or of `--goal` and `--capacity`, else the default; `slowest` is the number of the slowest tier.
fn policy_of(args: &CreateArgs, slowest: u8) -> Result<String, Failure> {
    if let Some(policy) = &args.policy {
        return Ok(policy.to_string());
    }
    let given = [("--goal", &args.goal), ("--capacity", &args.capacity)];
    let given = given.iter().find(|(_, value)| value.is_some());
    let Some((option, _)) = given else {
        return Ok(default_policy(slowest).to_owned());
    };
    if slowest != 1 {
        return Err(Failure::usage(format!(
            "{option} is of the policy benefit, which needs two tiers: give --fast and --slow, or a --policy instead"
        )));
    }
    let mut policy = vec!["benefit".to_owned()];
    policy.extend(args.goal.iter().map(|goal| format!("goal={goal}")));
    if args.capacity.as_deref() == Some("all") {
        policy.push("homes=1".to_owned());
    }
    Ok(policy.join(","))
}

/// The data that is lost if the fastest tier fails.
fn loss(made: &Created, config: &VolumeConfig) -> Option<String> {
    let slowest = config.members.iter().map(|m| m.tier).max()?;
    if slowest == 0 {
        return None;
    }
    if made.caching {
        return Some(
            "  if the fastest tier is lost, what was written and is not yet on the slowest is lost with it (`isotherm status` shows how much under `loss`); all \
             else is on the slowest tier"
                .into(),
        );
    }
    let members = config.members.iter().zip(&made.slots);
    let fast = members.filter(|(m, _)| m.tier < slowest);
    let slots: u64 = fast.map(|(_, n)| u64::from(*n)).sum();
    let bytes = (slots * config.extent.0).min(made.volume_bytes);
    Some(format!(
        "  if the faster tiers are lost, what lies on them is lost with them: up to {:.2} GiB, {:.0} % of the volume (`isotherm status` shows how much under `loss`)",
        bytes as f64 / f64::from(1 << 30),
        100.0 * bytes as f64 / made.volume_bytes.max(1) as f64,
    ))
}

/// The default policy; `slowest` is the number of the slowest tier.
fn default_policy(slowest: u8) -> &'static str {
    use isotherm_core::policy::{DEFAULT, DEFAULT_TIERS};
    if slowest == 1 { DEFAULT } else { DEFAULT_TIERS }
}

/// Bytes of a member of the slow tier: as given, or the size of the device.
fn whole(m: &MemberSpec) -> Result<u64, Failure> {
    if let Some(Size::Bytes(n)) = m.size {
        return Ok(n);
    }
    if m.size.is_some() {
        return Err(Failure::usage(format!(
            "{}: a share is of the slow tier and cannot be its size: give bytes, such as 10G",
            m.path.display()
        )));
    }
    match std::fs::File::open(&m.path).and_then(|f| bytes_of(&f)) {
        Ok(n) => Ok(n),
        Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => Err(Failure::failed(
            format!("{}: {}", m.path.display(), denied()),
        )),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound && in_dev(&m.path) => Err(
            Failure::failed(format!("{}: {NO_SUCH_DEVICE}", m.path.display())),
        ),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Err(Failure::failed(format!(
            "{}: does not exist: give a size to create it as a file ({}:10G)",
            m.path.display(),
            m.path.display()
        ))),
        Err(e) => Err(Failure::file(&m.path, "find its size", &e)),
    }
}
