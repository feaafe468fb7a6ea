//! Blocks of the journal that must outlive this process (`keeper.rs`), and the replies that rely on them.

use super::UringWorld;
use crate::keeper::Keeper;
use isotherm_core::IoError;
use std::io;

/// The keeper of the session, if it has one.
#[derive(Default)]
pub(super) struct Keeping {
    keeper: Option<Keeper>,
    /// Whether a block could not be kept.
    failed: bool,
}

impl Keeping {
    pub(super) fn with(keeper: Option<Keeper>) -> Keeping {
        Keeping {
            keeper,
            failed: false,
        }
    }
}

impl UringWorld {
    /// Keeps a block of the journal. If that fails, which only a system without memory can cause, nothing is acknowledged any more.
    pub(super) fn keep(&mut self, seq: u64, block: &[u8]) {
        let kept = match &mut self.keeping.keeper {
            Some(keeper) => keeper.keep(seq, block),
            None => Err(io::ErrorKind::NotFound.into()),
        };
        if let Err(e) = kept {
            self.keeping.failed = true;
            self.note_unkept(&e);
        }
    }

    /// The result of a request, if the blocks that it relies on could be kept.
    pub(super) fn after_keeping(&self, result: Result<(), IoError>) -> Result<(), IoError> {
        if self.keeping.failed {
            return result.and(Err(IoError::Io));
        }
        result
    }

    /// Whether a block could not be kept.
    pub(crate) fn is_unkept(&self) -> bool {
        self.keeping.failed
    }

    /// Another session begins on the same members: this is its keeper.
    pub(crate) fn keep_with(&mut self, keeper: Option<Keeper>) {
        self.keeping.keeper = keeper;
    }

    /// The session has ended well: what was kept is on the members.
    pub(crate) fn forget_kept(&mut self) {
        if let Some(keeper) = self.keeping.keeper.take() {
            keeper.forget();
        }
    }

    /// The session can give no guarantee any more: nothing is kept for the next one.
    pub(crate) fn give_up_kept(&mut self) {
        if let Some(keeper) = self.keeping.keeper.take() {
            keeper.give_up();
        }
    }
}
