//! Checks that directories belong together: each disk has an id, and the fastest tier has the ids of all, in the order of their numbers.
//!
//! A disk that is not mounted leaves an empty directory at its place. Without this check its files would appear to be deleted, and new files
//! would go to the disk below and be hidden when it comes back. For the same reason a disk of the last mount may not be left out unnoticed.
//!
//! Intents and the saved names of the disks say the number of a disk. So a disk keeps its number, in whatever order the disks of the slowest
//! tier are named. One that was emptied by `files disk drain` may be left out. If a number must change all the same, no intent may be left, and
//! the names are saved anew.

use crate::disk::{NewFile, Root, Roots};
use crate::mutants::{Mutant, broken};
use crate::policy_state::PlacementSettings;
use crate::settings::{Refused, Settings, refuse};
use crate::tree::{HIDDEN, INTENTS};
use rustix::fs::AtFlags;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

const FILE: &[u8] = b".isotherm/identity.json";

/// The record that is stored on a disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Identity {
    /// The id of this disk, in hexadecimal.
    id: String,
    /// On tier 0: the ids of all disks, by number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tiers: Vec<String>,
    /// On tier 0: where they were mounted the last time, for messages.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    paths: Vec<String>,
    /// On tier 0: the number of tiers. The disks from this number on, and the last tier's own, are those of the slowest tier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    levels: Option<usize>,
    /// On tier 0: the ids that are being given out. A crash between two writes leaves disks that have one already and are not in the list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    next: Vec<String>,
    /// On tier 0: the disks that joined others and whose files have no durable inode number of this set yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    unnumbered: Vec<String>,
}

/// The disks of a mount by number, with their ids.
pub(crate) struct Arranged {
    pub(crate) roots: Vec<Root>,
    pub(crate) ids: Vec<Option<String>>,
    /// A message for people if a full tier has no room for its id: as long as no tier has one, the next mount tries again.
    pub(crate) no_room: Option<String>,
    /// Whether these are not the disks of the last mount. Then the names of some are not saved.
    pub(crate) changed: bool,
    /// The ids of disks that joined others: what their files have in themselves are inode numbers of another set. Until [`numbered`].
    pub(crate) unnumbered: Vec<String>,
}

/// A disk that was named for this mount.
struct Given {
    root: Root,
    id: Option<String>,
    /// Its number in the last mount.
    number: Option<usize>,
    /// Whether the disk belongs to the slowest tier.
    slowest: bool,
    /// Whether it has the list of a set of tiers.
    leads: bool,
}

impl Given {
    fn shown(&self) -> String {
        self.root.path.display().to_string()
    }
}

fn read(root: &Root) -> Result<Option<Identity>, Refused> {
    let shown = format!("{}/.isotherm/identity.json", root.path.display());
    let text = root.read_whole(FILE);
    let Some(text) = text.map_err(|e| Refused(format!("{shown}: cannot read: {e}")))? else {
        return Ok(None);
    };
    serde_json::from_slice(&text).map(Some).map_err(|e| {
        Refused(format!(
            "{shown}: {e}: mend it, or mount with --accept-tiers to write it anew"
        ))
    })
}

fn write(root: &Root, identity: &Identity) -> Result<(), Errno> {
    let text = serde_json::to_vec(identity).map_err(|_| Errno::INVAL)?;
    NewFile::write(root, b"identity.json", &text)
}

fn number() -> Result<String, Refused> {
    let mut bytes = [0u8; 8];
    let random = std::fs::File::open("/dev/urandom");
    random
        .and_then(|mut f| std::io::Read::read_exact(&mut f, &mut bytes))
        .map_err(|e| Refused(format!("/dev/urandom: {e}")))?;
    Ok(format!("{:016x}", u64::from_le_bytes(bytes)))
}

impl Identity {
    fn shown(&self, number: usize) -> String {
        let path = self.paths.get(number).cloned();
        path.unwrap_or_else(|| format!("disk {number} ({})", self.tiers[number]))
    }
    fn number_of(&self, id: &str) -> Option<usize> {
        self.tiers.iter().position(|known| known == id)
    }
    /// Whether a disk has an id that was not given out for this set.
    fn is_stranger(&self, g: &Given) -> bool {
        let given_out = |id| self.tiers.contains(id) || self.next.contains(id);
        g.id.as_ref().is_some_and(|id| !given_out(id))
    }
}

/// Reads the ids of the disks that were named, those of faster tiers first.
fn given(roots: Vec<Root>, settings: &Settings) -> Result<(Identity, Vec<Given>), Refused> {
    let (mut known, mut all) = (Identity::default(), Vec::<Given>::new());
    for (at, root) in roots.into_iter().enumerate() {
        let identity = match read(&root) {
            _ if root.absent => None,
            Err(_) if settings.accept => None,
            other => other?,
        };
        let id = identity.as_ref().map(|m| m.id.clone());
        let leads = identity.as_ref().is_some_and(|m| !m.tiers.is_empty());
        if at == 0 {
            known = identity.unwrap_or_default();
        }
        let number = id.as_deref().and_then(|id| known.number_of(id));
        let twin = all.iter().find(|g| id.is_some() && g.id == id);
        if let Some(twin) = twin.filter(|_| !settings.accept) {
            return refuse(format!(
                "{}: has the id of {}: one is a copy of the other: mount without the copy",
                root.path.display(),
                twin.shown()
            ));
        }
        all.push(Given {
            number: number.filter(|_| twin.is_none()),
            id: id.filter(|_| twin.is_none()),
            slowest: at + 1 >= settings.tiers.len(),
            leads,
            root,
        });
    }
    Ok((known, all))
}

/// Decides which disk of the last mount each absent one is, and adds those that were not named. Refuses whatever would make names vanish.
fn complete(known: &Identity, all: &mut Vec<Given>, settings: &Settings) -> Result<(), Refused> {
    let is_left = |all: &[Given], n: &usize| all.iter().all(|g| g.number != Some(*n));
    // Those whose paths are known come first: another one must not take their number.
    let twice = (0..all.len()).chain(0..all.len()).enumerate();
    for (turn, at) in twice.map(|(i, at)| (i / all.len(), at)).collect::<Vec<_>>() {
        if !all[at].root.absent || all[at].number.is_some() {
            continue;
        }
        let path = all[at].shown();
        let left = |n: &usize| is_left(all, n);
        let same = |n: &usize| turn > 0 || known.paths.get(*n) == Some(&path);
        let number = (1..known.tiers.len()).filter(left).find(same);
        if number.is_none() && turn > 0 {
            return refuse(format!(
                "{path}: is missing, or was no disk of the last mount: one joins only while all others are there, without --degraded"
            ));
        }
        all[at].number = number;
        all[at].id = number.map(|n| known.tiers[n].clone());
    }
    if settings.accept || broken(Mutant::ForgetDisk) {
        return Ok(());
    }
    let slowest = known.levels.unwrap_or(known.tiers.len()).saturating_sub(1);
    let emptied = |n: usize| {
        let drained = || PlacementSettings::load(&all[0].root).map(|s| s.drains);
        !settings.degraded
            && n >= slowest
            && drained().is_ok_and(|d| d.get(&known.tiers[n]) == Some(&true))
    };
    let left = (0..known.tiers.len()).filter(|n| is_left(all, n) && !emptied(*n));
    let left: Vec<usize> = left.collect();
    let new = all.iter().find(|g| g.number.is_none());
    if let (Some(n), Some(new)) = (left.first(), new) {
        return refuse(format!(
            "{}: is not the directory that was this tier the last time: is its disk mounted? ({} is not there.) If it is to be a tier from now on: --accept-tiers; to serve without it: --degraded",
            new.shown(),
            known.shown(*n)
        ));
    }
    if let Some(stranger) = all.iter().find(|g| known.is_stranger(g)) {
        return refuse(format!(
            "{}: belongs to another set of tiers: mount it with that, or, if it is to be one of these from now on: --accept-tiers",
            stranger.shown()
        ));
    }
    for n in left {
        let path = known.shown(n);
        if !settings.degraded || n < slowest {
            return refuse(format!(
                "{path}: was part of the last mount and is not named: its files would seem to be deleted. Name it, too (its disk need not be there with --degraded); or give it up for good: --accept-tiers"
            ));
        }
        let root = Root::missing(std::path::Path::new(&path));
        all.push(Given {
            root: root.map_err(|e| Refused(format!("/dev/null: {e}")))?,
            id: Some(known.tiers[n].clone()),
            number: Some(n),
            slowest: true,
            leads: false,
        });
    }
    Ok(())
}

/// Gives each disk its number, and stores which disks these are from now on. Disks of the slowest tier keep their numbers; new ones follow.
///
/// # Errors
/// A message in words: a directory is not the disk that it was, or one of the last mount is left out.
pub(crate) fn arrange(roots: Vec<Root>, settings: &Settings) -> Result<Arranged, Refused> {
    let (known, mut all) = given(roots, settings)?;
    let some_absent = |all: &[Given]| all.iter().any(|g| g.root.absent);
    if known.tiers.is_empty() {
        if some_absent(&all) {
            return refuse(
                "tiers are missing, and the fast tier does not know which: mount it once with all of them",
            );
        }
        if let Some(fast) = all.iter().find(|g| g.leads && !settings.accept) {
            return refuse(format!(
                "{}: was the fast tier of a mount and is named as another: name it with --fast; if it is to be a slower tier from now on: --accept-tiers",
                fast.shown()
            ));
        }
        // The disk of the fast tier is most likely not mounted, and this is its empty mount point.
        let marked = all.iter().find(|g| known.is_stranger(g));
        if let Some(disk) = marked.filter(|_| !settings.accept && !broken(Mutant::ForgetFast)) {
            return refuse(format!(
                "{}: was a disk of a set whose fast tier is not here ({} knows no set of tiers): is its disk mounted? If the fast tier is lost, or these are to be a new set: --accept-tiers",
                disk.shown(),
                all[0].shown()
            ));
        }
    } else {
        complete(&known, &mut all, settings)?;
    }
    if !broken(Mutant::TrustOrder) {
        // The sort is stable: faster tiers stay in their order, before the slowest.
        all.sort_by_key(|g| {
            let number = g.number.unwrap_or(usize::MAX);
            (g.slowest, if g.slowest { number } else { 0 })
        });
    }
    let mut ids: Vec<String> = Vec::new();
    for g in &all {
        ids.push(match &g.id {
            Some(id) if !ids.contains(id) => id.clone(),
            _ => number()?,
        });
    }
    let changed = !known.tiers.is_empty() && ids != known.tiers;
    let renumbered = (known.tiers.iter().enumerate()).any(|(n, id)| ids.get(n) != Some(id));
    if some_absent(&all) && changed {
        return refuse(
            "tiers are missing, and the others are not those of the last mount in their order: mount once with all of them",
        );
    }
    if renumbered {
        forget_numbers(&known, &all[0].root)?;
    }
    let joined = |id: &&String| !known.tiers.is_empty() && !known.tiers.contains(id);
    let mut unnumbered: Vec<String> = ids.iter().filter(joined).cloned().collect();
    unnumbered.extend(
        known
            .unnumbered
            .iter()
            .filter(|id| ids.contains(id))
            .cloned(),
    );
    let no_room = store(&known, &all, (&ids, &unnumbered), settings.tiers.len())?;
    let ids = if no_room.is_some() {
        all.iter().map(|g| g.id.clone()).collect()
    } else {
        ids.into_iter().map(Some).collect()
    };
    Ok(Arranged {
        roots: all.into_iter().map(|g| g.root).collect(),
        ids,
        no_room,
        changed,
        unnumbered,
    })
}

/// What is known of the disks of a mount, and the id of one that joins it.
pub(crate) struct Joins {
    known: Identity,
    pub(crate) id: String,
}

/// Whether a directory may join the disks of a mount, which have these ids. Nothing is stored.
///
/// # Errors
/// A message in words: it is a copy of one of them, belongs to another mount, or the fast tier does not list what is mounted.
pub(crate) fn may_join(roots: &Roots, ids: &[Option<&str>], root: &Root) -> Result<Joins, Refused> {
    let known = read(&roots[0])?.unwrap_or_default();
    let shown = root.path.display();
    let listed = known.tiers.iter().map(|id| Some(id.as_str()));
    if !listed.eq(ids.iter().copied()) {
        return refuse(format!(
            "{shown}: cannot join: {}/.isotherm/identity.json does not list the disks of this mount (one was too full to get an id?): free some space on each, and mount again",
            roots[0].path.display()
        ));
    }
    let Some(own) = read(root)? else {
        let id = number()?;
        return Ok(Joins { known, id });
    };
    if let Some(twin) = known.number_of(&own.id) {
        return refuse(format!(
            "{shown}: has the id of {}: one is a copy of the other; to make a disk of its own of it: remove .isotherm there",
            roots[twin].path.display()
        ));
    }
    if !own.tiers.is_empty() {
        return refuse(format!(
            "{shown}: was the fast tier of a mount: it cannot be a slower disk of another; if that mount is given up: remove .isotherm there"
        ));
    }
    // A join that a crash interrupted has given it one.
    if !known.next.contains(&own.id) && !broken(Mutant::TrustStranger) {
        return refuse(format!(
            "{shown}: belongs to another set of tiers: mount it with that; if it is to be one of these from now on: remove .isotherm there"
        ));
    }
    Ok(Joins { known, id: own.id })
}

/// Stores that a directory is the last of the disks from now on. The fast tier's list comes last, because it is what completes that.
///
/// # Errors
/// A message in words: it cannot be stored. Then the next mount takes the disk or not, as it is named.
pub(crate) fn join(roots: &Roots, joins: &Joins, root: &Root, tiers: usize) -> Result<(), Refused> {
    let (fast, Joins { known, id }) = (&roots[0], joins);
    let all: Vec<String> = known.tiers.iter().chain([id]).cloned().collect();
    let begun = Identity {
        next: all.clone(),
        ..known.clone()
    };
    let own = Identity {
        id: id.clone(),
        ..Identity::default()
    };
    let paths = roots.iter().chain([root]);
    let paths = paths.map(|r| r.path.display().to_string());
    let list = Identity {
        id: known.id.clone(),
        tiers: all,
        paths: paths.collect(),
        levels: Some(tiers),
        next: Vec::new(),
        unnumbered: known.unnumbered.iter().chain([id]).cloned().collect(),
    };
    let mut steps = [(fast, begun), (root, own), (fast, list)];
    if broken(Mutant::ListFirst) {
        steps.swap(0, 2);
    }
    for (root, identity) in &steps {
        write(root, identity).map_err(|e| unwritten(&root.path.display().to_string(), e))?;
    }
    Ok(())
}

/// The inode numbers of all files of these disks are durable: what the files have in themselves counts from now on. If this cannot be stored,
/// it does not count.
pub(crate) fn numbered(fast: &Root, disks: &[String]) {
    if let Ok(Some(mut known)) = read(fast) {
        let before = known.unnumbered.len();
        known.unnumbered.retain(|id| !disks.contains(id));
        if known.unnumbered.len() < before {
            let _ = write(fast, &known);
        }
    }
}

/// Numbers will belong to other disks: removes the names that are saved by number. Refuses while an intent says one.
fn forget_numbers(known: &Identity, fast: &Root) -> Result<(), Refused> {
    let failed = |e: Errno| Refused(format!("{}/.isotherm: {e}", fast.path.display()));
    if !fast.list(INTENTS).map_err(failed)?.is_empty() && !broken(Mutant::TrustNumbers) {
        let before: Vec<String> = (0..known.tiers.len()).map(|n| known.shown(n)).collect();
        return refuse(format!(
            "a crash left changes half done, and the disks are not those of the last mount: mount once with these, in this order: {}",
            before.join(", ")
        ));
    }
    for name in fast.list(HIDDEN).map_err(failed)? {
        if name.starts_with(b"names.") {
            let path = crate::tree::join(HIDDEN, &name);
            rustix::fs::unlinkat(&fast.fd, &path[..], AtFlags::empty()).map_err(failed)?;
        }
    }
    let hidden = fast.directory(HIDDEN);
    hidden.and_then(rustix::fs::fsync).map_err(failed)
}

fn unwritten(shown: &str, e: Errno) -> Refused {
    let fix = if matches!(e, Errno::NOENT | Errno::NOSPC | Errno::DQUOT) {
        ": it is full: free some space there"
    } else {
        ""
    };
    Refused(format!(
        "{shown}: cannot write .isotherm/identity.json: {e}{fix}"
    ))
}

/// Stores the ids where they are not stored yet. Returns a message if a full tier has no room for its id.
fn store(
    known: &Identity,
    all: &[Given],
    (ids, unnumbered): (&[String], &[String]),
    levels: usize,
) -> Result<Option<String>, Refused> {
    let list = Identity {
        id: ids[0].clone(),
        tiers: ids.to_vec(),
        paths: all.iter().map(Given::shown).collect(),
        levels: Some(levels),
        next: Vec::new(),
        unnumbered: unnumbered.to_vec(),
    };
    if list.tiers == known.tiers {
        let next = known.next.clone();
        let list = Identity { next, ..list };
        if list != *known {
            // It is for messages only.
            let _ = write(&all[0].root, &list);
        }
        return Ok(None);
    }
    let failed = |g: &Given, e: Errno| unwritten(&g.shown(), e);
    let begun = Identity {
        id: ids[0].clone(),
        next: ids.to_vec(),
        ..known.clone()
    };
    write(&all[0].root, &begun).map_err(|e| failed(&all[0], e))?;
    // Tier 0 comes last, because its list is what completes the change.
    for (t, g) in all.iter().enumerate().rev() {
        let identity = if t == 0 {
            list.clone()
        } else {
            Identity {
                id: ids[t].clone(),
                ..Identity::default()
            }
        };
        let may_be_full = t > 0 && known.tiers.is_empty() && all.len() == levels;
        match write(&g.root, &identity) {
            Err(Errno::NOENT | Errno::NOSPC | Errno::DQUOT) if may_be_full && g.root.local => {
                return Ok(Some(format!(
                    "{}: is full: it has no room to store that it is this tier, so the next mount would not notice if its disk were not mounted; the first mount that finds room stores it",
                    g.shown()
                )));
            }
            done => done.map_err(|e| failed(g, e))?,
        }
    }
    Ok(None)
}

/// Whether the directory may be the tier that the fast tier lists. This is asked only for a directory that exists but may be an empty mount
/// point.
pub(crate) fn is_known(fast: &Root, root: &Root) -> bool {
    let known = read(fast).ok().flatten().map_or(Vec::new(), |m| m.tiers);
    known.is_empty()
        || read(root)
            .ok()
            .flatten()
            .is_some_and(|m| known.contains(&m.id))
}
