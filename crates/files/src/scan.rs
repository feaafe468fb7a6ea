//! Reads the contents of the tiers, once at mount.

use crate::catalogue::{Body, Catalogue, NodeId, ROOT};
use crate::disk::{Beside, Root, is_hidden, xattrs};
use crate::store::{Refused, refuse};
use crate::tree::{Facts, Tier, join};
use rustix::io::Errno;
use std::collections::HashMap;

/// Number of clashes that are named; further ones are only counted.
const SHOWN: usize = 10;

/// Type bits of a mode.
pub(crate) const TYPE: u32 = 0o170_000;
/// A directory.
pub(crate) const DIR: u32 = 0o040_000;
/// A regular file.
pub(crate) const REG: u32 = 0o100_000;
/// A symbolic link.
pub(crate) const LNK: u32 = 0o120_000;

/// The kind of a node with these attributes.
///
/// # Errors
/// A link cannot be read.
pub(crate) fn body_of(root: &Root, path: &[u8], facts: &Facts, tier: Tier) -> Result<Body, Errno> {
    Ok(match facts.mode & TYPE {
        DIR => Body::Dir(1 << tier),
        REG => Body::File,
        LNK => {
            let target = rustix::fs::readlinkat(&root.fd, path, Vec::new())?;
            Body::Link(target.into_bytes().into())
        }
        _ => Body::Special,
    })
}

struct Scan<'a> {
    roots: &'a [Root],
    cat: Catalogue,
    links: HashMap<(Tier, u64), NodeId>,
    clashes: Vec<String>,
}

/// The result for a name.
#[derive(Default)]
struct Found {
    /// A directory that is to be read next.
    dir: Option<NodeId>,
    /// A node that was not known.
    new: Option<NodeId>,
}

/// Reads all tiers.
///
/// # Errors
/// A message in words: names clash, another file system is mounted below a tier, or a device fails.
pub fn scan(roots: &[Root]) -> Result<Catalogue, Refused> {
    let first = roots[0].stat(b".").ok().flatten().unwrap_or_default();
    let mut scan = Scan {
        roots,
        cat: Catalogue::new(first, (1 << roots.len()) - 1),
        links: HashMap::new(),
        clashes: Vec::new(),
    };
    let present = |t: &Tier| !roots[usize::from(*t)].absent;
    for tier in (0..roots.len() as Tier).filter(present) {
        scan.tier(tier)?;
    }
    if !scan.clashes.is_empty() {
        let more = scan.clashes.len().saturating_sub(SHOWN);
        scan.clashes.truncate(SHOWN);
        let more = if more > 0 {
            format!(" and {more} more")
        } else {
            String::new()
        };
        return refuse(format!(
            "names are taken on two tiers: {}{more}: rename or remove one of each",
            scan.clashes.join("; ")
        ));
    }
    Ok(scan.cat)
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
        let mut todo = vec![(ROOT, b".".to_vec())];
        while let Some((node, path)) = todo.pop() {
            let dir = root.directory(&path).map_err(|e| failed(&path, e))?;
            let mut entries = Vec::new();
            let read = rustix::fs::Dir::read_from(&dir).map_err(|e| failed(&path, e))?;
            for entry in read {
                let entry = entry.map_err(|e| failed(&path, e))?;
                if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
                    entries.push((entry.ino(), entry.file_name().to_owned()));
                }
            }
            // In the order of inode numbers, which on most file systems is the order on the disk.
            entries.sort_unstable_by_key(|e| e.0);
            let here = Beside::new(&dir);
            for (_, name) in entries {
                let below = join(&path, name.to_bytes());
                if is_hidden(&below) {
                    continue;
                }
                let facts = here.stat(&name).map_err(|e| failed(&below, e))?;
                let Some(facts) = facts else { continue };
                if facts.dev != root.dev {
                    return refuse(format!(
                        "{}/{}: another file system is mounted there: give it as a tier of its own, or unmount it",
                        root.path.display(),
                        String::from_utf8_lossy(&below)
                    ));
                }
                let found = self.entry(tier, node, name.to_bytes(), &below, facts);
                let found = found.map_err(|e| failed(&below, e))?;
                if let Some(new) = found.new
                    && here.has_xattrs(&name).map_err(|e| failed(&below, e))?
                {
                    let all = xattrs(root, &below).map_err(|e| failed(&below, e))?;
                    self.cat.set_xattrs(new, all);
                }
                if let Some(child) = found.dir {
                    todo.push((child, below));
                }
            }
        }
        Ok(())
    }
    /// Handles one name.
    fn entry(
        &mut self,
        tier: Tier,
        dir: NodeId,
        name: &[u8],
        path: &[u8],
        facts: Facts,
    ) -> Result<Found, Errno> {
        let root = &self.roots[usize::from(tier)];
        let is_dir = facts.mode & TYPE == DIR;
        if let Some(there) = self.cat.child(dir, name) {
            let other = self.cat.get(there);
            if is_dir && other.is_some_and(|n| n.dir().is_some()) {
                self.cat.now_on(there, tier);
                return Ok(Found {
                    dir: Some(there),
                    new: None,
                });
            }
            let first = other.map_or(0, |n| usize::from(n.tier));
            self.clashes.push(format!(
                "{} (on {} and {})",
                String::from_utf8_lossy(path),
                self.roots[first].path.display(),
                root.path.display()
            ));
            return Ok(Found::default());
        }
        if !is_dir && facts.nlink > 1 {
            let key = (tier, facts.id.ino);
            if let Some(&same) = self.links.get(&key) {
                self.cat.link(same, dir, name);
                self.cat.met(same);
                return Ok(Found::default());
            }
        }
        let body = body_of(root, path, &facts, tier)?;
        let Some(node) = self.cat.add(dir, name, tier, facts, body) else {
            return Ok(Found::default());
        };
        if !is_dir && facts.nlink > 1 {
            self.links.insert((tier, facts.id.ino), node);
        }
        Ok(Found {
            dir: is_dir.then_some(node),
            new: Some(node),
        })
    }
}
