//! `isotherm doctor`: what is wrong with a volume or at risk, each with the command that mends it.

mod device;

use std::path::Path;

use isotherm_live::members::{self, probe::Second, probe::probe};
use isotherm_live::{MemberConfig, VolumeConfig, volume};
use serde_json::{Value, json};

use crate::Failure;
use crate::args::DoctorArgs;
use crate::cmd::adopt::references;
use crate::control::Request;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    /// Data is lost or not served, or will be after the next accident.
    Wrong,
    /// It works, and one more fault costs data or much time.
    Risk,
    /// Good to know.
    Note,
}

impl Level {
    fn word(self) -> &'static str {
        match self {
            Level::Wrong => "wrong",
            Level::Risk => "risk",
            Level::Note => "note",
        }
    }
}

/// Something that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Finding {
    level: Level,
    /// The path of a member, or the volume.
    subject: String,
    what: String,
    /// What mends it.
    todo: String,
}

impl Finding {
    fn new(level: Level, subject: &str, what: impl Into<String>, todo: impl Into<String>) -> Self {
        Finding {
            level,
            subject: subject.to_owned(),
            what: what.into(),
            todo: todo.into(),
        }
    }
}

/// Looks at a volume and its devices, and prints what it found.
///
/// # Errors
/// There is no such volume. [`Failure::Bad`]: something is wrong, which is printed.
pub fn run(args: &DoctorArgs) -> Result<(), Failure> {
    let volume = &args.of.volume;
    let status = match super::server_of(volume)? {
        Some(mut server) => Some(server.ask(&Request::Status)?),
        None => None,
    };
    let file = volume::description(volume);
    let failed = |e: isotherm_live::Error| Failure::failed(e.to_string());
    let mut config = VolumeConfig::load(&file).map_err(failed)?;
    // Members that cannot be told apart are found by `serve` and `check`, too.
    let confused = members::find(&mut config, &file).err();
    let base = file.parent().unwrap_or(Path::new("")).to_owned();
    let mut found = of_volume(volume, &config, status.as_ref());
    let subject = volume.display().to_string();
    found.extend(confused.map(|e| Finding::new(Level::Wrong, &subject, e.to_string(), "")));
    let mut unknown = Vec::new();
    of_members(volume, &config, &base, &mut found, &mut unknown);
    found.sort_by_key(|f| f.level);
    let list = |f: &Finding| json!({"level": f.level.word(), "subject": f.subject, "what": f.what, "todo": f.todo});
    let result = json!({
        "volume": volume.to_string_lossy(), "served": status.is_some(),
        "findings": found.iter().map(list).collect::<Vec<_>>(), "not_known": unknown,
    });
    args.of
        .json
        .print(&result, || in_words(volume, &found, &unknown))?;
    if found.iter().any(|f| f.level == Level::Wrong) {
        return Err(Failure::Bad);
    }
    Ok(())
}

fn in_words(volume: &Path, found: &[Finding], unknown: &[String]) -> String {
    let mut lines = Vec::new();
    for f in found {
        lines.push(format!("{}: {}: {}", f.level.word(), f.subject, f.what));
        if !f.todo.is_empty() {
            lines.push(format!("      {}", f.todo));
        }
    }
    lines.extend(unknown.iter().map(|u| format!("not known: {u}")));
    let of = |level| found.iter().filter(|f| f.level == level).count();
    let (wrong, risks) = (of(Level::Wrong), of(Level::Risk));
    lines.push(format!(
        "{}: {wrong} wrong, {risks} at risk",
        volume.display()
    ));
    lines.join("\n") + "\n"
}

/// What the volume says of itself.
fn of_volume(volume: &Path, config: &VolumeConfig, status: Option<&Value>) -> Vec<Finding> {
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
    let Some(status) = status else {
        let todo = format!("isotherm serve {v}; then this command knows more");
        say(Level::Note, "is not served".into(), todo);
        return found;
    };
    for cause in status["health"]["causes"].as_array().into_iter().flatten() {
        let text = |key: &str| cause[key].as_str().unwrap_or_default();
        let what = format!("{}: {}", text("what"), text("detail"));
        say(Level::Wrong, what, text("todo").to_owned());
    }
    if config.policy.contains(super::adopt::TRIAL) {
        let todo = format!("isotherm adopt --finish {v}, if writes may stay on flash for a while");
        let what = "writes go through to the disk, as after an adoption, and are as slow as it is";
        say(Level::Note, what.into(), todo);
    }
    let dirty = status["copies"]["dirty_bytes"].as_u64().unwrap_or(0);
    let age = status["params"]["dirty_age_s"].as_f64().unwrap_or(0.0);
    let hold = status["params"]["sleep_hold_s"].as_f64().unwrap_or(0.0);
    let there = |m: &&MemberConfig| Some(m.tier) != slowest && !m.removed;
    let is_alone = config.members.iter().filter(there).count() == 1;
    if dirty > 0 && is_alone {
        let what = format!(
            "{dirty} bytes are dirty, on one flash device alone, and lost if it fails (`isotherm clean {v}` writes them home now)"
        );
        say(
            Level::Note,
            what,
            format!("isotherm set {v} dirty_age_s=600 keeps less"),
        );
    }
    if dirty > 0 && age == 0.0 && hold == 0.0 {
        let what = "dirty data may stay on flash for ever";
        say(
            Level::Risk,
            what.into(),
            format!("isotherm set {v} dirty_age_s=3600"),
        );
    }
    if status["data_check"]["last"].is_null() {
        let todo = format!("isotherm check {v} --data");
        say(
            Level::Note,
            "nobody has read all of its data yet".into(),
            todo,
        );
    }
    found
}

/// A member of the volume.
struct Member<'a> {
    volume: String,
    /// Its place in the list of members.
    place: usize,
    path: &'a Path,
    name: String,
    is_flash: bool,
    /// Whether it is the last disk, which alone can let a cache volume grow.
    is_last: bool,
}

/// What its devices say.
fn of_members(
    volume: &Path,
    config: &VolumeConfig,
    base: &Path,
    found: &mut Vec<Finding>,
    unknown: &mut Vec<String>,
) {
    let slowest = config.members.iter().map(|m| m.tier).max();
    let last = config.members.iter().rposition(|m| Some(m.tier) == slowest);
    let mut drives: Vec<(String, String, bool)> = Vec::new();
    for (place, m) in config
        .members
        .iter()
        .enumerate()
        .filter(|(_, m)| !m.removed)
    {
        let path = base.join(&m.path);
        let member = Member {
            volume: volume.display().to_string(),
            place,
            path: &path,
            name: path.display().to_string(),
            is_flash: Some(m.tier) != slowest,
            is_last: Some(place) == last,
        };
        let Some(facts) = member.look(found) else {
            continue;
        };
        let todo = format!("isotherm replace {} NEW --member {place}", member.volume);
        match device::smart(&facts, &member.name, &todo) {
            Ok(all) => found.extend(all),
            Err(why) => unknown.push(format!("{}: its health and wear: {why}", member.name)),
        }
        let Some(drive) = facts.disk else { continue };
        let same = |d: &&(String, String, bool)| d.1 == drive && d.2 != member.is_flash;
        if let Some((other, ..)) = drives.iter().find(same) {
            let what = format!(
                "is on the same drive as {other}: one fault takes both, and they wait for each other"
            );
            found.push(Finding::new(
                Level::Risk,
                &member.name,
                what,
                "give the volume two drives",
            ));
        }
        drives.push((member.name, drive, member.is_flash));
    }
}

impl Member<'_> {
    /// What can be seen of it, if it is there.
    fn look(&self, found: &mut Vec<Finding>) -> Option<device::Facts> {
        let (v, name) = (&self.volume, &self.name);
        let mut say =
            |level, what: String, todo: String| found.push(Finding::new(level, name, what, todo));
        let own = match probe(self.path, Second::At(&[])) {
            Ok(Ok(own)) => own,
            Ok(Err(_)) => {
                let what = "is no member any more: it holds no superblock that can be read";
                let todo =
                    format!("isotherm find says where the member is; isotherm check {v} says more");
                say(Level::Wrong, what.into(), todo);
                return None;
            }
            Err(e) => {
                let todo = format!(
                    "attach it, or give the volume another device: isotherm replace {v} NEW --member {}",
                    self.place
                );
                say(Level::Wrong, format!("cannot be read: {e}"), todo);
                return None;
            }
        };
        for r in references::find(self.path, Path::new("/")) {
            let what = format!("{r} names this device, which leads past the volume");
            let todo = format!("isotherm fstab {v} prints the line for /etc/fstab");
            say(Level::Wrong, what, todo);
        }
        let facts = device::Facts::of(self.path, Path::new("/"));
        let entry = own.members.get(usize::from(own.index));
        let (used, slots) = entry.map_or((0, 0), |m| (m.bytes, m.slots));
        let room = facts.bytes.saturating_sub(used);
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
        found.extend(facts.findings(name, self.is_flash));
        Some(facts)
    }
}
