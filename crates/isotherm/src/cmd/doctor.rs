//! `isotherm doctor`: what is wrong with a volume or at risk, each with the command that mends it.

mod boot;
mod bundle;
mod device;
mod redact;
mod smart;
mod stack;

use std::io;
use std::path::{Path, PathBuf};

use isotherm_answers::{Diagnosis, Finding, FindingLevel as Level, Param, Stats, Status};
use isotherm_live::members::{self, probe::Second, probe::probe};
use isotherm_live::stack::tree::Tree;
use isotherm_live::{ErrorKind, OpenMode, Volume, VolumeConfig, volume};

use self::boot::Boot;
use self::stack::Stack;
use crate::Failure;
use crate::args::DoctorArgs;
use crate::cmd::adopt::references;
use crate::control::Request;
use crate::control::client::{PATIENCE, hidden_server};
use crate::failure::reason;
use crate::human;
use crate::smart::Smartctl;

/// What is said of flash that has no second copy, whatever it holds at present.
const ONE_COPY: &str =
    "may have dirty data on flash that has no second copy, and they are lost if it fails";

/// Looks at a volume and its devices, and prints what it found.
///
/// # Errors
/// There is no such volume. [`Failure::Bad`]: something is wrong, which is printed.
pub fn run(args: &DoctorArgs) -> Result<(), Failure> {
    if let Some(file) = &args.bundle {
        return bundle::run(args, file);
    }
    let result = diagnosis(&args.of.volume)?;
    args.of.json.print(&result, || in_words(&result))?;
    if result.findings.iter().any(|f| f.level == Level::Wrong) {
        return Err(Failure::Bad);
    }
    Ok(())
}

/// What is found of a volume and its devices.
///
/// # Errors
/// There is no such volume, or its description cannot be read.
fn diagnosis(volume: &Path) -> Result<Diagnosis, Failure> {
    let subject = volume.display().to_string();
    let (mut found, mut unknown) = (Vec::new(), Vec::new());
    let (mut status, mut forecast) = (None, None);
    let server = super::server_of(volume)?;
    let is_served = server.is_some();
    if let Some(server) = server {
        let mut server = server.with_limit(PATIENCE);
        match server.ask(&Request::Status) {
            Ok(answer) => match isotherm_answers::read_status(&answer) {
                Ok(known) => {
                    status = Some(known);
                    forecast = (server.ask_for(&Request::Stats).ok()).and_then(|s| lasts(&s));
                }
                // It is a server of another version.
                Err(why) => unknown.push(format!("{subject}: what its server says: {why}")),
            },
            Err(e) => {
                let todo = format!(
                    "see why (dmesg, journalctl); isotherm stop {subject} --within 60 ends it"
                );
                found.push(Finding::new(Level::Wrong, &subject, e.to_string(), todo));
            }
        }
    } else if let Some((pid, said)) = hidden_server(volume) {
        let todo = format!("kill -TERM {pid}, then serve it again");
        found.push(Finding::new(Level::Wrong, &subject, said, todo));
    } else {
        let todo = format!("isotherm serve {subject}; then this command knows more");
        found.push(Finding::new(Level::Note, &subject, "is not served", todo));
    }
    let file = volume::description(volume);
    let failed = |e: isotherm_live::Error| Failure::failed(e.to_string());
    let mut config = VolumeConfig::load(&file).map_err(failed)?;
    // Members that cannot be told apart are found by `serve` and `check`, too.
    let confused = members::find(&mut config, &file).err();
    let base = file.parent().unwrap_or(Path::new(""));
    let members = members_of(volume, &config, base, Path::new("/"));
    found.extend(of_volume(volume, &config, status.as_ref(), &members));
    found.extend(spares(volume, &config, base));
    let mut below = Vec::new();
    let all = members.iter().map(|m| m.look(&mut below, &mut unknown));
    // Of a member that cannot be read, the volume says the same once more.
    let can_open = all.fold(!is_served, |all, one| all && one);
    let refused =
        confused.or_else(|| can_open.then(|| Volume::open(volume, OpenMode::ReadOnly).err())?);
    match refused {
        // Its holder may be another command that looks at it, or a server that begins or ends.
        Some(e) if e.kind == ErrorKind::InUse => {
            unknown.push(format!("whether it can be served: {e}"));
        }
        refused => {
            found.extend(refused.map(|e| Finding::new(Level::Wrong, &subject, e.to_string(), "")));
        }
    }
    found.extend(below);
    found.extend(one_drive(&members));
    health(&members, forecast.as_deref(), &mut found, &mut unknown);
    found.sort_by_key(|f| f.level);
    Ok(Diagnosis {
        volume: volume.to_string_lossy().into_owned(),
        served: is_served,
        findings: found,
        not_known: unknown,
    })
}

fn in_words(diagnosis: &Diagnosis) -> String {
    let (found, mut lines) = (&diagnosis.findings, Vec::new());
    for f in found {
        lines.push(format!(
            "{}: {}: {}",
            isotherm_answers::word(f.level),
            f.subject,
            f.what
        ));
        if !f.todo.is_empty() {
            lines.push(format!("      {}", f.todo));
        }
    }
    let unknown = diagnosis.not_known.iter();
    lines.extend(unknown.map(|u| format!("not known: {u}")));
    let of = |level| found.iter().filter(|f| f.level == level).count();
    let (wrong, risks) = (of(Level::Wrong), of(Level::Risk));
    lines.push(format!(
        "{}: {wrong} wrong, {risks} at risk",
        diagnosis.volume
    ));
    lines.join("\n") + "\n"
}

/// Spares that could not take the place of flash.
fn spares(volume: &Path, config: &VolumeConfig, base: &Path) -> Vec<Finding> {
    let all = volume::spare::all(config, base).into_iter();
    let waits = all.filter(|(_, _, is_member)| !is_member);
    let one = |(place, path, _): (usize, PathBuf, bool)| {
        let e = volume::spare::check(volume, place, &path).err()?;
        let v = volume.display().to_string();
        let todo = format!(
            "isotherm cache {v} spare DEVICE names another one (wipefs -a empties this one, if nobody needs what it holds)"
        );
        let what = format!("the spare could not take the place of flash: {e}");
        Some(Finding::new(Level::Risk, &v, what, todo))
    };
    waits.filter_map(one).collect()
}

/// What the volume says of itself.
fn of_volume(
    volume: &Path,
    config: &VolumeConfig,
    status: Option<&Status>,
    members: &[Member],
) -> Vec<Finding> {
    let v = volume.display().to_string();
    let mut found = Vec::new();
    let mut say =
        |level, what: String, todo: String| found.push(Finding::new(level, &v, what, todo));
    let slowest = config.members.iter().map(|m| m.tier).max();
    let mut flash = config.members.iter().filter(|m| Some(m.tier) != slowest);
    if flash.clone().any(|m| m.removed) {
        let todo = format!("isotherm cache {v} add DEVICE");
        let what = if flash.all(|m| m.removed) {
            "has no flash: it is as fast as its disks"
        } else {
            "one of its flash devices was removed, and its place is empty"
        };
        say(Level::Note, what.into(), todo);
    }
    let served = status.and_then(|s| s.served.as_ref());
    // Of a volume that is not served nobody knows.
    let dirty = served.map_or(0, |v| v.copies.dirty_bytes);
    let mut flash = members.iter().filter(|m| m.is_flash);
    let is_alone = flash.clone().count() == 1 && !flash.clone().any(Member::has_two_copies);
    let keeps_dirty = config.build_policy().is_ok_and(|p| p.keeps_dirty());
    let is_single = |m: &Member| m.tree.is_some() && !m.has_two_copies();
    if dirty == 0 && keeps_dirty && flash.any(is_single) {
        let todo = format!(
            "isotherm set {v} write-mode=write-through-all keeps nothing dirty; docs/tasks/two-copies.md makes a second copy"
        );
        say(Level::Note, ONE_COPY.into(), todo);
    }
    let Some((status, served)) = status.zip(served) else {
        return found;
    };
    for cause in &served.health.causes {
        let what = format!("{}: {}", cause.what, cause.detail);
        say(Level::Wrong, what, cause.todo.clone());
    }
    if config.policy.contains(super::adopt::TRIAL) {
        let todo = format!("isotherm adopt --finish {v}, if writes may stay on flash for a while");
        let what = "writes go through to the disk, as after an adoption, and are as slow as it is";
        say(Level::Note, what.into(), todo);
    }
    let knob = |name: &str| served.params.get(name).and_then(Param::number);
    if dirty > 0 && is_alone {
        let what = format!(
            "{dirty} bytes are dirty, on one flash device alone, and lost if it fails (`isotherm clean {v}` writes them home now)"
        );
        let todo = format!("isotherm set {v} dirty_age_s=600 keeps less");
        say(Level::Note, what, todo);
    }
    if dirty > 0 && knob("dirty_age_s") == Some(0.0) && knob("sleep_hold_s") == Some(0.0) {
        let what = "dirty data may stay on flash for ever";
        say(
            Level::Risk,
            what.into(),
            format!("isotherm set {v} dirty_age_s=3600"),
        );
    }
    if status.data_check.last.is_none() {
        let todo = format!("isotherm check {v} --data");
        say(
            Level::Note,
            "nobody has read all of its data yet".into(),
            todo,
        );
    }
    found
}

/// How long the flash lasts at the rate at which this volume writes, if its limit is known.
fn lasts(stats: &Stats) -> Option<String> {
    let wear = crate::frame::wear(stats, stats.elapsed_s);
    let (years, limit) = (wear.years?, stats.wear_limit_bytes?);
    Some(format!(
        "its limit of {} lasts {years:.1} years at the rate of this volume",
        human::bytes(limit as u64)
    ))
}

/// A member of the volume.
struct Member {
    volume: String,
    /// Its place in the list of members.
    place: usize,
    path: PathBuf,
    name: String,
    is_flash: bool,
    /// Whether it is the last disk, which alone can let a cache volume grow.
    is_last: bool,
    /// Whether it is sent to sleep.
    sleeps: bool,
    /// Bytes of an extent.
    extent: u64,
    /// The devices below it; `None` for a file.
    tree: Option<Tree>,
}

/// The members that the volume should have; `/sys` and `/etc` are below `root`.
fn members_of(volume: &Path, config: &VolumeConfig, base: &Path, root: &Path) -> Vec<Member> {
    let slowest = config.members.iter().map(|m| m.tier).max();
    let last = config.members.iter().rposition(|m| Some(m.tier) == slowest);
    let all = config.members.iter().enumerate();
    all.filter(|(_, m)| !m.removed)
        .map(|(place, m)| {
            let path = base.join(&m.path);
            Member {
                volume: volume.display().to_string(),
                place,
                name: path.display().to_string(),
                is_flash: Some(m.tier) != slowest,
                is_last: Some(place) == last,
                sleeps: m.standby_s.is_some(),
                extent: config.extent.0,
                tree: Tree::of(&path, root),
                path,
            }
        })
        .collect()
}

/// What `create` and `adopt` say of the devices of a volume that they have made: only what is wrong or at risk.
pub(super) fn of_new(volume: &Path, config: &VolumeConfig) -> Vec<String> {
    let members = members_of(volume, config, Path::new(""), Path::new("/"));
    let mut found = Vec::new();
    for member in &members {
        found.extend(member.below(&mut Vec::new()));
    }
    found.extend(one_drive(&members));
    found.retain(|f| f.level < Level::Note);
    // Only now can this be changed.
    let odd = members.iter().filter_map(|m| m.stack()?.alignment());
    found.extend(odd.filter(|f| f.level == Level::Note));
    let words = |f: &Finding| format!("{}: {} ({})", f.subject, f.what, f.todo);
    found.iter().map(words).collect()
}

/// Members that are lost together.
fn one_drive(members: &[Member]) -> Vec<Finding> {
    let mut found = Vec::new();
    for (n, m) in members.iter().enumerate() {
        let own = m.tree.iter().flat_map(|t| t.drives(0).into_keys());
        let own: Vec<&str> = own.collect();
        let shares = |o: &&Member| {
            let mut other = o.tree.iter().flat_map(|t| t.drives(0).into_keys());
            // Disks share what a pool of disks has; only copies and what they are of must not.
            (o.is_flash || m.is_flash) && other.any(|d| own.contains(&d))
        };
        let Some(other) = members.iter().take(n).find(shares) else {
            continue;
        };
        let what = if other.is_flash && m.is_flash {
            format!(
                "is on the same drive as {}: one fault takes both, and with them both journals",
                other.name
            )
        } else {
            format!(
                "is on the same drive as {}: one fault takes both, and they wait for each other",
                other.name
            )
        };
        found.push(Finding::new(
            Level::Risk,
            &m.name,
            what,
            "give the volume two drives",
        ));
    }
    found
}

/// What the drives say of themselves. Each is asked once.
fn health(
    members: &[Member],
    forecast: Option<&str>,
    found: &mut Vec<Finding>,
    unknown: &mut Vec<String>,
) {
    let smartctl = match Smartctl::find() {
        Ok(smartctl) => smartctl,
        Err(why) => {
            unknown.push(format!("the health and wear of its drives: {why}"));
            return;
        }
    };
    let mut asked: Vec<String> = Vec::new();
    for m in members {
        let Some(tree) = &m.tree else {
            unknown.push(format!("{}: its health and wear: it is a file", m.name));
            continue;
        };
        let todo = format!(
            "isotherm replace {} NEW --member {} (in an array: mdadm --replace)",
            m.volume, m.place
        );
        for (id, drive) in tree.drives(0) {
            if asked.iter().any(|a| a == id) {
                continue;
            }
            asked.push(id.to_owned());
            let forecast = forecast.filter(|_| m.is_flash);
            match smart::findings(&smartctl, &drive.path(), (&m.name, &todo), forecast) {
                Ok(all) => found.extend(all),
                Err(why) => unknown.push(format!("{}: its health and wear: {why}", m.name)),
            }
        }
    }
}

impl Member {
    /// What is wrong with the devices below it.
    fn below(&self, unknown: &mut Vec<String>) -> Vec<Finding> {
        let Some(stack) = self.stack() else {
            return Vec::new();
        };
        let boot = Boot {
            name: &self.name,
            volume: self.volume.rsplit('/').next().unwrap_or_default(),
            tree: stack.tree,
            sleeps: self.sleeps,
            root: Path::new("/"),
        };
        unknown.extend(stack.unknown());
        let mut found = stack.findings();
        found.extend(boot.findings(unknown));
        found
    }

    fn stack(&self) -> Option<Stack<'_>> {
        Some(Stack {
            name: &self.name,
            tree: self.tree.as_ref()?,
            is_flash: self.is_flash,
            extent: self.extent,
        })
    }

    /// Whether one drive may fail without a loss of its data, as far as is known.
    fn has_two_copies(&self) -> bool {
        self.stack().is_some_and(|s| s.has_two_copies())
    }

    /// What can be seen of it. Returns whether it is there, with its superblock.
    fn look(&self, found: &mut Vec<Finding>, unknown: &mut Vec<String>) -> bool {
        let (v, name) = (&self.volume, &self.name);
        let mut say =
            |level, what: String, todo: String| found.push(Finding::new(level, name, what, todo));
        let own = match probe(&self.path, Second::At(&[])) {
            Ok(Ok(own)) => own,
            Ok(Err(_)) => {
                let what = "is no member any more: it holds no superblock that can be read";
                let todo =
                    format!("isotherm find says where the member is; isotherm check {v} says more");
                say(Level::Wrong, what.into(), todo);
                return false;
            }
            Err(e) => {
                let todo = if e.kind() == io::ErrorKind::PermissionDenied {
                    let words = isotherm_live::device::denied().split_once(": ");
                    words.map_or("", |w| w.1).to_owned()
                } else {
                    format!(
                        "attach it, or give the volume another device: isotherm replace {v} NEW --member {}",
                        self.place
                    )
                };
                say(
                    Level::Wrong,
                    format!("cannot be read: {}", reason(&e)),
                    todo,
                );
                return false;
            }
        };
        for r in references::find(&self.path, Path::new("/")) {
            let what = format!("{r} names this device, which leads past the volume");
            let todo = format!("isotherm fstab {v} prints the line for /etc/fstab");
            say(Level::Wrong, what, todo);
        }
        let entry = own.members.get(usize::from(own.index));
        let (used, slots) = entry.map_or((0, 0), |m| (m.bytes, m.slots));
        let room = self.bytes().saturating_sub(used);
        if room >= (16 << 20).max(1 << own.extent_shift) {
            let what = format!("{} MiB at its end are not used", room >> 20);
            if self.is_flash && slots >= own.extents {
                // More copies than extents there cannot be.
            } else if self.is_flash {
                say(Level::Note, what, format!("isotherm cache {v} resize"));
            } else if self.is_last {
                say(Level::Note, what, format!("isotherm grow {v}"));
            }
        }
        if let Some(tree) = &self.tree {
            found.extend(device::findings(tree, name, self.is_flash));
            found.extend(self.below(unknown));
        }
        true
    }

    fn bytes(&self) -> u64 {
        let of_file = || std::fs::metadata(&self.path).map_or(0, |m| m.len());
        let own = self.tree.as_ref().and_then(|t| t.nodes.first());
        own.map_or_else(of_file, |n| n.bytes)
    }
}

#[cfg(test)]
mod tests;
