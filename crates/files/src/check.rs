//! Checks that the catalogue agrees with the tiers.
//!
//! The tiers are read without stopping anybody. What differs then may have changed meanwhile, so each such path is looked at once more, while
//! nothing can change it. Only a repair that has found something stops all changes until it has read the tiers again. One check runs at a
//! time.

use crate::access::{Access, others};
use crate::catalogue::{Catalogue, Kind, NodeId, ROOT};
use crate::disk::Xattrs;
use crate::names::Key;
use crate::scan::read;
use crate::settings::Refused;
use crate::store::Store;
use crate::sync::lock;
use crate::tree::{DIR, Facts, SILLY, TYPE, Tier, join, split};
use isotherm_answers::files::{Check, Cut};
use rustix::io::Errno;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

const LIST_MAX: usize = 200;
/// Users who may not give commands get the result of the last check if it is younger than this, so that they cannot make the tiers be read
/// all the time.
const SHARED_FOR: Duration = Duration::from_secs(60);

/// The last check.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    last: Mutex<Option<(Instant, Check)>>,
    /// Held by a check, and by another long question of a user who may not give commands.
    turn: Mutex<()>,
}

impl Checks {
    /// The turn for a long question of a user who may not give commands. Such users do not wait for it, because each one that waits takes a
    /// thread of this program.
    ///
    /// # Errors
    /// `EAGAIN`: another question is in progress.
    pub(crate) fn turn(&self) -> Result<MutexGuard<'_, ()>, Errno> {
        match self.turn.try_lock() {
            Ok(turn) => Ok(turn),
            Err(TryLockError::Poisoned(turn)) => Ok(turn.into_inner()),
            Err(TryLockError::WouldBlock) => Err(Errno::AGAIN),
        }
    }
}

/// A path at which the catalogue and the tiers seem to differ: the node of the catalogue, and that of what was read.
type Difference = (Vec<u8>, Option<NodeId>, Option<NodeId>);

/// Reads the tiers again and compares. With `repair`, the catalogue shows what is on the tiers from now on.
pub fn check(store: &Store, repair: bool) -> Value {
    isotherm_answers::json(&checked(store, repair))
}

/// As [`check`], as a type.
pub(crate) fn checked(store: &Store, repair: bool) -> Check {
    let _turn = lock(&store.checks.turn);
    keep(store, run(store, repair))
}

fn keep(store: &Store, found: Check) -> Check {
    *lock(&store.checks.last) = Some((Instant::now(), found.clone()));
    found
}

/// The result of the last check if it is recent, or of a new one. While one runs, the last one is the answer.
///
/// # Errors
/// `EAGAIN`: the first one is not done yet.
pub(crate) fn recent(store: &Store) -> Result<Check, Errno> {
    let last = lock(&store.checks.last).clone();
    match (last, store.checks.turn()) {
        (Some((when, value)), _) if when.elapsed() < SHARED_FOR => Ok(value),
        (_, Ok(_turn)) => Ok(keep(store, run(store, false))),
        (Some((_, value)), Err(_)) => Ok(value),
        (None, Err(e)) => Err(e),
    }
}

fn run(store: &Store, repair: bool) -> Check {
    say_what_hides_tiers(store);
    match compare(store, false) {
        Ok((_, _, findings)) if findings.is_empty() || !repair => report(store, findings, false),
        Ok(_) => {
            let _all = (store.names).claim_anyway(|_, all| all.alone(Key::Path(ROOT)));
            match compare(store, true) {
                Ok((fresh, todo, findings)) => {
                    mend(store, &fresh, &todo);
                    report(store, findings, true)
                }
                Err(e) => report(store, vec![e.0], false),
            }
        }
        Err(e) => report(store, vec![e.0], false),
    }
}

fn report(store: &Store, mut findings: Vec<String>, repaired: bool) -> Check {
    let ok = findings.is_empty();
    let more = findings.len().saturating_sub(LIST_MAX);
    findings.truncate(LIST_MAX);
    Check {
        ok,
        files: store.cat().files(),
        findings,
        more,
        repaired: repaired && !ok,
        renumbered: store.names.lasting().renumbered.load(Ordering::Relaxed),
        cut: Cut::default(),
    }
}

/// What is on the tiers, where it differs from the catalogue, and that in words. `stopped`: the caller has claimed everything.
fn compare(
    store: &Store,
    stopped: bool,
) -> Result<(Catalogue, Vec<Difference>, Vec<String>), Refused> {
    let (fresh, differing) = read(&store.roots.all())?;
    let mut todo = differences(store, &fresh);
    todo.extend(differing.into_iter().map(|path| {
        let nodes = (store.cat().find(&path), fresh.find(&path));
        (path, nodes.0, nodes.1)
    }));
    todo.sort();
    todo.dedup();
    let mut findings = Vec::new();
    todo.retain(|(path, ..)| {
        // Nothing changes this path while it is looked at.
        let _claim = (!stopped).then(|| {
            store.names.claim_anyway(|cat, all| {
                let (dir, name) = split(path);
                if let Some(dir) = cat.find(dir) {
                    all.name_and_node(cat, dir, name);
                }
            })
        });
        let what = judge(store, path);
        let found = what.is_some();
        findings.extend(what.map(|w| format!("{}: {w}", String::from_utf8_lossy(path))));
        found
    });
    Ok((fresh, todo, findings))
}

/// The paths at which the catalogue and what was read differ, in order. The catalogue is locked for one directory or name at a time.
fn differences(store: &Store, fresh: &Catalogue) -> Vec<Difference> {
    let mut all = Vec::new();
    let mut todo = vec![(Vec::new(), Some(ROOT), Some(ROOT))];
    while let Some((dir, ours, theirs)) = todo.pop() {
        let mut names: BTreeMap<Vec<u8>, [Option<NodeId>; 2]> = BTreeMap::new();
        let lists = [
            ours.map(|d| store.cat().list(d)),
            theirs.map(|d| fresh.list(d)),
        ];
        for (side, list) in lists.iter().enumerate() {
            let all = (0..).map_while(|at| list.as_ref()?.get(at));
            for name in all {
                let node = match side {
                    0 => ours.and_then(|d| store.cat().child(d, name)),
                    _ => theirs.and_then(|d| fresh.child(d, name)),
                };
                names.entry(name.to_vec()).or_default()[side] = node;
            }
        }
        for (name, [a, b]) in names {
            let path = join(&dir, &name);
            let is_dir = |cat: &Catalogue, n: Option<NodeId>| {
                n.filter(|n| cat.get(*n).is_some_and(|n| n.dir().is_some()))
            };
            let below = (is_dir(&store.cat(), a), is_dir(fresh, b));
            if !is_same(store, a, fresh, b) {
                all.push((path.clone(), a, b));
            }
            if below != (None, None) {
                todo.push((path, below.0, below.1));
            }
        }
    }
    all.sort();
    all
}

fn is_same(store: &Store, id: Option<NodeId>, fresh: &Catalogue, other: Option<NodeId>) -> bool {
    let cat = store.cat();
    let ours = id.and_then(|id| cat.get(id));
    let theirs = other.and_then(|other| fresh.get(other));
    match (ours, theirs) {
        (Some(a), Some(b)) if a.dir().is_some() => b.dir().is_some(),
        (Some(a), Some(b)) => {
            (a.kind, a.tier, a.facts.version()) == (b.kind, b.tier, b.facts.version())
        }
        (Some(a), None) => store.present(a.on()) == 0,
        (None, Some(_)) => false,
        (None, None) => true,
    }
}

/// How what is on the tiers at a path differs from the catalogue, if it does.
fn judge(store: &Store, path: &[u8]) -> Option<String> {
    let known = {
        let cat = store.cat();
        let n = cat.find(path).and_then(|id| cat.get(id).map(|n| (id, n)));
        n.map(|(id, n)| (id, n.tier, n.on(), n.facts))
    };
    let mut there: Vec<(Tier, Facts)> = Vec::new();
    for (tier, root) in store.roots.iter().enumerate().filter(|r| !r.1.absent) {
        match root.stat(path) {
            Ok(facts) => there.extend(facts.map(|f| (tier as Tier, f))),
            Err(e) => return Some(format!("cannot be read on {}: {e}", root.path.display())),
        }
    }
    let kind = |f: &Facts| f.mode & TYPE;
    let Some((id, tier, on, facts)) = known else {
        let first = there.first()?;
        return (!is_silly(store, path, first.0)).then(|| "made underneath".into());
    };
    if store.present(on) == 0 {
        return None;
    }
    if kind(&facts) == DIR {
        let other = there.iter().find(|t| kind(&t.1) != DIR);
        return match (there.is_empty(), other) {
            (true, _) => Some("taken away underneath".into()),
            (_, Some((other, _))) => Some(format!(
                "is something else underneath, on {}",
                store.tier_name(*other)
            )),
            _ => unlike(store, path, &there),
        };
    }
    let Some((_, now)) = there.iter().find(|t| t.0 == tier) else {
        let elsewhere = !there.is_empty();
        let what = if elsewhere {
            "lies on another tier"
        } else {
            "taken away underneath"
        };
        return Some(what.into());
    };
    if kind(now) != kind(&facts) {
        return Some("is something else underneath".into());
    }
    if now.id != facts.id {
        return Some("replaced underneath".into());
    }
    if let Some((other, _)) = there.iter().find(|t| t.0 != tier) {
        return Some(format!(
            "is on {}, too: rename or remove one of the two, or the next mount is refused",
            store.tier_name(*other)
        ));
    }
    // The attributes of an open file come from its descriptor, unless only its copy is open.
    let live = store.open.get(id);
    let in_use = live.is_some_and(|l| l.hold().backing().is_ok());
    (facts.version() != now.version() && !in_use).then(|| "changed underneath".into())
}

/// Who may use a directory on a disk, and its other attributes there.
type Seen = Result<(Access, Xattrs), Errno>;

/// Whether others may use a directory on one of its disks than on another, or it has other attributes there.
fn unlike(store: &Store, path: &[u8], there: &[(Tier, Facts)]) -> Option<String> {
    let all: Vec<(Tier, Seen)> = there
        .iter()
        .map(|(t, facts)| {
            let xattrs = crate::disk::xattrs(store.root(*t), path);
            let seen = xattrs.map(|x| (Access::of(facts, &x), others(&x)));
            (*t, seen.map_err(|e| store.device_error(*t, path, e)))
        })
        .collect();
    let (first, seen) = all.first()?;
    let shown = |d: Tier| store.tier_name(d);
    let access = |seen: &Seen| seen.as_ref().map(|s| s.0.clone()).map_err(|e| *e);
    if let Some((other, _)) = all.iter().find(|other| access(&other.1) != access(seen)) {
        return Some(format!(
            "has another owner, mode or access list on {} than on {}: the strictest hold at the next mount, or with --repair",
            shown(*other),
            shown(*first)
        ));
    }
    let (other, _) = all.iter().find(|other| other.1 != *seen)?;
    Some(format!(
        "has other extended attributes on {} than on {}, whose are shown: --repair gives them to all disks",
        shown(*other),
        shown(*first)
    ))
}

/// Says which tiers are no longer found at their paths: another directory is there, or nothing. The mount goes on with the directories that
/// it opened, but whoever looks at the path, and the next mount, finds something else.
fn say_what_hides_tiers(store: &Store) {
    use std::os::unix::fs::MetadataExt;
    for root in store.roots.iter().filter(|r| !r.absent) {
        let open = rustix::fs::fstat(&root.fd)
            .map(|s| (s.st_dev, s.st_ino))
            .ok();
        let there = std::fs::metadata(&root.path)
            .map(|m| (m.dev(), m.ino()))
            .ok();
        if open.is_some() && open != there {
            let shown = root.path.display();
            store.say(&format!(
                "{shown}: this path does not lead to the tier any more (something was renamed or mounted there); the files of this mount are still in the directory that was there at its start"
            ));
        }
    }
}

/// Whether it is a removed file that is still open, under the name that the client of NFS gave it. The name goes by itself.
fn is_silly(store: &Store, path: &[u8], tier: Tier) -> bool {
    !store.root(tier).local && split(path).1.starts_with(SILLY)
}

/// The numbers of what is on the tiers and not in the catalogue; 0 for the other differences.
fn numbers(store: &Store, fresh: &Catalogue, todo: &[Difference]) -> Vec<u64> {
    let (mut all, mut found, mut at) = (vec![0; todo.len()], Vec::new(), Vec::new());
    for (i, (path, id, other)) in todo.iter().enumerate() {
        let Some(n) = other.and_then(|o| fresh.get(o)) else {
            continue;
        };
        let known = id.and_then(|id| store.cat().get(id).map(|k| (k.tier, k.facts.id)));
        if known != Some((n.tier, n.facts.id)) {
            found.push((n.tier, &path[..], n.facts));
            at.push(i);
        }
    }
    for (i, number) in at.into_iter().zip(store.names.found(&store.tiers, &found)) {
        all[i] = number;
    }
    all
}

fn mend(store: &Store, fresh: &Catalogue, todo: &[Difference]) {
    let numbers = numbers(store, fresh, todo);
    let mut cat = store.cat_mut();
    // Missing nodes are removed from the leaves upwards.
    for (path, id, _) in todo.iter().rev().filter(|t| t.2.is_none()) {
        let (dir, name) = split(path);
        if id.is_some()
            && let Some(dir) = cat.find(dir)
            && let Some(node) = cat.unlink(dir, name)
        {
            store.deleted(&mut cat, node);
        }
    }
    let (mut changed, mut dirs) = (Vec::new(), Vec::new());
    for ((path, id, other), number) in todo.iter().zip(numbers) {
        let Some(n) = other.and_then(|o| fresh.get(o)) else {
            continue;
        };
        let known = id.and_then(|id| cat.get(id));
        let same = known.is_some_and(|k| (k.tier, k.facts.id) == (n.tier, n.facts.id));
        // The other names of a file are not those of what is at this one now.
        let alone = known.is_some_and(|k| k.kind == n.kind && (same || k.links() == 1));
        if let Some(id) = id.filter(|_| alone) {
            let former = cat.shown_number(id);
            cat.replace(id, n.tier, n.facts.id);
            cat.set_facts(id, &n.facts);
            if n.kind == Kind::Dir {
                cat.set_xattrs(id, other.map_or(&[][..], |o| fresh.xattrs(o)).to_vec());
                dirs.push(id);
            }
            if !same && n.kind != Kind::Dir {
                cat.set_lasting(id, number);
            }
            changed.push((id, former));
            continue;
        }
        let (dir, name) = split(path);
        let Some(dir) = cat.find(dir) else { continue };
        if let Some(old) = cat.unlink(dir, name) {
            store.deleted(&mut cat, old);
        }
        // Its children are added after it, because they follow in the order of paths.
        if let Some(new) = cat.add(dir, name, n.tier, n.facts, n.body(n.on())) {
            let xattrs = other.map_or_else(Vec::new, |o| fresh.xattrs(o).to_vec());
            cat.set_xattrs(new, xattrs);
            cat.set_lasting(new, number);
            let dir = cat.shown_number(dir);
            store.open.tell_kernel_of_name(dir, name);
        }
    }
    drop(cat);
    for id in dirs {
        store.say(&store.make_alike(id));
        if let Err(e) = store.same_xattrs(id) {
            let path = store.cat().shown_path(id);
            store.say(&format!(
                "{path}: its extended attributes could not be made alike on all disks: {e}"
            ));
        }
    }
    for (id, former) in changed {
        // Another thread may be reading the copy at this moment.
        store.drop_copy(id);
        store.open.tell_kernel_of_data(former);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::IfPresent;
    use serde_json::json;

    /// A check stops nobody: it ends while a change is in progress, which it would have to wait for. A repair that finds nothing does not
    /// wait either.
    #[test]
    fn a_check_waits_for_no_change_and_stops_none() {
        let dir = tempfile::tempdir().unwrap();
        let (store, _, live) = crate::store::with_a_file(dir.path());
        store.release(&live);
        let (tell, hear) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let claim = store.names.claim(|cat, all| all.name(cat, ROOT, b"new"));
            let store = &store;
            scope.spawn(move || {
                for repair in [false, true] {
                    tell.send(check(store, repair)["ok"] == json!(true))
                        .unwrap();
                }
            });
            let said = [(); 2].map(|()| hear.recv_timeout(Duration::from_secs(60)));
            drop(claim);
            assert_eq!(said, [Ok(true), Ok(true)]);
        });
    }

    /// What changes through the mount during a check is no finding; what others do is one, also then.
    #[test]
    fn a_check_during_changes_finds_only_what_others_did() {
        let dir = tempfile::tempdir().unwrap();
        let (store, node, live) = crate::store::with_a_file(dir.path());
        store.release(&live);
        std::fs::write(dir.path().join("slow/underneath"), "x").unwrap();
        let stop = std::sync::atomic::AtomicBool::new(false);
        let order = std::sync::atomic::Ordering::SeqCst;
        std::thread::scope(|scope| {
            let (store, stop) = (&store, &stop);
            let changes = scope.spawn(move || {
                let mut n = 0;
                while !stop.load(order) {
                    n += 1;
                    let name = format!("n{}", n % 7);
                    let (new, live, _) = store
                        .create(0, name.as_bytes(), 0o600, crate::store::me())
                        .unwrap();
                    store.write(&live, 0, b"text", false).unwrap();
                    store.release(&live);
                    store.move_file(new, 1);
                    store.move_file(node, (n % 2) as Tier);
                    let dir = store.mkdir(0, b"dir", 0o700, crate::store::me()).unwrap();
                    store
                        .rename((0, name.as_bytes()), (dir, b"f"), IfPresent::Refuse)
                        .unwrap();
                    store.unlink(dir, b"f").unwrap();
                    store.rmdir(0, b"dir").unwrap();
                }
                n
            });
            for _ in 0..40 {
                let found = check(store, false);
                assert_eq!(found["findings"], json!(["underneath: made underneath"]));
            }
            stop.store(true, order);
            assert!(changes.join().unwrap() > 0);
        });
        assert_eq!(check(&store, true)["repaired"], true);
        assert_eq!(check(&store, false)["ok"], true);
    }
}
