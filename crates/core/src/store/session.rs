//! The last session of a volume, as its members state it.

use super::journal;
use super::superblock::Follow;

/// The last session that may have written to the journal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Session {
    pub(super) epoch: u64,
    pub(super) first_seq: u64,
    /// The guarantee that the session gave about its metadata.
    pub(super) follow: Follow,
    /// Whether the member that carried metadata in this session has everything that was acknowledged, so that a missing block means damage.
    pub(super) sole: bool,
    /// If the session ended cleanly: the sequence number of the next journal block.
    pub(super) closed: Option<u64>,
}

impl Session {
    /// Whether this block may be part of the journal. That it fits into the chain is not sufficient. A block of an earlier session may have
    /// been torn; a torn write of a later session to the same place may have the same bytes there and so complete it. So, from the first
    /// block of a session on, only blocks of its epoch count.
    pub(super) fn allows(&self, h: &journal::BlockHeader) -> bool {
        h.seq < self.first_seq || h.epoch == self.epoch
    }
}
