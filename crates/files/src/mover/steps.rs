//! The steps that a move asks of its caller, the answers, and the outcomes.

use crate::intent::Op;
use crate::tree::{At, Facts, Id, Tier};
use rustix::io::Errno;

/// Maximum number of bytes that one call copies.
pub const CHUNK: u64 = 4 << 20;

/// The next step for the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A call on the trees.
    Call(Call),
    /// Prevent changes of names and writes to the file, and report its state.
    Freeze,
    /// Allow changes of names and data again: the copy will be repeated, or the move ends.
    Thaw,
    /// From now on the file is the copy: swap descriptors and let writers continue.
    Swap(Id),
    /// The move has ended; names may change again.
    End(Outcome),
}

/// A call on the trees (see [`crate::tree::Tree`]).
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "named as the trait's functions")]
pub enum Call {
    Stat(At),
    MayRemove(At),
    ProveWritable(Tier),
    Create(At, u64),
    Copy(At, At, u64, u64),
    CopyAttributes(At, At),
    SetNumber(At, u64),
    Write(At, Vec<u8>),
    SyncFile(At),
    SyncDir(At),
    MakeParents(At),
    Place(At, Vec<u8>),
    Link(At, Vec<u8>),
    Unlink(At),
    UnlinkIf(At, Id),
}

/// The result of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is done.
    Done,
    /// The answer to `Stat`.
    Facts(Option<Facts>),
    /// The answer to `MayRemove`.
    May(bool),
    /// The answer to `UnlinkIf`: whether the name is gone.
    Removed(bool),
    /// The answer to `Copy`: the offset at which to continue.
    Copied(Option<u64>),
    /// The answer to `Freeze`: the file's present names, and whether it was written since the last `Create`.
    Frozen(Vec<Vec<u8>>, bool),
    /// The answer to `Freeze`: the file must not move (it is deleted, or in a use that forbids it).
    Forbidden(Why),
}

/// The reason why a file stays where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It was written during every try.
    Busy,
    /// It has names outside of this namespace, so they cannot all be moved.
    Links,
    /// It was deleted, or is no longer the file whose move was requested.
    Gone,
    /// The target has another file with that name.
    Clash,
    /// The kernel writes to it directly (passthrough).
    Passthrough,
    /// The target has no space for it.
    Full,
    /// Its tier or the target tier is absent.
    Missing,
    /// The file system of its tier or of the target tier has become read-only.
    ReadOnly,
    /// It, or a directory that has it, is immutable or append-only, or it is sealed by fs-verity or encrypted; or the directory may not be
    /// written.
    Flags,
    /// The target's file system cannot store its owner, its access list or one of its extended attributes.
    Attributes,
}

impl Why {
    /// The reason in words.
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
            Why::ReadOnly => "its tier or the target tier has become read-only",
            Why::Flags => {
                "it or its directory is immutable or append-only or may not be written, or it is sealed by fs-verity or encrypted"
            }
            Why::Attributes => {
                "the target tier cannot store its owner, its access list or one of its extended attributes"
            }
        }
    }
}

/// The outcome of a move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outcome {
    /// The file is on the target.
    #[default]
    Done,
    /// The file was not moved.
    Refused(Why),
    /// A device failed before the move was decided; the file was not moved.
    Failed(Errno),
    /// A device failed, and it is unknown what is durable: names must not change until the next mount recovers.
    Stuck(Errno),
}

impl Call {
    /// The tier that the call changes, or on which it fails; `None` if that can be either of two.
    pub fn tier(&self) -> Option<Tier> {
        match self {
            Call::Copy(..) | Call::CopyAttributes(..) => None,
            Call::ProveWritable(tier) => Some(*tier),
            Call::Stat(at)
            | Call::MayRemove(at)
            | Call::Create(at, _)
            | Call::SetNumber(at, _)
            | Call::Write(at, _)
            | Call::SyncFile(at)
            | Call::SyncDir(at)
            | Call::MakeParents(at)
            | Call::Place(at, _)
            | Call::Link(at, _)
            | Call::Unlink(at)
            | Call::UnlinkIf(at, _) => Some(at.tier),
        }
    }
}

pub(super) fn as_call(op: &Op) -> Call {
    match op {
        Op::Rename(_, at, to) | Op::Exchange(_, at, to) => Call::Place(at.clone(), to.clone()),
        Op::Link(_, at, to) => Call::Link(at.clone(), to.clone()),
        Op::Unlink(id, at) => Call::UnlinkIf(at.clone(), *id),
    }
}

/// Carries out a call.
///
/// # Errors
/// An error of the tree.
pub fn carry_out(tree: &mut dyn crate::tree::Tree, call: &Call) -> Result<Answer, Errno> {
    match call {
        Call::Stat(at) => return tree.stat(at).map(Answer::Facts),
        Call::MayRemove(at) => return tree.may_remove(at).map(Answer::May),
        Call::Copy(from, to, offset, len) => {
            return tree.copy(from, to, *offset, *len).map(Answer::Copied);
        }
        Call::UnlinkIf(at, id) => return tree.unlink_if(at, *id).map(Answer::Removed),
        Call::ProveWritable(tier) => tree.prove_writable(*tier),
        Call::Create(at, bytes) => tree.create(at, *bytes),
        Call::CopyAttributes(from, to) => tree.copy_attributes(from, to),
        Call::SetNumber(at, number) => tree.set_number(at, *number),
        Call::Write(at, bytes) => tree.write(at, bytes),
        Call::SyncFile(at) => tree.sync_file(at),
        Call::SyncDir(at) => tree.sync_dir(at),
        Call::MakeParents(at) => tree.make_parents(at),
        Call::Place(from, to) => tree.place(from, to),
        Call::Link(from, to) => tree.link(from, to),
        Call::Unlink(at) => tree.unlink(at),
    }
    .map(|()| Answer::Done)
}
