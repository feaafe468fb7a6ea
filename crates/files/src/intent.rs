//! Intents: changes of several steps are recorded before the first step, so that the next mount can finish what a crash left half done.
//!
//! An intent is a list of [`Op`]s. Each op names the file that it changes ([`Id`]), so it can be repeated: if it was already done, this is
//! detected and nothing happens. An intent is *void* if its first op was not done and cannot be done: the change was abandoned.
//!
//! The protocol of such a change: (1) write the intent and sync it, (2) do the ops in order, (3) sync all directories that they change, (4)
//! remove the intent and sync that, (5) only then let others use these names.

use crate::mutants::{Mutant, broken};
use crate::tree::{
    At, COPIES, INTENTS, Id, SILLY, TEMPS, Tier, Tree, above, copy_at, join, parent,
};
use crate::wire::{Bytes, put};
use isotherm_core::crc32c::crc32c;
use rustix::io::Errno;
use std::collections::HashSet;

/// A step that can be repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// The file is renamed on its tier and replaces a file with the new name.
    Rename(Id, At, Vec<u8>),
    /// The file's name and another name on its tier are exchanged.
    Exchange(Id, At, Vec<u8>),
    /// The file gets a further name.
    Link(Id, At, Vec<u8>),
    /// The file loses a name.
    Unlink(Id, At),
}

/// The result of an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redo {
    /// Done now.
    Now,
    /// It had been done already.
    Before,
    /// The file has neither of the names.
    Neither,
}

/// Encodes an intent: a header, its ops, a checksum.
pub fn encode(ops: &[Op]) -> Vec<u8> {
    let mut out = b"isotherm intent 1\n".to_vec();
    out.extend_from_slice(&(ops.len() as u32).to_le_bytes());
    for op in ops {
        let (kind, id, at, to) = match op {
            Op::Rename(id, at, to) => (1u8, id, at, &to[..]),
            Op::Exchange(id, at, to) => (2, id, at, &to[..]),
            Op::Link(id, at, to) => (3, id, at, &to[..]),
            Op::Unlink(id, at) => (4, id, at, &b""[..]),
        };
        out.push(kind);
        out.push(at.tier);
        out.extend_from_slice(&id.ino.to_le_bytes());
        out.extend_from_slice(&id.born.to_le_bytes());
        put(&mut out, &at.path);
        put(&mut out, to);
    }
    let sum = crc32c(&out);
    out.extend_from_slice(&sum.to_le_bytes());
    out
}

/// Decodes an intent; `None` if the bytes are torn, of another format, or name a path outside of the tiers.
pub fn decode(bytes: &[u8]) -> Option<Vec<Op>> {
    let (body, sum) = bytes.split_at_checked(bytes.len().checked_sub(4)?)?;
    let whole = crc32c(body) == u32::from_le_bytes(sum.try_into().ok()?);
    if !whole && !broken(Mutant::TrustTornIntent) {
        return None;
    }
    let mut from = Bytes(body.strip_prefix(b"isotherm intent 1\n")?);
    let count = from.half()?;
    let mut ops = Vec::new();
    for _ in 0..count {
        let (kind, tier) = (from.take(1)?[0], from.take(1)?[0]);
        let id = Id {
            ino: from.word()?,
            born: from.word()?,
        };
        let (path, to) = (from.blob()?.to_vec(), from.blob()?.to_vec());
        let inside =
            |p: &[u8]| !p.is_empty() && p.split(|b| *b == b'/').all(|w| !matches!(w, b"" | b".."));
        if !inside(&path) || (kind != 4 && !inside(&to)) {
            return None;
        }
        let at = At::new(tier, path);
        ops.push(match kind {
            1 => Op::Rename(id, at, to),
            2 => Op::Exchange(id, at, to),
            3 => Op::Link(id, at, to),
            4 => Op::Unlink(id, at),
            _ => return None,
        });
    }
    from.0.is_empty().then_some(ops)
}

impl Op {
    /// The path that it changes.
    pub fn at(&self) -> &At {
        match self {
            Op::Rename(_, at, _)
            | Op::Exchange(_, at, _)
            | Op::Link(_, at, _)
            | Op::Unlink(_, at) => at,
        }
    }
    /// The directories whose entries it changes.
    pub fn dirs(&self) -> Vec<At> {
        let mut dirs = vec![self.at().parent()];
        if let Op::Rename(_, at, to) | Op::Exchange(_, at, to) | Op::Link(_, at, to) = self {
            dirs.push(At::new(at.tier, parent(to)));
        }
        dirs
    }
    /// Does the op, unless it was done already.
    ///
    /// # Errors
    /// An error of the tree.
    pub fn redo(&self, tree: &mut dyn Tree) -> Result<Redo, Errno> {
        let mut is = |id: &Id, tier: Tier, path: &[u8]| {
            let there = tree.stat(&At::new(tier, path))?;
            Ok::<bool, Errno>(there.is_some_and(|f| f.id == *id))
        };
        let (at, to) = match self {
            Op::Unlink(id, at) => {
                let gone = tree.unlink_if(at, *id)?;
                return Ok(if gone { Redo::Now } else { Redo::Before });
            }
            Op::Rename(id, at, to) | Op::Exchange(id, at, to) | Op::Link(id, at, to) => {
                if is(id, at.tier, to)? {
                    return Ok(Redo::Before);
                }
                if !is(id, at.tier, &at.path)? {
                    return Ok(Redo::Neither);
                }
                (at, to)
            }
        };
        match self {
            Op::Exchange(..) => tree.exchange(at, to)?,
            Op::Link(..) => {
                parents(tree, at.tier, to)?;
                tree.link(at, to)?;
            }
            // What has the name of a complete copy was put there by somebody else.
            _ if parent(&at.path) == TEMPS => {
                parents(tree, at.tier, to)?;
                tree.place(at, to)?;
            }
            _ => {
                parents(tree, at.tier, to)?;
                tree.rename(at, to)?;
            }
        }
        Ok(Redo::Now)
    }
}

/// The directories above paths, each once, from the root downwards: they become durable in this order, so that no durable directory is
/// within one that is not.
pub fn chain<'a>(tier: Tier, paths: impl Iterator<Item = &'a [u8]>) -> Vec<At> {
    let mut dirs: Vec<At> = Vec::new();
    if broken(Mutant::SkipAncestors) {
        return dirs;
    }
    for path in paths {
        let above: Vec<&[u8]> = above(path).collect();
        for dir in above.iter().rev().map(|d| At::new(tier, *d)) {
            if !dirs.contains(&dir) {
                dirs.push(dir);
            }
        }
    }
    dirs
}

/// Creates the directories above a path and makes them durable, before anything is put into them.
fn parents(tree: &mut dyn Tree, tier: Tier, path: &[u8]) -> Result<(), Errno> {
    tree.make_parents(&At::new(tier, path))?;
    for dir in chain(tier, std::iter::once(path)) {
        tree.sync_dir(&dir)?;
    }
    Ok(())
}

/// The directories that ops change, each once.
pub fn dirs_of(ops: &[Op]) -> Vec<At> {
    let mut dirs: Vec<At> = Vec::new();
    for dir in ops.iter().flat_map(Op::dirs) {
        if !dirs.contains(&dir) {
            dirs.push(dir);
        }
    }
    dirs
}

/// The result of recovery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Intents that were completed.
    pub finished: u32,
    /// Intents that were abandoned before the crash, or torn.
    pub dropped: u32,
    /// Copies that were not complete.
    pub temps: u32,
}

/// Finishes what a crash left half done. It may be interrupted at any call and started again.
///
/// # Errors
/// An error of the tree; then nothing may be served.
pub fn recover(tree: &mut dyn Tree) -> Result<Recovered, Errno> {
    recover_but(tree, &[])
}

/// As [`recover`]; the copies with these numbers stay. They were whole and durable when the last mount ended.
pub(crate) fn recover_but(tree: &mut dyn Tree, keep: &[u64]) -> Result<Recovered, Errno> {
    let mut report = Recovered::default();
    for name in tree.list(&At::new(0, INTENTS))? {
        let at = At::new(0, join(INTENTS, &name));
        let ops = decode(&tree.read(&at)?);
        let done = match &ops {
            Some(ops) if ops.iter().all(|op| tree.is_there(op.at().tier)) => carry_out(tree, ops)?,
            // The intent names a tier that is absent: keep it, and let nobody write in the meantime.
            Some(_) => return Err(Errno::NODEV),
            None => false,
        };
        if done {
            report.finished += 1;
        } else {
            report.dropped += 1;
        }
        tree.unlink(&at)?;
        tree.sync_dir(&At::new(0, INTENTS))?;
    }
    for tier in 0..tree.tiers() {
        for name in tree.list(&At::new(tier, TEMPS))? {
            match tree.unlink(&At::new(tier, join(TEMPS, &name))) {
                // The name that the client of NFS gave to a removed file. It goes by itself when the last process that had it open has ended.
                Err(Errno::BUSY | Errno::NOENT) if name.starts_with(SILLY) => continue,
                other => other?,
            }
            report.temps += 1;
        }
    }
    let keep: HashSet<At> = keep.iter().map(|n| copy_at(*n)).collect();
    if !broken(Mutant::KeepCopies) {
        for name in tree.list(&At::new(0, COPIES))? {
            let at = At::new(0, join(COPIES, &name));
            if !keep.contains(&at) {
                tree.unlink(&at)?;
            }
        }
    }
    Ok(report)
}

/// Returns false if the intent is void. Everything is durable at the end. The hidden name of a copy is removed only after the new names are
/// durable.
fn carry_out(tree: &mut dyn Tree, ops: &[Op]) -> Result<bool, Errno> {
    let hidden = |op: &&Op| matches!(op, Op::Unlink(_, at) if parent(&at.path) == TEMPS);
    for (i, op) in ops.iter().enumerate().filter(|(_, op)| !hidden(op)) {
        let how = op.redo(tree)?;
        if i == 0 && how == Redo::Neither && !broken(Mutant::TrustVoidIntent) {
            return Ok(false);
        }
    }
    sync(tree, ops)?;
    for op in ops.iter().filter(hidden) {
        op.redo(tree)?;
        tree.sync_dir(&op.at().parent())?;
    }
    Ok(true)
}

fn sync(tree: &mut dyn Tree, ops: &[Op]) -> Result<(), Errno> {
    for dir in dirs_of(ops) {
        if tree.stat(&dir)?.is_some() {
            tree.sync_dir(&dir)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intents_are_decoded_and_damage_is_detected() {
        let id = Id { ino: 7, born: 9 };
        let ops = vec![
            Op::Rename(id, At::new(1, ".isotherm/tmp/1"), b"a/b".to_vec()),
            Op::Link(id, At::new(1, "x"), b"y\xff".to_vec()),
            Op::Exchange(id, At::new(0, "x"), b"y".to_vec()),
            Op::Unlink(id, At::new(0, "a/b")),
        ];
        let bytes = encode(&ops);
        assert_eq!(decode(&bytes), Some(ops));
        for cut in 0..bytes.len() {
            assert_eq!(decode(&bytes[..cut]), None);
        }
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 1;
            assert_eq!(decode(&bad), None, "bit of byte {at}");
        }
        for bad in ["../x", "a//b", "", "a/../b"] {
            assert_eq!(decode(&encode(&[Op::Unlink(id, At::new(0, bad))])), None);
        }
    }
}
