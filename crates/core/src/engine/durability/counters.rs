//! Raises the members' counters while a volume runs (`store/counter.rs`).
//!
//! A round that writes to a member raises its counter, at most once every `Params::counter_every`. The counter's block is written while
//! data is flushed, and the record that names it follows with the other records of the round. If a write of a request ends on a member that is
//! due, and nothing else needs a round, one begins that only raises counters (`reasons.rs`). No timer does that, and it waits while a member
//! sleeps that it would write to. A member without writes is left alone, so that it can stay asleep.

use crate::store::counter::{self, Counter, Known};
use crate::store::{BLOCK, Opened, Superblock, record};
use crate::units::{MemberId, Nanos};
use alloc::vec;
use alloc::vec::Vec;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct CounterUpdates {
    sb: Superblock,
    every: Option<Nanos>,
    /// The durable values.
    known: Known,
    /// By member: the time at which it was last raised.
    last: Vec<Nanos>,
    /// The members on which a write has ended since they were due: a bit set.
    wanted: u32,
    /// The beginning of the session, and the number of times that a counter was raised since.
    begun: Nanos,
    raises: u64,
    /// The counters that the round in progress raises.
    raised: Vec<(MemberId, u64)>,
    blocks: Vec<u8>,
}

impl CounterUpdates {
    pub(super) fn new(opened: &Opened, every: Option<Nanos>) -> CounterUpdates {
        let n = opened.superblock.members.len();
        CounterUpdates {
            sb: opened.superblock.clone(),
            every,
            known: opened.counters.clone(),
            last: vec![opened.time_base; n],
            wanted: 0,
            begun: opened.time_base,
            raises: 0,
            raised: Vec::with_capacity(n),
            blocks: if every.is_some() {
                vec![0; n * BLOCK]
            } else {
                Vec::new()
            },
        }
    }
    /// The members in the bit set `written` whose counters are due to be raised.
    pub(super) fn due(&self, now: Nanos, written: u32) -> u32 {
        let Some(every) = self.every else { return 0 };
        (0..self.last.len())
            .filter(|&i| written >> i & 1 == 1 && now.since(self.last[i]) >= every)
            .fold(0, |set, i| set | 1 << i)
    }
    /// Notes that a write of a request ended on `member`.
    pub(super) fn written(&mut self, now: Nanos, member: MemberId) {
        self.wanted |= self.due(now, 1 << member.0);
    }
    /// The members that should be raised although no round has written to them: a bit set.
    #[inline]
    pub(super) fn wanted(&self) -> u32 {
        self.wanted
    }
    /// These members are raised now, or when they are written to again.
    pub(super) fn taken(&mut self, members: u32) {
        self.wanted &= !members;
    }
    /// Raises the counter of `member` in the round that begins. Returns the journal unit that states its new value.
    pub(super) fn raise(&mut self, now: Nanos, member: MemberId, last_flushed: u64) -> [u8; 16] {
        let i = usize::from(member.0);
        let id = self.sb.members[i].id;
        let value = self.known.iter().find(|k| k.0 == id).map_or(0, |k| k.1) + 1;
        let c = Counter::of(&self.sb, member, value, last_flushed, &self.known);
        let block = c.encode(&self.sb.uuid);
        self.blocks[i * BLOCK..(i + 1) * BLOCK].copy_from_slice(&block);
        self.last[i] = now;
        self.raises += 1;
        self.raised.push((member, value));
        record::encode_counter(id, value)
    }
    /// The number of times that a counter was raised in this session until `now`, and the largest number that the interval allows.
    pub(super) fn raises(&self, now: Nanos) -> (u64, u64) {
        let intervals = match self.every {
            None => 0,
            Some(Nanos(0)) => u64::MAX >> 8,
            Some(every) => now.since(self.begun).0 / every.0,
        };
        (self.raises, intervals * self.last.len() as u64)
    }
    /// The members whose counters this round raises, with the byte offset of each block.
    pub(super) fn writes(&self) -> impl ExactSizeIterator<Item = (MemberId, u64)> + '_ {
        let at = |&(m, value): &(MemberId, u64)| (m, counter::offset(value));
        self.raised.iter().map(at)
    }
    /// The counter block of `member`.
    pub(super) fn bytes(&self, member: MemberId) -> &[u8] {
        let at = usize::from(member.0) * BLOCK;
        &self.blocks[at..at + BLOCK]
    }
    /// Notes that the values that this round wrote are durable.
    pub(super) fn durable(&mut self) {
        for (m, value) in self.raised.drain(..) {
            let id = self.sb.members[usize::from(m.0)].id;
            counter::learn(&mut self.known, id, value);
        }
    }
    /// The durable values.
    pub(super) fn known(&self) -> &Known {
        &self.known
    }
}
