//! `isotherm cache`: gives a cache volume flash, takes all of it or one device out, or uses flash that has another size now.

use std::path::Path;

use isotherm_answers::{
    Cache, CacheDid, ChangedFlash, Noted, RemovedFlash, Replaced, ResizedFlash,
};
use isotherm_live::volume::ReplaceHow;
use isotherm_live::{MemberConfig, Volume, VolumeConfig};
use serde::de::DeserializeOwned;

use crate::Failure;
use crate::args::{CacheAddArgs, CacheArgs, CacheCommand, CacheRemoveArgs, CacheSpareArgs};
use crate::control::client::{Client, needed};
use crate::control::{AddFlashAsk, ReplaceAsk, Request};
use crate::progress::Progress;

/// Changes the flash of a volume. If the volume is served, its server does this.
///
/// # Errors
/// The volume is no cache volume or cannot be opened, the change is not possible, or a device fails.
pub fn run(args: &CacheArgs) -> Result<(), Failure> {
    let volume = &args.volume;
    let (json, result) = match &args.command {
        CacheCommand::Add(a) => (&a.json, add(volume, a)?),
        CacheCommand::Remove(a) => (&a.json, remove(volume, a)?),
        CacheCommand::Resize(a) => (&a.json, resize(volume)?),
        CacheCommand::Spare(a) => (&a.json, spare(volume, a)?),
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

/// The paths of flash that is part of the volume, but for the one in this place.
fn others(flash: &[(usize, MemberConfig)], but: Option<usize>) -> Vec<String> {
    let stays = |(i, m): &&(usize, MemberConfig)| Some(*i) != but && !m.removed;
    let path = |(_, m): &(usize, MemberConfig)| m.path.to_string_lossy().into_owned();
    flash.iter().filter(stays).map(path).collect()
}

/// The place of the flash device that is meant.
fn place_of(flash: &[(usize, MemberConfig)], device: &Path) -> Option<usize> {
    let path = std::path::absolute(device).unwrap_or_else(|_| device.to_owned());
    let real = |p: &Path| std::fs::canonicalize(p).ok();
    let is_it = |(i, m): &&(usize, MemberConfig)| {
        let same = real(&m.path).is_some_and(|p| Some(p) == real(&path));
        m.path == path || same || device.to_str() == Some(&i.to_string())
    };
    flash.iter().find(is_it).map(|(i, _)| *i)
}

/// The answer of `replace` in the form of this command.
fn added(volume: &Path, made: Replaced, others: Vec<String>) -> Cache {
    Cache {
        others,
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
    let size = args.new.size.map(|s| {
        s.bytes().ok_or_else(|| {
            Failure::usage("the size of the new device is a number of bytes, as in PATH:1G")
        })
    });
    let size = size.transpose()?;
    let Some(place) = free.first().map(|(i, _)| *i) else {
        if all.is_empty() {
            let what = format!("{v}: has one tier: create a volume with --fast and --slow");
            return Err(Failure::failed(what));
        }
        return join(volume, server, (&new, size, args.force), &all);
    };
    let how = ReplaceHow {
        member: Some(place.to_string()),
        size,
        empty: true,
        force: args.force,
        accept_loss: false,
    };
    let made = give(volume, server, &args.new.path, how)?;
    Ok(added(volume, super::told(made), others(&all, Some(place))))
}

/// Gives a volume that has flash one more device.
fn join(
    volume: &Path,
    server: Option<Client>,
    (new, size, force): (&Path, Option<u64>, bool),
    all: &[(usize, MemberConfig)],
) -> Result<Cache, Failure> {
    if let Some(place) = place_of(all, new) {
        // An earlier command was interrupted at its end.
        return nothing_left(
            volume,
            (CacheDid::IsFlashAlready, new),
            others(all, Some(place)),
        );
    }
    let made = match server {
        Some(mut server) => server.ask_for(&Request::AddFlash(AddFlashAsk {
            new: new.to_owned(),
            size,
            force,
        }))?,
        None => offline(Volume::add_flash(volume, new, size, force))?,
    };
    Ok(one(volume, CacheDid::Added, made, others(all, None)))
}

fn offline(
    made: Result<isotherm_live::volume::FlashChanged, isotherm_live::Error>,
) -> Result<Noted<ChangedFlash>, Failure> {
    let made = made.map_err(|e| Failure::failed(e.to_string()))?;
    let what = isotherm_control::change::changed(&made);
    let notes = made.notes;
    Ok(Noted { what, notes })
}

/// The answer about one device of several.
fn one(volume: &Path, did: CacheDid, made: Noted<ChangedFlash>, others: Vec<String>) -> Cache {
    let made = super::told(made);
    Cache {
        volume: volume.to_string_lossy().into_owned(),
        did,
        flash: vec![made.device],
        others,
        slots_before: Some(made.slots_before),
        slots: made.slots,
        written_home_bytes: made.written_home_bytes,
    }
}

/// The answer if an earlier command was interrupted at its end.
fn nothing_left(
    volume: &Path,
    (did, device): (CacheDid, &Path),
    others: Vec<String>,
) -> Result<Cache, Failure> {
    let slots = Volume::slots_of_flash(volume).map_err(|e| Failure::failed(e.to_string()))?;
    Ok(Cache {
        volume: volume.to_string_lossy().into_owned(),
        did,
        flash: vec![device.to_string_lossy().into_owned()],
        others,
        slots_before: None,
        slots,
        written_home_bytes: 0,
    })
}

/// Lets the member in this place leave.
fn leave(volume: &Path, place: usize) -> Result<Noted<ChangedFlash>, Failure> {
    match super::server_of(volume)? {
        Some(server) => by_server(volume, server, Request::RemoveOneFlash { place }),
        None => offline(Volume::remove_one_flash(volume, place)),
    }
}

/// Takes one flash device out, or all.
fn remove(volume: &Path, args: &CacheRemoveArgs) -> Result<Cache, Failure> {
    let Some(device) = &args.device else {
        return remove_all(volume);
    };
    let all = flash(volume)?;
    let v = volume.display();
    let Some(place) = place_of(&all, device) else {
        let failed = |e: isotherm_live::Error| Failure::failed(e.to_string());
        if Volume::erase_former(volume, device).map_err(failed)? {
            return nothing_left(volume, (CacheDid::Removed, device), others(&all, None));
        }
        let flash = others(&all, None).join(", ");
        return Err(Failure::failed(format!(
            "{v}: {} is no flash of it, which is: {flash}",
            device.display()
        )));
    };
    let others = others(&all, Some(place));
    if others.is_empty() {
        return remove_all(volume);
    }
    // Places of flash that was taken out together wait for other flash, and are given up now.
    let waits = all.iter().filter(|(i, m)| m.removed && *i != place);
    let waits: Vec<usize> = waits.map(|(i, _)| *i).collect();
    for i in waits.iter().rev() {
        super::told(leave(volume, *i)?);
    }
    let before = waits.iter().filter(|i| **i < place).count();
    let made = leave(volume, place - before)?;
    Ok(one(volume, CacheDid::Removed, made, others))
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

fn remove_all(volume: &Path) -> Result<Cache, Failure> {
    let removed: Noted<RemovedFlash> = if let Some(server) = super::server_of(volume)? {
        by_server(volume, server, Request::RemoveFlash)?
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
        others: Vec::new(),
        slots_before: None,
        slots: 0,
        written_home_bytes: removed.written_home_bytes,
    })
}

/// Lets the server clean and remove the flash, and shows meanwhile how much is dirty.
fn by_server<T: DeserializeOwned + Send + 'static>(
    volume: &Path,
    mut server: Client,
    request: Request,
) -> Result<Noted<T>, Failure> {
    let (told, asked) = std::sync::mpsc::channel();
    std::thread::spawn(move || told.send(server.ask_for(&request)));
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
        others: Vec::new(),
        slots_before: Some(resized.slots_before),
        slots: resized.slots,
        written_home_bytes: 0,
    })
}

fn spare(volume: &Path, args: &CacheSpareArgs) -> Result<Cache, Failure> {
    let failed = |e: isotherm_live::Error| Failure::failed(e.to_string());
    let spare = match &args.device {
        Some(new) => {
            Some(std::path::absolute(new).map_err(|e| Failure::file(new, "find its place", &e))?)
        }
        None => None,
    };
    let all = flash(volume)?;
    if let Some(mut server) = super::server_of(volume)? {
        let set: Noted<()> = server.ask_for(&Request::SetSpare {
            spare: spare.clone(),
        })?;
        super::told(set);
    } else {
        let file = isotherm_live::volume::description(volume);
        let mut config = VolumeConfig::load(&file).map_err(failed)?;
        let checked = isotherm_control::spare::checked(volume, &config, spare.as_deref());
        isotherm_control::spare::enter(&mut config, checked.map_err(Failure::failed)?);
        config.save(&file).map_err(failed)?;
    }
    Ok(Cache {
        volume: volume.to_string_lossy().into_owned(),
        did: spare
            .as_ref()
            .map_or(CacheDid::NoSpare, |_| CacheDid::Spare),
        flash: spare
            .iter()
            .map(|s| s.to_string_lossy().into_owned())
            .collect(),
        others: others(&all, None),
        slots_before: None,
        slots: Volume::slots_of_flash(volume).map_err(failed)?,
        written_home_bytes: 0,
    })
}

fn in_words(done: &Cache) -> String {
    let (v, flash, slots) = (&done.volume, done.flash.join(", "), done.slots);
    let others = done.others.join(", ");
    match (done.did, done.slots_before) {
        (CacheDid::Removed, _) if !others.is_empty() => {
            format!("{v}: goes on with {others} as its flash; free: {flash}\n")
        }
        (CacheDid::Removed, _) if flash.is_empty() => {
            format!("{v}: goes on with its disks alone\n")
        }
        (CacheDid::Removed, _) => format!("{v}: goes on with its disks alone; free: {flash}\n"),
        (CacheDid::IsFlashAlready, _) => {
            format!("{v}: {flash} is its flash already; its description says so now\n")
        }
        (CacheDid::Spare, _) => format!(
            "{v}: {flash} takes the place of its flash ({others}) if that fails while the volume is served\n"
        ),
        (CacheDid::NoSpare, _) => format!("{v}: has no spare\n"),
        (CacheDid::Resized, Some(before)) if before != slots => format!(
            "{v}: {flash} has {slots} extents now, formerly {before}; what it held is still there\n"
        ),
        (CacheDid::Resized, _) => {
            format!("{v}: {flash} is used in full already, with {slots} extents\n")
        }
        (CacheDid::Added, Some(before)) if !others.is_empty() => format!(
            "{v}: {flash} is its flash now, too, and begins empty; with {others} it has {slots} extents, formerly {before}\n"
        ),
        (CacheDid::Added, _) => {
            format!("{v}: {flash} is its flash now, with {slots} extents; it begins empty\n")
        }
    }
}
