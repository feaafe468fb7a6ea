//! The marks of the disks of a cache volume while it runs ([`crate::store::mark`]).
//!
//! A round that answers requests first marks every region with a dirty copy. The mark is written while data is flushed, before the records.
//! So a FLUSH costs a write to a disk only if a region gets its first dirty copy. When that happens often, regions beside it are marked
//! as well, so that even a load that touches the whole volume ends with some hundred such writes. A region that has no dirty copy any more
//! loses its mark later. A copy becomes clean in the round that makes its data durable at the home, so the mark is removed by a later round.
//!
//! While a disk is to sleep, all regions are marked, so that no FLUSH wakes it. Nothing that can wait is written to a disk that has work or
//! sleeps: a disk that hangs holds up only the FLUSHes that need a mark from it.

use crate::engine::globals::{Globals, Phase};
use crate::mutants::Mutant;
use crate::store::mark::{Cover, Mark};
use crate::store::{BLOCK, Opened};
use crate::units::{MemberId, Nanos};
use crate::volume::lost::ListHead;
use crate::volume::regions::{REGIONS, Regions};
use alloc::vec;
use alloc::vec::Vec;
use core::ops::RangeInclusive;

/// Marks that are not needed any more are removed when no region was marked for this time.
const REST: Nanos = Nanos::from_secs(60);
/// At most 2^`WIDEST` neighbouring regions are marked together.
const WIDEST: u32 = 6;

/// The mark of one disk.
#[derive(Clone, Debug)]
struct Disk {
    member: MemberId,
    uuid: [u8; 16],
    offsets: [u64; 2],
    /// The regions that lie on it.
    regions: RangeInclusive<u32>,
    number: u64,
    durable: Regions,
    /// What was lost with earlier flash, which only opening changes.
    list: ListHead,
    /// What the round in progress writes.
    next: Option<Regions>,
    block: Vec<u8>,
}

impl Disk {
    fn own(&self) -> Regions {
        let mut own = Regions::default();
        self.regions.clone().for_each(|r| own.add(r));
        own
    }
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Marks {
    volume: [u8; 16],
    disks: Vec<Disk>,
    /// log2 of the number of regions that the next mark adds together.
    widen: u32,
    /// The time from which on marks that are not needed may be removed.
    clear_at: Nanos,
    /// Whether all regions are to be marked, because a disk is to sleep.
    all: bool,
}

impl Marks {
    /// The marks as opening has left them.
    pub(super) fn new(opened: &Opened) -> Marks {
        let (sb, geo) = (&opened.superblock, &opened.space.geo);
        let shift = opened.space.map.regions().extents_shift();
        let first = geo.tier_slots(geo.slowest()).start;
        let disk = |&(member, number, durable): &(MemberId, u64, Regions)| {
            let m = &geo.members[usize::from(member.0)];
            let from = m.first_slot - first;
            Disk {
                member,
                uuid: sb.members[usize::from(member.0)].uuid,
                offsets: [0, 1].map(|n| sb.mark_offset(member, n)),
                regions: from >> shift..=(from + m.slots - 1) >> shift,
                number,
                durable,
                list: opened.space.lost.head(member),
                next: None,
                block: vec![0; BLOCK],
            }
        };
        Marks {
            volume: sb.uuid,
            // Without flash nothing becomes dirty.
            disks: if opened.layout.has_journal {
                opened.marks.iter().map(disk).collect()
            } else {
                Vec::new()
            },
            ..Marks::default()
        }
    }
    /// The regions that every disk that holds a part of them has marked.
    pub(super) fn covered(&self) -> Regions {
        let all = self.disks.iter();
        all.fold(Regions::all(), |set, d| {
            set.without(&d.own().without(&d.durable))
        })
    }
    /// From now on all regions are marked in the next round, or only those that need it.
    pub(super) fn cover_all(&mut self, on: bool) {
        self.all = on;
    }
    /// Whether all regions of a disk are marked, or the member is no disk.
    pub(super) fn has_all(&self, member: usize) -> bool {
        let mut own = self.disks.iter();
        own.all(|d| usize::from(d.member.0) != member || d.own().without(&d.durable).is_empty())
    }
    /// A round begins that flushes all devices with new data, if it is `full`. None of its cleans has changed the map yet. `asked`: it answers
    /// requests. Otherwise no mark is written to a disk that has work or sleeps.
    pub(super) fn round_begins(&mut self, g: &mut Globals, full: bool, asked: bool) {
        let exact = full && g.background.wants_exact_marks();
        if self.disks.is_empty() || !full || (!asked && !exact && self.is_in_use(g)) {
            return;
        }
        let forgets = g.broken(Mutant::ForgetMark);
        let covered = *g.space.map.regions().covered();
        let mut want = covered;
        if g.space.map.regions().any_bare() && !forgets {
            let dirty = g.space.map.regions().dirty();
            let new = dirty.without(&covered).widened(self.widen);
            self.widen = (self.widen + 1).min(WIDEST);
            self.clear_at = g.clock + REST;
            want = want.or(&new);
        }
        if self.all && g.phase != Phase::Closing {
            want = Regions::all();
        } else if exact || self.may_clear(g) {
            want = want.and(&g.space.map.regions().dirty());
            self.clear_at = g.clock + REST;
            self.widen = 0;
        }
        // A mark that is being removed covers nothing any more.
        g.space.map.regions_mut().cover(covered.and(&want));
        self.prepare(&want, g.space.map.regions().extents_shift());
    }
    /// Whether marks may be removed now.
    fn may_clear(&self, g: &Globals) -> bool {
        let due = g.clock >= self.clear_at && !g.background.has_sleep_mode();
        (due && !self.is_in_use(g)) || g.phase == Phase::Closing
    }
    /// Whether a disk has work, or sleeps.
    fn is_in_use(&self, g: &Globals) -> bool {
        self.disks.iter().any(|d| {
            let device = &g.devices.members[usize::from(d.member.0)];
            device.asleep || device.in_flight > 0
        })
    }
    /// Encodes the marks of the disks that need another one.
    fn prepare(&mut self, want: &Regions, shift: u32) {
        for d in &mut self.disks {
            let own = d.own();
            if want.and(&own) == d.durable.and(&own) {
                continue;
            }
            d.number += 1;
            d.next = Some(*want);
            let mark = Mark {
                number: d.number,
                cover: Cover::Covered,
                shift,
                set: *want,
                list: d.list,
            };
            d.block.copy_from_slice(&mark.encode(&self.volume, &d.uuid));
        }
    }
    /// The disks whose marks this round writes, with the byte offset of each block.
    pub(super) fn writes(&self) -> impl Iterator<Item = (MemberId, u64)> + '_ {
        let new = self.disks.iter().filter(|d| d.next.is_some());
        new.map(|d| (d.member, d.offsets[(d.number % 2) as usize]))
    }
    /// The block of a disk.
    pub(super) fn bytes(&self, member: MemberId) -> &[u8] {
        let own = self.disks.iter().find(|d| d.member == member);
        own.map_or(&[], |d| &d.block)
    }
    /// Notes that the marks that this round wrote are durable.
    pub(super) fn durable(&mut self, g: &mut Globals) {
        let mut changed = false;
        for d in &mut self.disks {
            if let Some(set) = d.next.take() {
                d.durable = set;
                changed = true;
            }
        }
        if changed {
            g.space.map.regions_mut().cover(self.covered());
        }
    }
    /// Whether no region is marked without need. A session ends like this, so that a clean cache may be lost.
    pub(super) fn is_exact(&self, g: &Globals) -> bool {
        let dirty = g.space.map.regions().dirty();
        let exact = |d: &Disk| d.durable.and(&d.own()) == dirty.and(&d.own());
        self.disks.iter().all(exact)
    }
    /// Bytes of memory.
    pub(super) fn bytes_used(&self) -> usize {
        self.disks.len() * (BLOCK + REGIONS / 4)
    }
}
