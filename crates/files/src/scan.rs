//! Reads the contents of the tiers, once at mount.

use crate::access::{Access, others};
use crate::catalogue::{Body, Catalogue, NodeId, ROOT, SlotId};
use crate::dir_readers::{DirEntry, DirReaders, Job};
use crate::disk::{Root, decode, xattrs};
use crate::lasting::{Further, Table};
use crate::layout::DISKS_MAX;
use crate::settings::{Refused, refuse};
use crate::tree::{DIR, Facts, HIDDEN, LNK, REG, TYPE, Tier};
use rustix::io::Errno;
use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::sync::Mutex;

/// Number of clashes, or of directories that are not alike, that are named; further ones are only counted.
pub(crate) const SHOWN: usize = 10;
/// Number of directories (or parts of large ones) that are read ahead of the one whose result is taken.
const AHEAD: usize = 64;

/// The kind of a node with these attributes; `target` is read if it is a symbolic link.
pub(crate) fn body_of<E>(
    facts: &Facts,
    tier: Tier,
    target: impl FnOnce() -> Result<Box<[u8]>, E>,
) -> Result<Body, E> {
    Ok(match facts.mode & TYPE {
        DIR => Body::Dir(1 << tier),
        REG => Body::File,
        LNK => Body::Link(target()?),
        _ => Body::Special,
    })
}

struct Scan<'a> {
    roots: &'a [&'a Root],
    cat: Catalogue,
    links: HashMap<(Tier, u64), NodeId>,
    /// New names of directories that are being read.
    new: HashMap<NodeId, Vec<SlotId>>,
    /// Paths that two tiers have and only one can have, with these.
    clashes: Vec<(Vec<u8>, [Tier; 2])>,
    /// Directories that others may use on one disk than on another; without numbers (a check), also those with other attributes.
    unlike: Vec<NodeId>,
    /// The known numbers of files; `None` if the caller does not need numbers.
    numbers: Option<&'a Table>,
    /// Directories on further tiers whose number there is not known yet.
    further: Vec<Further>,
}

/// What a mount reads.
pub(crate) struct Found {
    pub(crate) cat: Catalogue,
    /// The directories of further tiers that have no number.
    pub(crate) further: Vec<Further>,
    /// Directories of which owner, mode or access lists differ from disk to disk. The catalogue has the strictest.
    pub(crate) unlike: Vec<NodeId>,
}

/// Reads all tiers, which nobody changes meanwhile. The numbers of files are those of the table, or else of their attributes.
///
/// # Errors
/// A message in words: names clash, another file system is mounted below a tier, or a device fails.
pub(crate) fn scan(roots: &[&Root], numbers: &Table) -> Result<Found, Refused> {
    let scan = read_all(roots, Some(numbers), &|| false)?;
    if scan.clashes.is_empty() {
        return Ok(Found {
            cat: scan.cat,
            further: scan.further,
            unlike: scan.unlike,
        });
    }
    let shown = |disk: Tier| roots[usize::from(disk)].path.display();
    let clashes = scan.clashes.iter().map(|(path, [a, b])| {
        let path = String::from_utf8_lossy(path);
        format!("{path} (on {} and {})", shown(*a), shown(*b))
    });
    Err(clash(clashes.collect()))
}

/// The refusal of names that two disks have: each with these disks, in words.
pub(crate) fn clash(mut clashes: Vec<String>) -> Refused {
    let more = clashes.len().saturating_sub(SHOWN);
    clashes.truncate(SHOWN);
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    Refused(format!(
        "names are taken on two tiers: {}{more}: rename or remove one of each",
        clashes.join("; ")
    ))
}

/// Reads all tiers, without numbers. Of names that are on two tiers, only the first is in the catalogue. Returns also the paths that are not
/// the same on all disks that have them: these, and directories of which owner, mode, access lists or other attributes
/// differ.
///
/// # Errors
/// A message in words: another file system is mounted below a tier, or a device fails.
pub(crate) fn read(roots: &[&Root]) -> Result<(Catalogue, Vec<Vec<u8>>), Refused> {
    let scan = read_all(roots, None, &|| false)?;
    let clashes = scan.clashes.into_iter().map(|c| c.0);
    let unlike = scan.unlike.iter().filter_map(|n| scan.cat.path(*n));
    let differing = clashes.chain(unlike).collect();
    Ok((scan.cat, differing))
}

/// Reads one disk that no table knows, with the numbers that its files have as attributes.
///
/// # Errors
/// As for [`read`]; or it was `stopped`.
pub(crate) fn read_new(root: &Root, stopped: &dyn Fn() -> bool) -> Result<Catalogue, Refused> {
    let (roots, table) = ([root], Table::default());
    read_all(&roots, Some(&table), stopped).map(|scan| scan.cat)
}

fn read_all<'a>(
    roots: &'a [&'a Root],
    numbers: Option<&'a Table>,
    stopped: &dyn Fn() -> bool,
) -> Result<Scan<'a>, Refused> {
    let first = roots[0].stat(b".").ok().flatten().unwrap_or_default();
    let mut scan = Scan {
        roots,
        cat: Catalogue::new(first, u16::MAX >> (DISKS_MAX - roots.len())),
        links: HashMap::new(),
        new: HashMap::new(),
        clashes: Vec::new(),
        unlike: Vec::new(),
        numbers,
        further: Vec::new(),
    };
    let present = |t: &Tier| !roots[usize::from(*t)].absent;
    for tier in (0..roots.len() as Tier).filter(present) {
        scan.tier(tier, stopped)?;
    }
    scan.unlike.sort_unstable();
    scan.unlike.dedup();
    Ok(scan)
}

impl Scan<'_> {
    fn tier(&mut self, tier: Tier, stopped: &dyn Fn() -> bool) -> Result<(), Refused> {
        let root = self.roots[usize::from(tier)];
        let failed = |path: &[u8], e: Errno| {
            let shown = String::from_utf8_lossy(path).into_owned();
            Refused(format!("{}/{shown}: cannot read: {e}", root.path.display()))
        };
        // The root of the tree is as that of the fastest tier.
        if tier == 0
            && let Ok(x) = xattrs(root, b".")
        {
            self.cat.set_xattrs(ROOT, x);
        }
        let requests = Mutex::new(None);
        let numbers = self.numbers.map(|table| (table, tier));
        std::thread::scope(|scope| {
            let readers = DirReaders::start(scope, root, numbers, &requests)?;
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
                if stopped() {
                    return refuse(format!(
                        "{}: is not read to its end: stopped",
                        root.path.display()
                    ));
                }
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
                    if entry.name == HIDDEN && self.numbers.is_some() {
                        self.must_not_be_served(root, node)?;
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
    /// Refuses a directory that is a tier of another mount, which serves it.
    fn must_not_be_served(&self, root: &Root, dir: NodeId) -> Result<(), Refused> {
        use std::os::unix::ffi::OsStrExt;
        let below = self.cat.path(dir).unwrap_or_default();
        let path = root.path.join(std::ffi::OsStr::from_bytes(&below));
        if !crate::tiers::is_served(&path) {
            return Ok(());
        }
        refuse(format!(
            "{}: the tier {} lies in it, which is served: two servers would move the same files; name a directory that it does not lie in",
            root.path.display(),
            path.display()
        ))
    }
    /// Adds a name that was found. If it is a directory, returns the job that reads it.
    fn entry(
        &mut self,
        tier: Tier,
        dir: NodeId,
        entry: DirEntry,
        new: &mut Vec<SlotId>,
    ) -> Option<(NodeId, Job)> {
        let mut facts = entry.facts;
        let moved = (self.numbers).and_then(|t| t.shown_ctime(tier, facts.id, facts.ctime));
        facts.ctime = moved.unwrap_or(facts.ctime);
        let own = || entry.mark.and_then(|mark| decode(mark, facts.id));
        let number = entry.number.or_else(own).unwrap_or(0);
        let is_dir = facts.mode & TYPE == DIR;
        // Only another tier can have the name.
        if tier > 0
            && let Some(there) = self.cat.child(dir, &entry.name)
        {
            let other = self.cat.get(there);
            if is_dir && other.is_some_and(|n| n.dir().is_some()) {
                self.cat.now_on(there, tier);
                self.allow_least(there, &Access::of(&facts, &entry.xattrs));
                if self.numbers.is_none() && others(self.cat.xattrs(there)) != others(&entry.xattrs)
                {
                    self.unlike.push(there);
                }
                if self.cat.lasting(there) == 0 {
                    self.cat.set_lasting(there, number);
                }
                if number == 0 && self.numbers.is_some() {
                    self.further.push((tier, facts.id, there));
                }
                return Some((there, Job::Dir(entry.path)));
            }
            let first = other.map_or(0, |n| n.tier);
            let path = self.cat.path_in(dir, &entry.name);
            self.clashes.push((path.unwrap_or_default(), [first, tier]));
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
        let Ok(body) = body_of(&facts, tier, || Ok::<_, Infallible>(entry.target));
        let node = self.cat.add_unlisted(dir, &entry.name, tier, facts, body)?;
        new.push(node as SlotId);
        self.cat.set_lasting(node, number);
        if !is_dir && facts.nlink > 1 {
            self.links.insert((tier, facts.id.ino), node);
        }
        self.cat.set_xattrs(node, entry.xattrs);
        is_dir.then(|| (node, Job::Dir(entry.path)))
    }
    /// A directory was found on a further disk: nobody may do more in it than there.
    fn allow_least(&mut self, dir: NodeId, there: &Access) {
        let known = Access::known(&self.cat, dir).filter(|known| known != there);
        let Some(known) = known else { return };
        known.strictest(there).enter(&mut self.cat, dir);
        self.unlike.push(dir);
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
        let read = || super::read(&[&Root::open(dir.path()).unwrap()]).unwrap().0;
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
