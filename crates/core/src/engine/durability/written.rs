//! The pages of the lists of lost data ([`crate::store::lost`]) while a volume runs: they say which lost blocks were written again.
//!
//! A request that writes lost blocks makes them readable when all of it has ended. A page with them is encoded at the snapshot of the next full round, and
//! written with FUA when the data is flushed, as the records are. So a FLUSH makes both durable. A page states no block whose write ended after
//! the snapshot, because that data need not be durable.

use super::Durability;
use crate::engine::devices::{Cause, MetaSource, What};
use crate::engine::globals::Globals;
use crate::io::{BufRef, DeviceOp, OpId, OpKind};
use crate::mutants::Mutant;
use crate::store::{BLOCK, Superblock, lost};
use crate::units::MemberId;
use alloc::vec;
use alloc::vec::Vec;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Written {
    sb: Superblock,
    /// The pages of the round in progress: their places and their bytes.
    places: Vec<(MemberId, u64)>,
    blocks: Vec<u8>,
}

impl Written {
    pub(super) fn new(sb: &Superblock) -> Written {
        Written {
            sb: sb.clone(),
            places: Vec::new(),
            blocks: Vec::new(),
        }
    }
    /// A full round begins: its pages have what was written until now.
    pub(super) fn round_begins(&mut self, g: &mut Globals) {
        self.places.clear();
        if !g.space.lost.any_changed() || g.broken(Mutant::ForgetWritten) {
            return;
        }
        let Written { sb, places, blocks } = self;
        g.space.lost.take_changed(|list, page, chunk, words| {
            let at = places.len() * BLOCK;
            places.push((list.member, sb.list_offset(list.member, list.place, page)));
            blocks.resize(blocks.len().max(at + BLOCK), 0);
            lost::encode(list.number, chunk, words, &mut blocks[at..at + BLOCK]);
        });
    }
    /// Starts the writes of these pages. Returns their number.
    pub(super) fn start(&self, g: &mut Globals) -> u32 {
        for (page, &(member, offset)) in (0..).zip(&self.places) {
            let cause = Cause {
                meta: MetaSource::Written { page, skip: 0 },
                ..Cause::plain(What::Round)
            };
            let op = DeviceOp {
                id: OpId(0),
                member,
                kind: OpKind::Write,
                offset,
                len: BLOCK as u32,
                buf: BufRef::Meta,
                fua: true,
            };
            g.start(cause, op);
        }
        self.places.len() as u32
    }
    /// The bytes of a page.
    pub(super) fn bytes(&self, page: u32) -> &[u8] {
        &self.blocks[page as usize * BLOCK..][..BLOCK]
    }
    /// The pages of the round are durable.
    pub(super) fn durable(&mut self, g: &mut Globals) {
        if !self.places.is_empty() {
            g.space.lost.settled();
            self.places.clear();
            self.blocks = vec![];
        }
    }
}

impl Durability {
    /// These bytes of the volume were written, or discarded, by one request. If any of them was lost, a page is due.
    pub(in crate::engine) fn written(&mut self, g: &mut Globals, bytes: (u64, u64)) {
        let shift = g.space.geo.block_shift;
        let in_part = g.broken(Mutant::PartOfGranule);
        let blocks = bytes.0 >> shift..bytes.1 >> shift;
        if g.space.lost.written(&blocks, in_part) {
            self.pending.round_by(g.clock + g.params.commit_interval);
        }
    }
}
