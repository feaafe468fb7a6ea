//! What a move asks of its caller, what it is told, and how it ends.

use crate::intent::Op;
use crate::tree::{At, Facts, Id};
use rustix::io::Errno;

/// Bytes that one call copies at most.
pub const CHUNK: u64 = 4 << 20;

/// What the caller is to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A call on the trees.
    Call(Call),
    /// Let nobody change names or write to the file, and say how it stands.
    Freeze,
    /// Names and data may change again: the copy is made anew, or nothing comes of it.
    Thaw,
    /// From now on the file is the copy: swap descriptors, let writers go on.
    Swap(Id),
    /// That was all; names may change again.
    End(Outcome),
}

/// A call on the trees (see [`crate::tree::Tree`]).
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "named as the trait's functions")]
pub enum Call {
    Stat(At),
    Create(At, u64),
    Copy(At, At, u64),
    CopyAttributes(At, At),
    Write(At, Vec<u8>),
    SyncFile(At),
    SyncDir(At),
    MakeParents(At),
    Rename(At, Vec<u8>),
    Link(At, Vec<u8>),
    Unlink(At),
}

/// What came of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is done.
    Done,
    /// To `Stat`.
    Facts(Option<Facts>),
    /// To `Copy`: where to go on.
    Copied(Option<u64>),
    /// To `Freeze`: the file's names now, and whether anybody wrote since the last `Create`.
    Frozen(Vec<Vec<u8>>, bool),
    /// To `Freeze`: it must not move (deleted, in use in a way that forbids it).
    Forbidden(Why),
}

/// Why a file stays where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It was written during every try.
    Busy,
    /// It has names outside of this namespace, so not all of them can be moved.
    Links,
    /// It is deleted, or no longer what it was when the move was asked for.
    Gone,
    /// Something else is called so on the target.
    Clash,
    /// The kernel writes to it without asking us (passthrough).
    Passthrough,
    /// The target has no room for it.
    Full,
    /// Its tier, or the one that it is to go to, is missing.
    Missing,
    /// It cannot be written (immutable, append-only, verity).
    Flags,
}

impl Why {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Why::Busy => "it was written during every try",
            Why::Links => {
                "it has hard links outside of this file system, and all names or none are moved"
            }
            Why::Gone => "it was deleted or replaced meanwhile",
            Why::Clash => "another file has its name on the target tier",
            Why::Passthrough => {
                "it is open with passthrough, where the kernel writes without asking"
            }
            Why::Full => "the target tier has no room for it",
            Why::Missing => "a tier is missing",
            Why::Flags => "it is immutable or append-only",
        }
    }
}

/// How a move ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is on the target.
    Done,
    /// It stays.
    Refused(Why),
    /// A device failed before anything was decided: it stays.
    Failed(Errno),
    /// A device failed in a way that leaves open what is durable: names must not change any more until the next mount recovers.
    Stuck(Errno),
}

pub(super) fn as_call(op: &Op) -> Call {
    match op {
        Op::Rename(_, at, to) | Op::Exchange(_, at, to) => Call::Rename(at.clone(), to.clone()),
        Op::Link(_, at, to) => Call::Link(at.clone(), to.clone()),
        Op::Unlink(_, at) => Call::Unlink(at.clone()),
    }
}

/// Carry out a call.
///
/// # Errors
/// The tree's.
pub fn carry_out(tree: &mut dyn crate::tree::Tree, call: &Call) -> Result<Answer, Errno> {
    match call {
        Call::Stat(at) => return tree.stat(at).map(Answer::Facts),
        Call::Copy(from, to, offset) => {
            return tree.copy(from, to, *offset, CHUNK).map(Answer::Copied);
        }
        Call::Create(at, bytes) => tree.create(at, *bytes),
        Call::CopyAttributes(from, to) => tree.copy_attributes(from, to),
        Call::Write(at, bytes) => tree.write(at, bytes),
        Call::SyncFile(at) => tree.sync_file(at),
        Call::SyncDir(at) => tree.sync_dir(at),
        Call::MakeParents(at) => tree.make_parents(at),
        Call::Rename(from, to) => tree.rename(from, to),
        Call::Link(from, to) => tree.link(from, to),
        Call::Unlink(at) => tree.unlink(at),
    }
    .map(|()| Answer::Done)
}
