//! Names and attributes of the slower tiers, saved on the fastest tier, so that the contents of a tier are known when it is absent at
//! mount.
//!
//! They are written at the first mount, at unmount, half a minute after a mount, and every ten minutes after changes. So while a tier is absent, names that
//! were created shortly before a crash may be missing, and names that were removed may still be shown. When the tier is present, it is read
//! itself.
//!
//! Access lists are not saved: they can refuse somebody what the mode allows, so what has one is saved as its owner's alone.

use super::Names;
use crate::access::ACLS;
use crate::catalogue::{Body, Catalogue, Kind, Listing, Node, NodeId, ROOT};
use crate::disk::{NewFile, Roots, write_all};
use crate::settings::{Refused, refuse};
use crate::tiers::Tiers;
use crate::tree::{Facts, Id, Tier, Time, split, wall};
use crate::wire::{Bytes, put};
use isotherm_core::crc32c::{crc32c, update};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::collections::HashMap;

const HEAD: &[u8] = b"isotherm names 2\n";
/// The former format, in which no entry has a lasting number.
const HEAD_1: &[u8] = b"isotherm names 1\n";
/// Bytes that are encoded at a time, so that the memory does not grow with the number of files.
const PIECE: usize = 1 << 20;

/// Name of the file in `.isotherm`.
fn name(tier: Tier) -> Vec<u8> {
    format!("names.{tier}").into_bytes()
}

fn file(tier: Tier) -> Vec<u8> {
    [b".isotherm/", &name(tier)[..]].concat()
}

fn words(f: &Facts) -> [u64; 13] {
    let (a, m, c) = (f.atime, f.mtime, f.ctime);
    let owner = u64::from(f.uid) << 32 | u64::from(f.gid);
    let nanos = u64::from(a.nsec) << 32 | u64::from(m.nsec);
    [
        f.id.ino,
        f.id.born,
        f.dev,
        u64::from(f.mode) << 32 | u64::from(f.nlink),
        owner,
        f.rdev,
        f.size,
        f.blocks,
        a.sec as u64,
        m.sec as u64,
        c.sec as u64,
        nanos,
        u64::from(c.nsec),
    ]
}

fn facts(from: &mut Bytes<'_>) -> Option<Facts> {
    let mut w = [0; 13];
    for word in &mut w {
        *word = from.word()?;
    }
    let time = |sec: u64, nsec: u64| Time {
        sec: sec as i64,
        nsec: nsec as u32,
    };
    Some(Facts {
        id: Id {
            ino: w[0],
            born: w[1],
        },
        dev: w[2],
        mode: (w[3] >> 32) as u32,
        nlink: w[3] as u32,
        uid: (w[4] >> 32) as u32,
        gid: w[4] as u32,
        rdev: w[5],
        size: w[6],
        blocks: w[7],
        atime: time(w[8], w[11] >> 32),
        mtime: time(w[9], w[11]),
        ctime: time(w[10], w[12]),
        ..Facts::default()
    })
}

/// Encodes every name on a tier, a piece at a time, with each directory before its entries. Between two pieces the catalogue is not
/// locked. A change at that time may be missing in the list, like a change after the list was written.
struct Encoder {
    tier: Tier,
    todo: Vec<NodeId>,
    /// The directory whose names are being encoded, its names, and the next one.
    now: Option<(NodeId, Listing, usize)>,
    sum: u32,
    begun: bool,
}

impl Encoder {
    fn new(tier: Tier) -> Encoder {
        Encoder {
            tier,
            todo: vec![ROOT],
            now: None,
            sum: 0,
            begun: false,
        }
    }
    /// Replaces the contents of `out` with the next piece, or with nothing at the end.
    fn next(&mut self, cat: &Catalogue, out: &mut Vec<u8>) {
        out.clear();
        if !self.begun {
            out.extend_from_slice(HEAD);
            self.begun = true;
        }
        while out.len() < PIECE {
            let Some((dir, list, at)) = &mut self.now else {
                let Some(dir) = self.todo.pop() else { break };
                self.now = Some((dir, cat.list(dir), 0));
                continue;
            };
            let Some(name) = list.get(*at) else {
                self.now = None;
                continue;
            };
            *at += 1;
            let Some(id) = cat.child(*dir, name) else {
                continue;
            };
            let on = cat.get(id).filter(|n| n.on() & (1 << self.tier) != 0);
            if let (Some(n), Some(path)) = (on, cat.path_in(*dir, name)) {
                if n.kind == Kind::Dir {
                    self.todo.push(id);
                }
                let mut facts = n.facts;
                if cat.xattrs(id).iter().any(|x| x.0.starts_with(ACLS)) {
                    facts.mode &= !0o077;
                }
                one(out, &n, &facts, cat.lasting(id), &path);
            }
        }
        self.sum = update(self.sum, out);
    }
}

fn one(out: &mut Vec<u8>, n: &Node<'_>, facts: &Facts, number: u64, path: &[u8]) {
    out.push(n.kind as u8);
    for word in words(facts).into_iter().chain([number]) {
        out.extend_from_slice(&word.to_le_bytes());
    }
    put(out, path);
    put(out, n.target().unwrap_or_default());
}

/// Adds the saved names of a tier to a catalogue of the other tiers. Names that are in use by now are omitted; their number is returned.
/// `None` if the file is torn or of another format.
fn decode(bytes: &[u8], tier: Tier, cat: &mut Catalogue) -> Option<u64> {
    let (body, sum) = bytes.split_at_checked(bytes.len().checked_sub(4)?)?;
    if crc32c(body) != u32::from_le_bytes(sum.try_into().ok()?) {
        return None;
    }
    let numbered = body.starts_with(HEAD);
    let mut from = Bytes(body.strip_prefix(if numbered { HEAD } else { HEAD_1 })?);
    let (mut links, mut taken) = (HashMap::<u64, NodeId>::new(), 0);
    while !from.0.is_empty() {
        let kind = from.take(1)?[0];
        let facts = facts(&mut from)?;
        let number = if numbered { from.word()? } else { 0 };
        let (path, target) = (from.blob()?, from.blob()?);
        let (dir, name) = split(path);
        let Some(dir) = cat.find(dir) else {
            taken += 1;
            continue;
        };
        let body = match kind {
            k if k == Kind::File as u8 => Body::File,
            k if k == Kind::Dir as u8 => Body::Dir(1 << tier),
            k if k == Kind::Link as u8 => Body::Link(target.into()),
            k if k == Kind::Special as u8 => Body::Special,
            _ => return None,
        };
        let is_dir = matches!(body, Body::Dir(_));
        if let Some(there) = cat.child(dir, name) {
            if is_dir && cat.get(there).is_some_and(|n| n.dir().is_some()) {
                cat.now_on(there, tier);
                if cat.lasting(there) == 0 {
                    cat.set_lasting(there, number);
                }
            } else {
                taken += 1;
            }
            continue;
        }
        let many = !is_dir && facts.nlink > 1;
        if let Some(same) = links.get(&facts.id.ino).filter(|_| many) {
            cat.link(*same, dir, name);
            cat.name_found(*same);
        } else if let Some(node) = cat.add(dir, name, tier, facts, body) {
            cat.set_lasting(node, number);
            if many {
                links.insert(facts.id.ino, node);
            }
        }
    }
    Some(taken)
}

/// Whether the names of all disks that are there are saved, of whatever time.
pub(crate) fn are_saved(roots: &Roots) -> bool {
    let mut slower = (1..roots.len()).filter(|t| !roots[*t].absent);
    slower.all(|t| matches!(roots[0].stat(&file(t as Tier)), Ok(Some(_))))
}

/// Adds the contents of an absent tier, as saved on the fast one, to the catalogue. Returns a line about it.
///
/// # Errors
/// A message in words: they are not saved, or damaged. Served without them, they would seem to be deleted. `accept` allows that.
pub(crate) fn load(
    roots: &Roots,
    tier: Tier,
    cat: &mut Catalogue,
    accept: bool,
) -> Result<String, Refused> {
    let shown = roots[usize::from(tier)].path.display();
    let read = roots[0].open_at(&file(tier), OFlags::RDONLY, 0);
    let mut saved = 0;
    let bytes = read.map(|fd| {
        saved = crate::disk::facts_of(&fd).map_or(0, |f| f.mtime.sec);
        let mut bytes = Vec::new();
        let read = std::io::Read::read_to_end(&mut std::fs::File::from(fd), &mut bytes);
        read.map(|_| bytes).unwrap_or_default()
    });
    let before = cat.files();
    match bytes.ok().and_then(|b| decode(&b, tier, cat)) {
        Some(taken) => Ok(format!(
            "{shown}: this tier is missing: its {} files are shown and cannot be read or changed ({taken} names are others' by now); the names are as they were {} min ago",
            cat.files() - before,
            (wall() - saved).max(0) / 60
        )),
        None if accept => Ok(format!(
            "{shown}: this tier is missing, and what it holds is not known: its names are not shown"
        )),
        None => refuse(format!(
            "{shown}: this tier is missing, and what it holds is not known (.isotherm/names.{tier} on the fast tier is not there or damaged), so its files would seem to be deleted: mount with its disk; or serve without its names, until it is back: --degraded --accept-tiers"
        )),
    }
}

impl Names {
    /// Saves the names of the slower tiers on the fastest.
    pub(crate) fn save(&self, tiers: &Tiers) -> Result<(), Errno> {
        for tier in (1..tiers.roots.len() as Tier).filter(|t| !tiers.is_absent(*t)) {
            self.save_of(tiers, tier)?;
        }
        Ok(())
    }
    /// Reports that the names could not be saved.
    pub(crate) fn say_unsaved(tiers: &Tiers, e: Errno) {
        tiers.say(&format!(
            "the names of slower tiers could not be kept on the fast one: {e}"
        ));
    }
    /// Saves the names of one of them.
    pub(crate) fn save_of(&self, tiers: &Tiers, tier: Tier) -> Result<(), Errno> {
        let new = NewFile::make(tiers.root(0), &name(tier))?;
        let (mut names, mut piece, mut done) = (Encoder::new(tier), Vec::new(), 0);
        loop {
            names.next(&self.cat(), &mut piece);
            if piece.is_empty() {
                break;
            }
            write_all(&new.fd, &piece, done)?;
            done += piece.len() as u64;
        }
        write_all(&new.fd, &names.sum.to_le_bytes(), done)?;
        new.publish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encode(cat: &Catalogue, tier: Tier) -> Vec<u8> {
        let (mut names, mut piece, mut all) = (Encoder::new(tier), Vec::new(), Vec::new());
        loop {
            names.next(cat, &mut piece);
            if piece.is_empty() {
                all.extend_from_slice(&names.sum.to_le_bytes());
                return all;
            }
            all.extend_from_slice(&piece);
        }
    }

    #[test]
    fn many_names_are_decoded() {
        let mut cat = Catalogue::new(Facts::default(), 3);
        for d in 0..30 {
            let name = format!("d{d}");
            let dir = cat.add(ROOT, name.as_bytes(), 0, Facts::default(), Body::Dir(3));
            for f in 0..1000 {
                let facts = Facts {
                    size: f,
                    ..Facts::default()
                };
                let name = format!("a file {f}");
                cat.add(dir.unwrap(), name.as_bytes(), 1, facts, Body::File);
            }
        }
        let bytes = encode(&cat, 1);
        assert!(bytes.len() > 3 * PIECE);
        let mut back = Catalogue::new(Facts::default(), 3);
        assert_eq!(decode(&bytes, 1, &mut back), Some(0));
        assert_eq!(back.files(), 30_000);
        let f = back.find(b"d29/a file 999").unwrap();
        assert_eq!(back.get(f).unwrap().facts.size, 999);
    }

    /// Whoever an access list keeps out does not get in while its disk is absent.
    #[test]
    fn what_has_an_access_list_is_saved_as_its_owners_alone() {
        let mut cat = Catalogue::new(Facts::default(), 3);
        for (name, attribute) in [("acl", "system.posix_acl_access"), ("other", "user.x")] {
            let facts = Facts {
                mode: crate::tree::DIR | 0o2775,
                ..Facts::default()
            };
            let dir = cat.add(ROOT, name.as_bytes(), 1, facts, Body::Dir(2));
            cat.set_xattrs(dir.unwrap(), vec![(attribute.into(), vec![1])]);
        }
        let mut back = Catalogue::new(Facts::default(), 3);
        decode(&encode(&cat, 1), 1, &mut back).unwrap();
        let mode = |name: &[u8]| back.get(back.find(name).unwrap()).unwrap().facts.mode & 0o7777;
        assert_eq!((mode(b"acl"), mode(b"other")), (0o2700, 0o2775));
    }

    #[test]
    fn names_of_a_tier_are_decoded_and_damage_is_detected() {
        let time = Time { sec: -5, nsec: 7 };
        let fact = |ino, nlink| Facts {
            id: Id { ino, born: 3 },
            nlink,
            mode: 0o100_640,
            size: 1 << 40,
            mtime: time,
            ..Facts::default()
        };
        let mut cat = Catalogue::new(Facts::default(), 3);
        let d = cat.add(ROOT, b"d", 0, fact(1, 2), Body::Dir(3)).unwrap();
        let f = cat.add(d, b"f", 1, fact(2, 2), Body::File).unwrap();
        cat.link(f, ROOT, b"g");
        cat.name_found(f);
        cat.set_lasting(f, 77);
        let to = Body::Link(b"d/f"[..].into());
        cat.add(ROOT, b"l", 1, fact(3, 1), to).unwrap();
        cat.add(ROOT, b"fast", 0, fact(4, 1), Body::File).unwrap();
        let bytes = encode(&cat, 1);
        let mut back = Catalogue::new(Facts::default(), 3);
        let other = back.add(ROOT, b"l", 0, fact(9, 1), Body::File).unwrap();
        assert_eq!(decode(&bytes, 1, &mut back), Some(1), "l is another's");
        let g = back.get(back.find(b"g").unwrap()).unwrap();
        assert_eq!(back.find(b"d/f"), back.find(b"g"));
        assert_eq!((g.facts, g.tier, g.links()), (fact(2, 2), 1, 2));
        assert_eq!(back.lasting(back.find(b"g").unwrap()), 77);
        assert_eq!((back.find(b"l"), back.find(b"fast")), (Some(other), None));
        for at in (0..bytes.len()).step_by(7) {
            let mut bad = bytes.clone();
            bad[at] ^= 4;
            let mut none = Catalogue::new(Facts::default(), 3);
            assert_eq!(decode(&bad, 1, &mut none), None);
            assert_eq!(decode(&bytes[..at], 1, &mut none), None);
        }
    }
}
