//! Finds the tail devices of members (`tail.rs`) by their labels, and checks that they are of the same session as the data.

use super::{is_block, near, owners, scan};
use crate::config::{VolumeConfig, parse_uuid};
use crate::device::Device;
use crate::error::{Error, ErrorKind};
use crate::media::FileMedia;
use crate::mutants::{LiveMutant, broken};
use crate::stack::{self, Relation};
use crate::tail::Label;
use isotherm_core::MemberId;
use isotherm_core::store::superblock::State;
use isotherm_core::store::{self, Superblock};
use std::path::{Path, PathBuf};

/// Gives each tail in `config` its present path. One that is not found keeps its path; opening it reports the problem.
///
/// # Errors
/// The tail was found at two places.
pub(super) fn find(
    config: &mut VolumeConfig,
    dir: &Path,
    notes: &mut Vec<String>,
) -> Result<(), Error> {
    let Some(volume) = config.uuid.as_deref().and_then(parse_uuid) else {
        return Ok(());
    };
    for m in &mut config.members {
        let Some(hint) = m.tail.clone() else { continue };
        let is_right = is_of(volume)(&hint).is_some();
        let mut search = Vec::new();
        if !is_right || is_block(&hint) {
            search.extend(scan::block_devices());
        }
        if !is_right || !is_block(&hint) {
            let hints = [hint.clone(), m.path.clone()];
            search.extend(near(&hints, dir, !is_right, notes));
        }
        search.retain(|p| *p != hint);
        search.sort();
        search.dedup();
        let found = scan::ask_all(search, !is_right, is_of(volume), notes);
        let users = owners::of_volume(dir);
        let mut places: Vec<PathBuf> = found.into_iter().map(|f| f.0).collect();
        places.retain(|p| owners::belongs_to(&users, p, &stack::layers(p).unwrap_or_default()));
        if is_right {
            places.insert(0, hint.clone());
        }
        let Some(place) = choose(&places, is_right, notes)? else {
            continue;
        };
        if place != hint {
            notes.push(format!(
                "the tail of {} is {} now (the description says {})",
                m.path.display(),
                place.display(),
                hint.display()
            ));
            m.tail = Some(place);
        }
    }
    Ok(())
}

/// The tail devices among `places`, whatever volume they belong to.
pub fn labelled(places: Vec<PathBuf>) -> Vec<(PathBuf, Label)> {
    let ask = |path: &Path| Label::read(path).ok().flatten();
    scan::ask_all(places, true, ask, &mut Vec::new())
}

/// Reads the label at a place if it is one of this volume.
fn is_of(volume: [u8; 16]) -> impl Fn(&Path) -> Option<Label> + Clone + Send + 'static {
    move |path| {
        let label = Label::read(path).ok().flatten();
        label.filter(|l| l.volume == volume)
    }
}

/// The place to use; the first one is that of the description if `hinted` is set.
fn choose(
    places: &[PathBuf],
    hinted: bool,
    notes: &mut Vec<String>,
) -> Result<Option<PathBuf>, Error> {
    let relation = |a: &Path, b: &Path| {
        let (a, b) = (stack::layers(a).ok()?, stack::layers(b).ok()?);
        stack::relation(&a, &b)
    };
    // Of several names for the same bytes, that of the description counts, otherwise the uppermost, which has the others claimed.
    let is_beaten = |i: usize| {
        (0..places.len())
            .filter(|&o| o != i)
            .any(|o| match relation(&places[o], &places[i]) {
                Some(_) if hinted && i == 0 => false,
                Some(_) if hinted && o == 0 => true,
                Some(Relation::Above) => true,
                None | Some(Relation::Below) => false,
                Some(_) => o < i,
            })
    };
    let distinct: Vec<usize> = (0..places.len()).filter(|&i| !is_beaten(i)).collect();
    let clone = |&i: &usize| is_block(&places[i]) || !hinted;
    if let [first, others @ ..] = distinct.as_slice()
        && let Some(&other) = others.iter().find(|i| clone(i))
        && !broken(LiveMutant::TakeEitherTwin)
    {
        let what = format!(
            "{} and {} are both the tail of one member: one is a copy or a snapshot of the other, and nothing tells which; detach one, or erase the copy",
            places[*first].display(),
            places[other].display()
        );
        return Err(Error::new(ErrorKind::Volume, what));
    }
    let copies = distinct.iter().skip(1);
    notes.extend(copies.map(|&i| format!("{}: a copy of a tail, not used", places[i].display())));
    Ok(distinct.first().map(|&i| places[i].clone()))
}

/// Checks that each tail device belongs to the member that is opened with it, and is of its session. `found` has the members in the order of the
/// devices.
///
/// # Errors
/// Names the data device and the tail.
pub fn check(devices: &[Option<Device>], found: &[Option<Superblock>]) -> Result<(), Error> {
    let mut media = FileMedia::new(devices);
    for (i, (device, sb)) in devices.iter().zip(found).enumerate() {
        let (Some(device), Some(sb)) = (device, sb) else {
            continue;
        };
        let (Some(tail), Some(joined)) = (device.tail(), &device.joined) else {
            continue;
        };
        let refused = |what: &str| {
            let (data, tail) = (device.path.display(), tail.path.display());
            Err(Error::new(
                ErrorKind::Volume,
                format!("{data} with its tail {tail}: {what}"),
            ))
        };
        let m = MemberId(i as u8);
        let own = sb.members.get(usize::from(sb.index));
        if own.is_none_or(|own| own.uuid != joined.label.member) {
            return refused(
                "the tail belongs to another member: attach the right one, or correct `tail` in the description",
            );
        }
        let mut read = |at, to: &mut [u8]| media.read_superblock(m, at, to);
        let data_says = store::superblock_at(&mut read, 0);
        let tail_says = store::superblock_at(&mut read, sb.copy_offset(MemberId(sb.index)));
        let (Ok(data_says), Ok(tail_says)) = (data_says, tail_says) else {
            // A superblock that power has torn. The other one counts, as on one device.
            continue;
        };
        if is_older(&tail_says, &data_says) && !broken(LiveMutant::TrustOldTail) {
            return refused(
                "the tail is an older copy: the volume was written to without it; attach the tail that was there then",
            );
        }
        if is_older(&data_says, &tail_says) {
            return refused(
                "the data device is an older copy: the tail has seen later sessions; attach the device that was there then",
            );
        }
    }
    Ok(())
}

/// Whether the last session that wrote to `newer` did not write to `one`. A session first prepares both, and begins only then.
fn is_older(one: &Superblock, newer: &Superblock) -> bool {
    let same = (one.generation, one.epoch) == (newer.generation, newer.epoch);
    !same && newer.state != State::Preparing && newer.generation >= one.generation
}
