//! What lies on the tiers, read once at mount.

use crate::catalogue::{Body, Catalogue, Dir, NodeId, ROOT};
use crate::disk::{Root, is_hidden, xattrs};
use crate::store::{Refused, refuse};
use crate::tree::{Facts, Tier, join};
use rustix::io::Errno;
use std::collections::HashMap;

/// Clashes that are named before the rest is only counted.
const SHOWN: usize = 10;

/// Type bits of a mode.
pub(crate) const TYPE: u32 = 0o170_000;
/// A directory.
pub(crate) const DIR: u32 = 0o040_000;
/// A regular file.
pub(crate) const REG: u32 = 0o100_000;
/// A symbolic link.
pub(crate) const LNK: u32 = 0o120_000;

/// What a node with these attributes is.
///
/// # Errors
/// A link that cannot be read.
pub(crate) fn body_of(root: &Root, path: &[u8], facts: &Facts, tier: Tier) -> Result<Body, Errno> {
    Ok(match facts.mode & TYPE {
        DIR => Body::Dir(Box::new(Dir {
            on: 1 << tier,
            ..Dir::default()
        })),
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

/// Read all tiers.
///
/// # Errors
/// In words: names clash, another file system is mounted below a tier, or a device fails.
pub fn scan(roots: &[Root]) -> Result<Catalogue, Refused> {
    let first = roots[0].stat(b".").ok().flatten().unwrap_or_default();
    let mut scan = Scan {
        roots,
        cat: Catalogue::new(first, (1 << roots.len()) - 1),
        links: HashMap::new(),
        clashes: Vec::new(),
    };
    for tier in 0..roots.len() as Tier {
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
            let entries = rustix::fs::Dir::new(dir).map_err(|e| failed(&path, e))?;
            for entry in entries {
                let entry = entry.map_err(|e| failed(&path, e))?;
                let name = entry.file_name().to_bytes();
                if matches!(name, b"." | b"..") {
                    continue;
                }
                let below = join(&path, name);
                if is_hidden(&below) {
                    continue;
                }
                let Some(facts) = root.stat(&below).map_err(|e| failed(&below, e))? else {
                    continue;
                };
                if facts.dev != root.dev {
                    return refuse(format!(
                        "{}/{}: another file system is mounted there: give it as a tier of its own, or unmount it",
                        root.path.display(),
                        String::from_utf8_lossy(&below)
                    ));
                }
                let found = self.entry(tier, node, name, &below, facts);
                if let Some(child) = found.map_err(|e| failed(&below, e))? {
                    todo.push((child, below));
                }
            }
        }
        Ok(())
    }
    /// The node to go on with, if it is a directory.
    fn entry(
        &mut self,
        tier: Tier,
        dir: NodeId,
        name: &[u8],
        path: &[u8],
        facts: Facts,
    ) -> Result<Option<NodeId>, Errno> {
        let root = &self.roots[usize::from(tier)];
        let is_dir = facts.mode & TYPE == DIR;
        if let Some(there) = self.cat.child(dir, name) {
            let other = self.cat.get(there);
            if is_dir && other.is_some_and(|n| n.dir().is_some()) {
                self.cat.now_on(there, tier);
                return Ok(Some(there));
            }
            let first = other.map_or(0, |n| usize::from(n.tier));
            self.clashes.push(format!(
                "{} (on {} and {})",
                String::from_utf8_lossy(path),
                self.roots[first].path.display(),
                root.path.display()
            ));
            return Ok(None);
        }
        if !is_dir && facts.nlink > 1 {
            let key = (tier, facts.id.ino);
            if let Some(&same) = self.links.get(&key) {
                self.cat.link(same, dir, name);
                return Ok(None);
            }
        }
        let body = body_of(root, path, &facts, tier)?;
        let Some(node) = self.cat.add(dir, name, tier, facts, body) else {
            return Ok(None);
        };
        if !is_dir && facts.nlink > 1 {
            self.links.insert((tier, facts.id.ino), node);
        }
        let x = xattrs(root, path)?;
        if !x.is_empty() {
            self.cat.set_xattrs(node, x);
        }
        Ok(is_dir.then_some(node))
    }
}
