//! Checks that the catalogue agrees with the tiers.

use crate::catalogue::{Body, Catalogue, Kind, NodeId, ROOT};
use crate::claims::Key;
use crate::scan::scan;
use crate::store::Store;
use crate::tree::SILLY;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const LIST_MAX: usize = 200;

fn paths(cat: &Catalogue) -> BTreeMap<Vec<u8>, NodeId> {
    let all = cat
        .all()
        .flat_map(|(id, _)| cat.paths(id).into_iter().map(move |p| (p, id)));
    all.collect()
}

/// Reads the tiers again and compares. With `repair`, the catalogue shows what is on the tiers from now on. No name changes during the
/// check.
pub fn check(store: &Store, repair: bool) -> Value {
    let _all = store.claim_anyway(|_, all| all.alone(Key::Path(ROOT)));
    say_what_hides_tiers(store);
    let fresh = match scan(&store.roots) {
        Ok(fresh) => fresh,
        Err(e) => {
            return json!({"ok": false, "files": store.cat().files(), "findings": [e.0], "more": 0, "repaired": false});
        }
    };
    let mut findings = Vec::new();
    let (ours, theirs) = (paths(&store.cat()), paths(&fresh));
    let text = |p: &[u8]| String::from_utf8_lossy(p).into_owned();
    let mut todo: Vec<(Vec<u8>, Option<NodeId>, Option<NodeId>)> = Vec::new();
    let absent = |id| {
        store
            .cat()
            .get(id)
            .is_some_and(|n| store.present(n.on()) == 0)
    };
    for (path, id) in ours.iter().filter(|o| !absent(*o.1)) {
        match theirs.get(path) {
            None => {
                findings.push(format!("{}: taken away underneath", text(path)));
                todo.push((path.clone(), Some(*id), None));
            }
            Some(other) => {
                if let Some(what) = differs(store, *id, &fresh, *other) {
                    findings.push(format!("{}: {what}", text(path)));
                    todo.push((path.clone(), Some(*id), Some(*other)));
                }
            }
        }
    }
    let new = theirs.iter().filter(|t| !ours.contains_key(t.0));
    for (path, id) in new.filter(|t| !is_silly(store, &fresh, t.0, *t.1)) {
        findings.push(format!("{}: made underneath", text(path)));
        todo.push((path.clone(), None, Some(*id)));
    }
    let ok = findings.is_empty();
    let more = findings.len().saturating_sub(LIST_MAX);
    findings.truncate(LIST_MAX);
    if repair {
        mend(store, &fresh, &todo);
    }
    json!({"ok": ok, "files": store.cat().files(), "findings": findings, "more": more, "repaired": repair && !ok})
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

fn differs(store: &Store, id: NodeId, fresh: &Catalogue, other: NodeId) -> Option<&'static str> {
    let cat = store.cat();
    let (a, b) = (cat.get(id)?, fresh.get(other)?);
    if a.kind != b.kind {
        return Some("is something else underneath");
    }
    if a.dir().is_some() {
        return None;
    }
    if a.tier != b.tier {
        return Some("lies on another tier");
    }
    if a.facts.id != b.facts.id {
        return Some("replaced underneath");
    }
    // The attributes of an open file come from its descriptor, unless only its copy is open.
    let live = store.lives.get(id);
    let in_use = live.is_some_and(|l| l.hold().backing().is_ok());
    ((a.facts.size, a.facts.mtime) != (b.facts.size, b.facts.mtime) && !in_use)
        .then_some("changed underneath")
}

/// Whether it is a removed file that is still open, under the name that the client of NFS gave it. The name goes by itself.
fn is_silly(store: &Store, fresh: &Catalogue, path: &[u8], id: NodeId) -> bool {
    let tier = fresh.get(id).map(|n| usize::from(n.tier));
    let local = tier
        .and_then(|t| store.roots.get(t))
        .is_none_or(|r| r.local);
    !local && split(path).1.starts_with(SILLY)
}

fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let at = path.iter().rposition(|b| *b == b'/');
    at.map_or((&b"."[..], path), |at| (&path[..at], &path[at + 1..]))
}

fn mend(store: &Store, fresh: &Catalogue, todo: &[(Vec<u8>, Option<NodeId>, Option<NodeId>)]) {
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
    let mut changed = Vec::new();
    for (path, id, other) in todo {
        let Some(n) = other.and_then(|o| fresh.get(o)) else {
            continue;
        };
        let known = id.and_then(|id| cat.get(id)).map(|k| k.kind);
        if let Some(id) = id
            && known == Some(n.kind)
        {
            cat.replace(*id, n.tier, n.facts.id);
            cat.set_facts(*id, &n.facts);
            changed.push(*id);
            continue;
        }
        let (dir, name) = split(path);
        let Some(dir) = cat.find(dir) else { continue };
        if let Some(old) = cat.unlink(dir, name) {
            store.deleted(&mut cat, old);
        }
        // Its children are added after it, because they follow in the order of paths.
        let body = match n.kind {
            Kind::Dir => Body::Dir(n.on()),
            Kind::Link => Body::Link(n.target().unwrap_or_default().into()),
            Kind::File => Body::File,
            Kind::Special | Kind::Alias | Kind::Free => Body::Special,
        };
        if let Some(new) = cat.add(dir, name, n.tier, n.facts, body) {
            let xattrs = other.map_or_else(Vec::new, |o| fresh.xattrs(o).to_vec());
            cat.set_xattrs(new, xattrs);
            store.tell_kernel_of_name(dir, name);
        }
    }
    drop(cat);
    for id in changed {
        // Another thread may be reading the copy at this moment.
        store.drop_copy(id);
        store.tell_kernel_of_data(id);
    }
}
