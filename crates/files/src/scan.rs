//! Reads the contents of the tiers, once at mount.

use crate::catalogue::{Body, Catalogue, NodeId, ROOT, SlotId};
use crate::dir_readers::{DirEntry, DirReaders, Job};
use crate::disk::{Root, xattrs};
use crate::store::{Refused, refuse};
use crate::tree::{DIR, Facts, LNK, REG, TYPE, Tier};
use rustix::io::Errno;
use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;

/// Number of clashes that are named; further ones are only counted.
const SHOWN: usize = 10;
/// Number of directories (or parts of large ones) that are read ahead of the one whose result is taken.
const AHEAD: usize = 64;

/// The kind of a node with these attributes.
///
/// # Errors
/// A link cannot be read.
pub(crate) fn body_of(root: &Root, path: &[u8], facts: &Facts, tier: Tier) -> Result<Body, Errno> {
    Ok(match facts.mode & TYPE {
        DIR => Body::Dir(1 << tier),
        REG => Body::File,
        LNK => {
            let target = rustix::fs::readlinkat(root.entry(path)?, c"", Vec::new())?;
            Body::Link(target.into_bytes().into())
        }
        _ => Body::Special,
    })
}

struct Scan<'a> {
    roots: &'a [Root],
    cat: Catalogue,
    links: HashMap<(Tier, u64), NodeId>,
    /// New names of directories that are being read.
    new: HashMap<NodeId, Vec<SlotId>>,
    clashes: Vec<String>,
}

/// Reads all tiers, which nobody changes meanwhile.
///
/// # Errors
/// A message in words: names clash, another file system is mounted below a tier, or a device fails.
pub fn scan(roots: &[Root]) -> Result<Catalogue, Refused> {
    let (cat, mut clashes) = read(roots)?;
    if clashes.is_empty() {
        return Ok(cat);
    }
    let more = clashes.len().saturating_sub(SHOWN);
    clashes.truncate(SHOWN);
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    refuse(format!(
        "names are taken on two tiers: {}{more}: rename or remove one of each",
        clashes.join("; ")
    ))
}

/// Reads all tiers. Returns also the names that are on two tiers, in words; only the first of each is in the catalogue.
///
/// # Errors
/// A message in words: another file system is mounted below a tier, or a device fails.
pub(crate) fn read(roots: &[Root]) -> Result<(Catalogue, Vec<String>), Refused> {
    let first = roots[0].stat(b".").ok().flatten().unwrap_or_default();
    let mut scan = Scan {
        roots,
        cat: Catalogue::new(first, (1 << roots.len()) - 1),
        links: HashMap::new(),
        new: HashMap::new(),
        clashes: Vec::new(),
    };
    let present = |t: &Tier| !roots[usize::from(*t)].absent;
    for tier in (0..roots.len() as Tier).filter(present) {
        scan.tier(tier)?;
    }
    Ok((scan.cat, scan.clashes))
}

impl Scan<'_> {
    fn tier(&mut self, tier: Tier) -> Result<(), Refused> {
        let root = &self.roots[usize::from(tier)];
        let failed = |path: &[u8], e: Errno| {
            let shown = String::from_utf8_lossy(path).into_owned();
            Refused(format!("{}/{shown}: cannot read: {e}", root.path.display()))
        };
        if let Ok(x) = xattrs(root, b".")
            && self.cat.xattrs(ROOT).is_empty()
        {
            self.cat.set_xattrs(ROOT, x);
        }
        let requests = Mutex::new(None);
        std::thread::scope(|scope| {
            let readers = DirReaders::start(scope, root, &requests)?;
            let mut todo = vec![(ROOT, Job::Dir(b".".to_vec()))];
            let mut asked = VecDeque::new();
            loop {
                while asked.len() < AHEAD
                    && let Some((node, job)) = todo.pop()
                {
                    asked.push_back((node, readers.ask(job)));
                }
                let Some((node, answer)) = asked.pop_front() else {
                    return Ok(());
                };
                let (entries, rest) = answer.wait().map_err(|f| failed(&f.0, f.1))?;
                let whole = rest.is_none();
                todo.extend(rest.map(|rest| (node, rest)));
                let mut new = self.new.remove(&node).unwrap_or_default();
                for entry in entries {
                    if entry.facts.dev != root.dev {
                        return refuse(format!(
                            "{}/{}: another file system is mounted there: give it as a tier of its own, or unmount it",
                            root.path.display(),
                            self.cat.shown(node, &entry.name)
                        ));
                    }
                    if let Some(dir) = self.entry(tier, node, entry, &mut new) {
                        todo.push(dir);
                    }
                }
                if whole {
                    self.cat.list_all(node, new);
                } else {
                    self.new.insert(node, new);
                }
            }
        })
    }
    /// Adds a name that was found. If it is a directory, returns the job that reads it.
    fn entry(
        &mut self,
        tier: Tier,
        dir: NodeId,
        entry: DirEntry,
        new: &mut Vec<SlotId>,
    ) -> Option<(NodeId, Job)> {
        let facts = entry.facts;
        let root = &self.roots[usize::from(tier)];
        let is_dir = facts.mode & TYPE == DIR;
        // Only another tier can have the name.
        if tier > 0
            && let Some(there) = self.cat.child(dir, &entry.name)
        {
            let other = self.cat.get(there);
            if is_dir && other.is_some_and(|n| n.dir().is_some()) {
                self.cat.now_on(there, tier);
                return Some((there, Job::Dir(entry.path)));
            }
            let first = other.map_or(0, |n| usize::from(n.tier));
            self.clashes.push(format!(
                "{} (on {} and {})",
                self.cat.shown(dir, &entry.name),
                self.roots[first].path.display(),
                root.path.display()
            ));
            return None;
        }
        if !is_dir && facts.nlink > 1 {
            let key = (tier, facts.id.ino);
            if let Some(&same) = self.links.get(&key) {
                new.extend(self.cat.link_unlisted(same, dir, &entry.name));
                self.cat.name_found(same);
                return None;
            }
        }
        let body = match facts.mode & TYPE {
            DIR => Body::Dir(1 << tier),
            REG => Body::File,
            LNK => Body::Link(entry.target),
            _ => Body::Special,
        };
        let node = self.cat.add_unlisted(dir, &entry.name, tier, facts, body)?;
        new.push(node as SlotId);
        if !is_dir && facts.nlink > 1 {
            self.links.insert((tier, facts.id.ino), node);
        }
        self.cat.set_xattrs(node, entry.xattrs);
        is_dir.then(|| (node, Job::Dir(entry.path)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A directory with more names than one job reads, and a deep and wide tree, are read completely, in the same order each time.
    #[test]
    fn large_directories_are_read_whole() {
        let dir = tempfile::tempdir().unwrap();
        for d in ["a", "a/b", "a/b/c"] {
            fs::create_dir(dir.path().join(d)).unwrap();
        }
        for n in 0..1100 {
            fs::write(dir.path().join(format!("a/b/{n}")), "").unwrap();
        }
        for n in 0..100 {
            fs::create_dir(dir.path().join(format!("a/d{n}"))).unwrap();
            fs::write(dir.path().join(format!("a/d{n}/f")), "x").unwrap();
        }
        std::os::unix::fs::symlink("b/7", dir.path().join("a/link")).unwrap();
        fs::hard_link(dir.path().join("a/b/9"), dir.path().join("a/b/c/9")).unwrap();
        let read = || scan(&[Root::open(dir.path()).unwrap()]).unwrap();
        let (cat, again) = (read(), read());
        assert_eq!(cat.files(), 1200);
        for n in 0..1100 {
            let path = format!("a/b/{n}").into_bytes();
            let node = cat.find(&path).unwrap();
            assert_eq!(again.find(&path), Some(node));
        }
        let link = cat.get(cat.find(b"a/link").unwrap()).unwrap();
        assert_eq!(link.target(), Some(&b"b/7"[..]));
        assert_eq!(cat.find(b"a/b/9"), cat.find(b"a/b/c/9"));
        assert_eq!(
            cat.get(cat.find(b"a/d99/f").unwrap()).unwrap().facts.size,
            1
        );
    }
}
