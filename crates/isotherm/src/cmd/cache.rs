//! `isotherm cache`: gives a cache volume flash, takes its flash out, or uses flash that has another size now.

use std::path::Path;

use isotherm_answers::{Cache, CacheDid, Noted, RemovedFlash, Replaced, ResizedFlash};
use isotherm_live::volume::ReplaceHow;
use isotherm_live::{MemberConfig, Volume, VolumeConfig};

use crate::Failure;
use crate::args::{CacheAddArgs, CacheArgs, CacheCommand};
use crate::control::client::{Client, needed};
use crate::control::{ReplaceAsk, Request};
use crate::progress::Progress;

/// Changes the flash of a volume. If the volume is served, its server does this.
///
/// # Errors
/// The volume is no cache volume or cannot be opened, the change is not possible, or a device fails.
pub fn run(args: &CacheArgs) -> Result<(), Failure> {
    let volume = &args.volume;
    let (json, result) = match &args.command {
        CacheCommand::Add(a) => (&a.json, add(volume, a)?),
        CacheCommand::Remove(a) => (&a.json, remove(volume)?),
        CacheCommand::Resize(a) => (&a.json, resize(volume)?),
    };
    json.print(&result, || in_words(&result))
}

/// The description of a volume, with the places of its flash.
fn flash(volume: &Path) -> Result<Vec<(usize, MemberConfig)>, Failure> {
    let file = isotherm_live::volume::description(volume);
    let failed = |e: isotherm_live::Error| Failure::failed(e.to_string());
    let mut config = VolumeConfig::load(&file).map_err(failed)?;
    isotherm_live::members::find(&mut config, &file).map_err(failed)?;
    let slowest = config.members.iter().map(|m| m.tier).max();
    let all = config.members.into_iter().enumerate();
    Ok(all.filter(|(_, m)| Some(m.tier) != slowest).collect())
}

/// The places of members that a volume goes on without.
fn missing(volume: &Path, server: Option<&mut Client>) -> Result<Vec<usize>, Failure> {
    let missing = match server {
        Some(server) => needed(server.brief()?.missing_members, "missing_members")?,
        // A volume that cannot be opened is refused by what comes next.
        None => super::ask::offline(volume).map_or_else(|_| Vec::new(), |v| v.missing_members),
    };
    Ok(missing.into_iter().map(usize::from).collect())
}

fn names(flash: &[(usize, MemberConfig)]) -> String {
    let names: Vec<_> = flash
        .iter()
        .map(|(_, m)| m.path.display().to_string())
        .collect();
    names.join(", ")
}

/// The answer of `replace` in the form of this command.
fn added(volume: &Path, made: Replaced) -> Cache {
    Cache {
        volume: volume.to_string_lossy().into_owned(),
        // An earlier command was interrupted at its end.
        did: if made.already {
            CacheDid::IsFlashAlready
        } else {
            CacheDid::Added
        },
        flash: vec![made.new],
        slots_before: Some(made.slots_before.into()),
        slots: made.slots.into(),
        written_home_bytes: 0,
    }
}

fn add(volume: &Path, args: &CacheAddArgs) -> Result<Cache, Failure> {
    let mut server = super::server_of(volume)?;
    let all = flash(volume)?;
    let v = volume.display();
    let missing = missing(volume, server.as_mut())?;
    let new = std::path::absolute(&args.new.path).unwrap_or_else(|_| args.new.path.clone());
    let mut free: Vec<_> = (all.iter())
        .filter(|(i, m)| m.removed || missing.contains(i))
        .collect();
    // A device that was taken out has its own place again.
    free.sort_by_key(|(_, m)| m.path != new);
    let Some((place, _)) = free.first() else {
        let what = if all.is_empty() {
            format!("{v}: has one tier: create a volume with --fast and --slow")
        } else {
            format!(
                "{v}: has flash already ({}): `isotherm cache {v} resize` uses what was added to that device, `isotherm replace` puts another device in its place; several devices are chosen at creation",
                names(&all)
            )
        };
        return Err(Failure::failed(what));
    };
    let size = args.new.size.map(|s| {
        s.bytes().ok_or_else(|| {
            Failure::usage("the size of the new device is a number of bytes, as in PATH:1G")
        })
    });
    let how = ReplaceHow {
        member: Some(place.to_string()),
        size: size.transpose()?,
        empty: true,
        force: args.force,
        accept_loss: false,
    };
    let made = give(volume, server, &args.new.path, how)?;
    Ok(added(volume, super::told(made)))
}

/// Puts a device into the place of flash that was taken out.
fn give(
    volume: &Path,
    server: Option<Client>,
    new: &Path,
    how: ReplaceHow,
) -> Result<Noted<Replaced>, Failure> {
    let new = std::path::absolute(new).map_err(|e| Failure::file(new, "find its place", &e))?;
    let Some(mut server) = server else {
        let made = Volume::replace(volume, &new, &how, &mut |_, _| ());
        let made = made.map_err(|e| Failure::failed(e.to_string()))?;
        return Ok(Noted {
            what: isotherm_control::change::replacement(&made),
            notes: made.notes,
        });
    };
    server.ask_for(&Request::Replace(ReplaceAsk {
        new,
        member: how.member,
        size: how.size,
        empty: how.empty,
        force: how.force,
        only_free: true,
        rate: None,
    }))
}

fn remove(volume: &Path) -> Result<Cache, Failure> {
    let removed = if let Some(server) = super::server_of(volume)? {
        by_server(volume, server)?
    } else {
        let (former, mut notes) =
            Volume::remove_flash(volume).map_err(|e| Failure::failed(e.to_string()))?;
        let what = isotherm_control::change::removal(&former);
        let file = isotherm_live::volume::description(volume);
        let config = VolumeConfig::load(&file).map_err(|e| Failure::failed(e.to_string()))?;
        notes.extend(former.erase(&config, &file));
        Noted { what, notes }
    };
    let removed = super::told(removed);
    Ok(Cache {
        volume: volume.to_string_lossy().into_owned(),
        did: CacheDid::Removed,
        flash: removed.flash,
        slots_before: None,
        slots: 0,
        written_home_bytes: removed.written_home_bytes,
    })
}

/// Lets the server clean and remove the flash, and shows meanwhile how much is dirty.
fn by_server(volume: &Path, mut server: Client) -> Result<Noted<RemovedFlash>, Failure> {
    let (told, asked) = std::sync::mpsc::channel();
    std::thread::spawn(move || told.send(server.ask_for(&Request::RemoveFlash)));
    let progress = Progress::files();
    let mut watch = super::clean::Watch::new(volume);
    let outcome = loop {
        match asked.recv_timeout(super::clean::LOOK_AGAIN) {
            Ok(outcome) => break outcome,
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => watch.show(&progress),
            Err(e) => break Err(Failure::failed(e.to_string())),
        }
    };
    progress.finish();
    outcome
}

fn resize(volume: &Path) -> Result<Cache, Failure> {
    let v = volume.display();
    let all = flash(volume)?;
    if !all.is_empty() && all.iter().all(|(_, m)| m.removed) {
        return Err(Failure::failed(format!(
            "{v}: has no flash: `isotherm cache {v} add DEVICE`"
        )));
    }
    let resized: Noted<ResizedFlash> = if let Some(mut server) = super::server_of(volume)? {
        server.ask_for(&Request::ResizeFlash)?
    } else {
        let grown = Volume::grow_flash(volume).map_err(|e| Failure::failed(e.to_string()))?;
        let file = isotherm_live::volume::description(volume);
        let config = VolumeConfig::load(&file).map_err(|e| Failure::failed(e.to_string()))?;
        Noted {
            what: isotherm_control::change::resized(&grown, &config),
            notes: grown.notes,
        }
    };
    let resized = super::told(resized);
    Ok(Cache {
        volume: volume.to_string_lossy().into_owned(),
        did: CacheDid::Resized,
        flash: resized.flash,
        slots_before: Some(resized.slots_before),
        slots: resized.slots,
        written_home_bytes: 0,
    })
}

fn in_words(done: &Cache) -> String {
    let (v, flash, slots) = (&done.volume, done.flash.join(", "), done.slots);
    match (done.did, done.slots_before) {
        (CacheDid::Removed, _) if flash.is_empty() => {
            format!("{v}: goes on with its disks alone\n")
        }
        (CacheDid::Removed, _) => format!("{v}: goes on with its disks alone; free: {flash}\n"),
        (CacheDid::IsFlashAlready, _) => {
            format!("{v}: {flash} is its flash already; its description says so now\n")
        }
        (CacheDid::Resized, Some(before)) if before != slots => format!(
            "{v}: {flash} has {slots} extents now, formerly {before}; what it held is still there\n"
        ),
        (CacheDid::Resized, _) => {
            format!("{v}: {flash} is used in full already, with {slots} extents\n")
        }
        (CacheDid::Added, _) => {
            format!("{v}: {flash} is its flash now, with {slots} extents; it begins empty\n")
        }
    }
}
