//! Finds members by their identity. The superblocks decide; the path in the description is a hint where to look first.
//!
//! ```text
//! hints ─► superblocks ─► all members there? ─ yes ─► search for clones: of devices among all devices, because device names
//!                           │ no                    │  change; of files near the description and the hints
//!                           ▼                       ▼
//!          block devices, files near the description and the hints ─► one place per member, or a refusal
//! ```
//! Two places that hold the same member count as one if one lies above the other in the stack (a file and its loop device, a multipath map
//! and its paths). Otherwise one of them is a clone, and the program cannot know which. There is one exception: a file whose session is
//! *older* than that of the member that the description names is ignored. Files are not renamed by the system, so an old copy cannot be
//! mistaken for the member, and users must be able to keep one. A file of the same session is refused: the user may mean either of them.
//! Places of other users, which a search has found, do not count (`owners.rs`).

mod owners;
pub mod probe;
pub mod scan;
pub mod stable;
mod superblocks;
mod tails;

pub(crate) use superblocks::{Found, find_superblocks};
pub use tails::{check as check_tails, labelled};

use crate::config::{MemberConfig, VolumeConfig, parse_uuid};
use crate::error::{Error, ErrorKind};
use crate::mutants::{LiveMutant, broken};
use crate::stack::{self, Layer, Relation};
use isotherm_core::geometry::Kind;
use isotherm_core::store::superblock::{MemberEntry, State, SuperblockError};
use isotherm_core::store::{self, Superblock, newest_superblock};
use isotherm_core::{MemberId, TierId};
use probe::{Second, probe};
use std::collections::BTreeSet;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// A place that holds a member of the volume.
struct Candidate {
    path: PathBuf,
    sb: Superblock,
    stack: Vec<Layer>,
    is_block: bool,
    /// Whether the description names it.
    hinted: bool,
}

impl Candidate {
    fn new(path: PathBuf, sb: Superblock, hinted: bool) -> Candidate {
        Candidate {
            stack: stack::layers(&path).unwrap_or_default(),
            is_block: is_block(&path),
            path,
            sb,
            hinted,
        }
    }

    /// Whether it belongs to the last session that wrote, or to the previous one if the last session wrote no more than its preparation.
    fn is_current(&self, newest: &Superblock) -> bool {
        let own = (self.sb.generation, self.sb.epoch);
        own == (newest.generation, newest.epoch)
            || newest.state == State::Preparing
                && (own == (newest.prev_generation, newest.prev_epoch)
                    || self.sb.state == State::Preparing)
    }

    fn lies_above(&self, other: &Candidate) -> bool {
        stack::relation(&self.stack, &other.stack) == Some(Relation::Above)
    }

    /// Whether both have the same bytes, in any way.
    fn is(&self, other: &Candidate) -> bool {
        self.path == other.path || stack::relation(&self.stack, &other.stack).is_some()
    }
}

fn is_block(path: &Path) -> bool {
    crate::mounts::dead(path).is_none()
        && std::fs::metadata(path).is_ok_and(|m| m.file_type().is_block_device())
}

/// The contents of the place that a hint names.
enum Hint {
    /// A member of this volume.
    Member(Box<Superblock>),
    /// A superblock of ours that cannot be read: it is not replaced by another copy.
    Unreadable,
    /// No superblock, or not one of this volume.
    Nothing,
}

/// As [`locate`], for the description in `file`.
///
/// # Errors
/// As [`locate`].
pub fn find(config: &mut VolumeConfig, file: &Path) -> Result<Vec<String>, Error> {
    find_near(config, file.parent().unwrap_or(Path::new("")))
}

/// As [`locate`], for a description whose relative paths start from `base`.
pub(crate) fn find_near(config: &mut VolumeConfig, base: &Path) -> Result<Vec<String>, Error> {
    let absolute = |path: &Path| {
        let path = base.join(path);
        let bad = |e| Error::new(ErrorKind::Config, format!("{}: {e}", path.display()));
        std::path::absolute(&path).map_err(bad)
    };
    config.members.sort_by_key(|m| m.tier);
    for m in &mut config.members {
        m.path = absolute(&m.path)?;
        m.tail = m.tail.as_deref().map(absolute).transpose()?;
        m.spare = m.spare.as_deref().map(absolute).transpose()?;
    }
    let dir = absolute(Path::new("."))?;
    let mut notes = locate(config, &dir)?;
    tails::find(config, &dir, &mut notes)?;
    Ok(notes)
}

/// Puts the members of `config` in the order of the volume's member list, each with its present path. `dir` is the directory of the
/// description. Paths must be absolute, and members sorted by tier. A member that is not found keeps its path; opening it reports the
/// problem. What the description says of flash that was removed is corrected, if the newest superblock knows better. Returns messages for people.
///
/// # Errors
/// A member was found at two places.
pub fn locate(config: &mut VolumeConfig, dir: &Path) -> Result<Vec<String>, Error> {
    let hints: Vec<PathBuf> = config.members.iter().map(|m| m.path.clone()).collect();
    let mut held: Vec<Hint> = hints.iter().map(|p| look(p)).collect();
    let uuid = config.uuid.as_deref().and_then(parse_uuid).or_else(|| {
        held.iter().find_map(|h| match h {
            Hint::Member(sb) => Some(sb.uuid),
            _ => None,
        })
    });
    let Some(uuid) = uuid else {
        return Ok(Vec::new());
    };
    let mut places: Vec<Candidate> = Vec::new();
    for (path, hint) in hints.iter().zip(&mut held) {
        match hint {
            Hint::Member(sb) if sb.uuid == uuid => {
                places.push(Candidate::new(path.clone(), (**sb).clone(), true));
            }
            Hint::Member(_) => *hint = Hint::Nothing,
            _ => {}
        }
    }
    let mut notes = Vec::new();
    let indices: BTreeSet<u8> = places.iter().map(|c| c.sb.index).collect();
    let pinned = held.iter().any(|h| matches!(h, Hint::Unreadable));
    let complete = indices.len() == hints.len() || pinned && indices.len() + 1 == hints.len();
    let (blocks, files): (Vec<&Candidate>, Vec<_>) = places.iter().partition(|c| c.is_block);
    if !complete || !places.is_empty() {
        let guides = store::second_places(places.iter().map(|c| &c.sb));
        let mut search = Vec::new();
        if !complete || !blocks.is_empty() {
            search.extend(scan::block_devices());
        }
        if !complete || !files.is_empty() {
            search.extend(near(&hints, dir, !complete, &mut notes));
        }
        // A spare that took the place of a member just before a kill.
        search.extend(config.members.iter().filter_map(|m| m.spare.clone()));
        search.retain(|p| !hints.contains(p));
        search.sort();
        search.dedup();
        let mut scan = scan::probe_all(search, &guides, !complete);
        notes.append(&mut scan.notes);
        let ours = scan.found.into_iter().filter(|(_, sb)| sb.uuid == uuid);
        places.extend(ours.map(|(path, sb)| Candidate::new(path, sb, false)));
    }
    owners::leave_out_strangers(&mut places, &owners::of_volume(dir), &mut notes);
    leave_out_forged(&mut places, &mut notes);
    let Some(newest) = newest(&places).cloned() else {
        return Ok(notes);
    };
    leave_out_lines(config, &mut held, &newest, &mut notes);
    if newest.members.len() != config.members.len() {
        // The description is wrong; the check of its shape reports this.
        return Ok(notes);
    }
    leave_out_replaced(&mut places, &newest, &mut notes);
    let mut chosen: Vec<Option<usize>> = Vec::new();
    for index in 0..newest.members.len() {
        chosen.push(choose(&places, index, &newest, &mut notes)?);
    }
    arrange(config, &held, &places, &chosen, &newest, &mut notes);
    for (i, m) in (0u8..).zip(&mut config.members) {
        // A command that gave the volume flash was killed before its end.
        m.removed &= newest.is_absent(MemberId(i));
    }
    Ok(notes)
}

/// For each member of a description that [`locate`] has put in order: whether the newest session went on without it, and its path does not
/// lead to it. What is there, if anything, may belong to anybody, and need not even be a device that can be opened.
pub(crate) fn left_out(config: &VolumeConfig) -> Vec<bool> {
    let uuid = config.uuid.as_deref().and_then(parse_uuid);
    let held: Vec<Hint> = config.members.iter().map(|m| look(&m.path)).collect();
    let ours = held.iter().filter_map(|h| match h {
        Hint::Member(sb) if Some(sb.uuid) == uuid => Some(&**sb),
        _ => None,
    });
    let newest = newest_superblock(ours)
        .filter(|sb| sb.state != State::Preparing && sb.members.len() == config.members.len());
    let is_other = |h: &Hint| match h {
        Hint::Member(sb) => Some(sb.uuid) != uuid,
        Hint::Unreadable => false,
        Hint::Nothing => true,
    };
    let went_on_without = |m| newest.is_some_and(|newest| newest.is_absent(MemberId(m)));
    (0..)
        .zip(&held)
        .map(|(m, h)| is_other(h) && went_on_without(m))
        .collect()
}

fn look(path: &Path) -> Hint {
    match probe(path, Second::At(&[])) {
        Ok(Ok(sb)) => Hint::Member(Box::new(sb)),
        Err(_) | Ok(Err(SuperblockError::Foreign)) => Hint::Nothing,
        Ok(Err(_)) => Hint::Unreadable,
    }
}

fn newest(places: &[Candidate]) -> Option<&Superblock> {
    newest_superblock(places.iter().map(|c| &c.sb))
}

/// Files near the description and near the former places of members; with `moved`, also their places after a directory was renamed.
/// Messages for people go to `notes`.
fn near(hints: &[PathBuf], dir: &Path, moved: bool, notes: &mut Vec<String>) -> Vec<PathBuf> {
    let mut dirs: BTreeSet<&Path> = BTreeSet::from([dir]);
    dirs.extend(hints.iter().filter_map(|h| h.parent()));
    let mut files = Vec::new();
    for dir in dirs {
        let (mut found, mut said) = scan::files_in(dir);
        files.append(&mut found);
        notes.append(&mut said);
    }
    if moved {
        files.extend(hints.iter().flat_map(|h| scan::moved_along(h, dir)));
    }
    files
}

/// Removes places that the description does not name and whose table of members has none of the members of those that it names. The number of
/// a volume is known to every user, and a device that he attaches may state it; the numbers of members are on the members alone. (The only
/// member of a volume may have been replaced, so its table is no proof.)
fn leave_out_forged(places: &mut Vec<Candidate>, notes: &mut Vec<String>) {
    let uuids = |c: &Candidate| c.sb.members.iter().map(|m| m.uuid).collect::<Vec<_>>();
    let named = places.iter().filter(|c| c.hinted && c.sb.members.len() > 1);
    let known: BTreeSet<[u8; 16]> = named.flat_map(uuids).collect();
    places.retain(|c| {
        let genuine = known.is_empty() || c.hinted || uuids(c).iter().any(|u| known.contains(u));
        if !genuine {
            notes.push(format!(
                "{}: states the number of this volume, but none of its members: not used",
                c.path.display()
            ));
        }
        genuine
    });
}

/// Removes places whose device was replaced since, or should have become a member and did not: the newest table of members has another
/// device there.
fn leave_out_replaced(places: &mut Vec<Candidate>, newest: &Superblock, notes: &mut Vec<String>) {
    places.retain(|c| {
        let is_member = !c.sb.is_replaced(newest);
        if !is_member {
            notes.push(format!(
                "{}: another device is member {} now, or it was taken out; not used",
                c.path.display(),
                c.sb.index
            ));
        }
        is_member
    });
}

/// Removes the lines of flash that the newest table of members does not have, although the description does: a command that gave the volume a
/// further device, or took one out, was killed before its end.
fn leave_out_lines(
    config: &mut VolumeConfig,
    held: &mut Vec<Hint>,
    newest: &Superblock,
    notes: &mut Vec<String>,
) {
    let slowest = config.members.iter().map(|m| m.tier).max();
    let hinted = |path: &Path| {
        let path = path.to_string_lossy();
        // A long path is stored in part.
        let is_it =
            |m: &MemberEntry| m.hint == path || m.hint.len() > 80 && path.starts_with(&m.hint);
        newest.members.iter().any(is_it)
    };
    while newest.kind == Kind::Cache && config.members.len() > newest.members.len() {
        let is_extra = |(m, hint): (&MemberConfig, &Hint)| {
            let is_flash = Some(m.tier) < slowest;
            is_flash
                && match hint {
                    Hint::Member(sb) => sb.is_replaced(newest),
                    Hint::Nothing => !hinted(&m.path),
                    Hint::Unreadable => false,
                }
        };
        let Some(at) = config.members.iter().zip(&*held).position(is_extra) else {
            return;
        };
        let m = config.members.remove(at);
        held.remove(at);
        notes.push(format!(
            "{}: is no flash of the volume: the command that added it, or took it out, was ended before its end",
            m.path.display()
        ));
    }
}

/// Chooses the place to use for member `index`.
fn choose(
    places: &[Candidate],
    index: usize,
    newest: &Superblock,
    notes: &mut Vec<String>,
) -> Result<Option<usize>, Error> {
    let all: Vec<usize> = (0..places.len())
        .filter(|&i| places[i].sb.place_in(newest) == Some(index))
        .collect();
    // Of several names for the same bytes, keep one: the name in the description if it is a file or at the top of the stack, otherwise the
    // name at the top.
    let mut distinct: Vec<usize> = Vec::new();
    for &i in &all {
        let c = &places[i];
        if all.iter().any(|&o| o != i && beats(&places[o], c, o < i)) {
            continue;
        }
        distinct.push(i);
    }
    let current = |i: &usize| places[*i].is_current(newest);
    let hinted = distinct
        .iter()
        .copied()
        .find(|i| places[*i].hinted && current(i));
    let rivals: Vec<usize> = distinct.iter().copied().filter(current).collect();
    // A clone or snapshot on a device, older or not, might one day be mistaken for the member.
    let strange = |i: &usize| places[*i].is_block && Some(*i) != hinted;
    let stranger = distinct.iter().copied().rev().find(strange);
    let twins = match (hinted, rivals.as_slice(), stranger) {
        (_, _, Some(s)) if distinct.len() > 1 => {
            distinct.iter().find(|&&i| i != s).map(|&other| (other, s))
        }
        (None, [a, b, ..], _) => Some((*a, *b)),
        // A file beside a device cannot be mistaken for it.
        (Some(h), [_, _, ..], _) if !places[h].is_block => {
            rivals.iter().find(|&&i| i != h).map(|&other| (h, other))
        }
        _ => None,
    };
    if let Some((a, b)) = twins.filter(|_| !broken(LiveMutant::TakeEitherTwin)) {
        let name = &newest.name;
        let what = format!(
            "{} and {} are both member {index} of volume `{name}`: one is a copy or a snapshot of the other, and nothing tells which; detach one, or erase the copy (a copy of a file: move it to another directory)",
            places[a].path.display(),
            places[b].path.display()
        );
        return Err(Error::new(ErrorKind::Volume, what));
    }
    let one = hinted.or_else(|| rivals.first().copied());
    for &i in distinct.iter().filter(|&&i| Some(i) != one) {
        let how = if current(&i) { "a copy" } else { "an old copy" };
        if one.is_some() || !places[i].hinted {
            notes.push(format!(
                "{}: {how} of member {index}, not used",
                places[i].path.display()
            ));
        }
    }
    Ok(one)
}

/// Whether `a` is a better name than `b` for the same bytes. `first` decides if they are equally good.
fn beats(a: &Candidate, b: &Candidate, first: bool) -> bool {
    if !a.is(b) {
        return false;
    }
    // Device mapper and md claim the devices below: only the upper name can be used. A loop device does not claim its file.
    let claims = |c: &Candidate| {
        !c.path
            .as_os_str()
            .as_encoded_bytes()
            .starts_with(b"/dev/loop")
    };
    let (over, under) = (a.lies_above(b), b.lies_above(a));
    if over && claims(a) || under && claims(b) {
        return over;
    }
    if a.hinted != b.hinted {
        return a.hinted;
    }
    over || !under && first
}

/// Assigns a member to each line of the description, and a path to each member.
fn arrange(
    config: &mut VolumeConfig,
    held: &[Hint],
    places: &[Candidate],
    chosen: &[Option<usize>],
    newest: &Superblock,
    notes: &mut Vec<String>,
) {
    let count = chosen.len();
    let mut lines: Vec<Option<usize>> = vec![None; count];
    let mut free: Vec<usize> = (0..count).collect();
    let tier = |line: usize| TierId(config.members[line].tier);
    // Lines whose hint is right keep their member, in any order.
    for (line, hint) in held.iter().enumerate() {
        let Hint::Member(sb) = hint else { continue };
        let i = sb.place_in(newest).unwrap_or(sb.index.into());
        if i < count && lines[i].is_none() && newest.members[i].tier == tier(line) {
            lines[i] = Some(line);
            free.retain(|&l| l != line);
        }
    }
    // The others are assigned by tier and order, as they were written at creation.
    for same_tier in [true, false] {
        for (i, line) in lines.iter_mut().enumerate().filter(|(_, l)| l.is_none()) {
            let fits = |&l: &usize| !same_tier || tier(l) == newest.members[i].tier;
            if let Some(at) = free.iter().position(fits) {
                *line = Some(free.remove(at));
            }
        }
    }
    let order: Vec<usize> = lines.into_iter().flatten().collect();
    if order.len() != count {
        return;
    }
    let mut members: Vec<_> = order.iter().map(|&l| config.members[l].clone()).collect();
    for (i, m) in members.iter_mut().enumerate() {
        let Some(place) = chosen[i].map(|c| &places[c]) else {
            continue;
        };
        let pinned = matches!(held[order[i]], Hint::Unreadable);
        if pinned || place.path == m.path {
            continue;
        }
        notes.push(format!(
            "member {i} is {} now ({} in the description)",
            place.path.display(),
            m.path.display()
        ));
        m.path.clone_from(&place.path);
    }
    config.members = members;
}
