//! Damage to the metadata of a volume that is not being served: bits flip and blocks are lost, on the primary, on the mirror or on both.

use super::Rng;
use super::disk::Disk;
use super::run::Run;
use isotherm_core::MemberId;
use isotherm_core::store::{BLOCK, Opened, journal};

/// Whether the damage hit a journal block that cannot be proved to have been durable on the primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tail {
    Whole,
    /// Such a block was hit on the primary. Its records may be lost, but no extent may show another extent's bytes.
    Hit,
    /// In addition, the mirror lost a block that the primary has lost, too. So it is unknown which slots have changed their owner.
    HitTwice,
    /// A block up to this number was hit that was known to be durable, and also a counter, which may have been the proof of this. If the
    /// remaining metadata does not prove it, this is equivalent to `HitTwice`.
    Proof(u64),
}

/// Damages the metadata of a volume that is not being served.
pub(super) struct Harm<'a> {
    pub(super) run: &'a Run,
    /// The state of the volume before the damage.
    pub(super) whole: &'a Opened,
    pub(super) rng: &'a mut Rng,
    /// Description of each damage.
    pub(super) log: Vec<String>,
}

impl Harm<'_> {
    /// Damages one to three parts.
    pub(super) fn inflict(&mut self, disks: &mut [Disk]) -> Tail {
        let layout = self.run.sb.layout();
        let mirror = layout.mirror.map_or(0, |m| usize::from(m.0));
        let before = self.shared(disks, mirror);
        let (mut hit_tail, mut proof, mut counter) = (false, 0, false);
        if self.rng.one_in(6) {
            // Only the checkpoint, on primary and mirror.
            let h = self.whole.checkpoint;
            let region = layout.area.region_offset((h.number % 2) as u8) / BLOCK as u64;
            let b = region + 1 + self.rng.below(u64::from(h.blocks.max(1)));
            for m in [0, mirror] {
                self.log.push(format!("member {m} block {b}"));
                self.corrupt_block(&mut disks[m], b);
            }
            return Tail::Whole;
        }
        for _ in 0..=self.rng.below(3) {
            let member = [0, mirror, self.rng.below(disks.len() as u64) as usize]
                [self.rng.below(3) as usize];
            let members = if self.rng.one_in(4) {
                vec![0, mirror]
            } else {
                vec![member]
            };
            let blocks = self.blocks(member);
            for m in members {
                // At the offset of one member's metadata, another member may have data.
                let end = self.run.sb.members[m].data_offset / BLOCK as u64;
                let blocks: Vec<u64> = blocks.iter().copied().filter(|&b| b < end).collect();
                self.log.push(format!("member {m} blocks {blocks:?}"));
                for &b in &blocks {
                    let seq = self.seq(&disks[m], b).unwrap_or(0);
                    hit_tail |= m == 0 && self.is_tail(seq);
                    proof = proof.max(seq.min(self.whole.report.proven));
                    counter |= (2..4).contains(&b);
                }
                // The blocks of a run are damaged together, so all of them are examined before the first one is changed.
                for &b in &blocks {
                    self.corrupt_block(&mut disks[m], b);
                }
            }
        }
        let gone = |seq: &u64| ![0, mirror].iter().any(|&m| self.has(&disks[m], *seq));
        match hit_tail {
            false if counter && proof > 0 => Tail::Proof(proof),
            false => Tail::Whole,
            true if before.iter().any(gone) => Tail::HitTwice,
            true => Tail::Hit,
        }
    }

    /// Damages one block of the newest checkpoint on primary and mirror, and the remains of the older checkpoint.
    pub(super) fn lose_checkpoint(&mut self, disks: &mut [Disk]) -> Tail {
        let layout = self.run.sb.layout();
        let mirror = layout.mirror.map_or(0, |m| usize::from(m.0));
        let h = self.whole.checkpoint;
        let at = |number: u64| layout.area.region_offset((number % 2) as u8) / BLOCK as u64;
        let b = at(h.number) + 1 + self.rng.below(u64::from(h.blocks.max(1)));
        for m in [0, mirror] {
            self.log.push(format!("member {m} block {b}"));
            for b in [b, at(h.number + 1)] {
                self.corrupt_block(&mut disks[m], b);
            }
        }
        Tail::Whole
    }

    /// Damages a part of the newest checkpoint on primary and mirror; sometimes its header stays complete.
    pub(super) fn lose_newest(&mut self, disks: &mut [Disk]) {
        let layout = self.run.sb.layout();
        let mirror = layout.mirror.map_or(0, |m| usize::from(m.0));
        let h = self.whole.checkpoint;
        let region = layout.area.region_offset((h.number % 2) as u8) / BLOCK as u64;
        let b = if h.blocks == 0 || self.rng.one_in(4) {
            region
        } else {
            region + 1 + self.rng.below(u64::from(h.blocks))
        };
        for m in [0, mirror] {
            self.corrupt_block(&mut disks[m], b);
        }
    }

    /// Damages the newest blocks of the primary's journal: those that the mirror lacks, and sometimes the newest block of the mirror, too.
    pub(super) fn lose_tail(&mut self, disks: &mut [Disk]) -> Tail {
        let layout = self.run.sb.layout();
        let mirror = layout.mirror.map_or(0, |m| usize::from(m.0));
        let (start, end) = (
            self.whole.checkpoint.start.next_seq,
            self.whole.tip.next_seq,
        );
        let known = (start..end).take_while(|&seq| self.has(&disks[mirror], seq));
        let lacked = start + known.count() as u64;
        let from = (lacked - u64::from(lacked > start && self.rng.one_in(3))).min(end);
        for seq in from..end {
            let at = layout.area.ring_offset(seq);
            self.log.push(format!("journal block {seq}"));
            self.corrupt_block(&mut disks[0], at / BLOCK as u64);
        }
        Tail::Hit
    }

    /// Whether a member has block `seq` of the journal.
    fn has(&self, disk: &Disk, seq: u64) -> bool {
        let at = self.run.sb.layout().area.ring_offset(seq);
        self.seq(disk, at / BLOCK as u64) == Some(seq)
    }

    /// Blocks of the journal that both primary and mirror have.
    fn shared(&self, disks: &[Disk], mirror: usize) -> Vec<u64> {
        let all = self.whole.checkpoint.start.next_seq..self.whole.tip.next_seq;
        all.filter(|&seq| [0, mirror].iter().all(|&m| self.has(&disks[m], seq)))
            .collect()
    }

    /// Chooses the blocks to damage.
    fn blocks(&mut self, member: usize) -> Vec<u64> {
        let area = self.run.sb.layout().area;
        let block = BLOCK as u64;
        let (start, end) = (
            self.whole.checkpoint.start.next_seq,
            self.whole.tip.next_seq,
        );
        let region = area.region_offset((self.whole.checkpoint.number % 2) as u8) / block;
        match self.rng.below(10) {
            0 => vec![0],
            1 => vec![self.run.sb.copy_offset(MemberId(member as u8)) / block],
            2 => vec![2 + self.rng.below(2)],
            3 => vec![region],
            4 | 5 => vec![
                region
                    + 1
                    + self
                        .rng
                        .below(u64::from(self.whole.checkpoint.blocks.max(1))),
            ],
            // The ring.
            6 => (4..4 + u64::from(area.ring_blocks)).collect(),
            7 => {
                let at = start + self.rng.below((end - start).max(1));
                (0..=self.rng.below(6))
                    .map(|i| area.ring_offset(at + i) / block)
                    .collect()
            }
            _ => vec![area.ring_offset(start + self.rng.below((end - start).max(1))) / block],
        }
    }

    /// The sequence number of a block, if it is a block of the journal.
    fn seq(&self, disk: &Disk, b: u64) -> Option<u64> {
        let data = disk.get(b * BLOCK as u64, BLOCK)?;
        journal::decode(data, &self.run.sb.uuid).map(|h| h.seq)
    }

    /// Whether `seq` is a block of the journal of which it is not known that it was durable.
    fn is_tail(&self, seq: u64) -> bool {
        (self.whole.report.proven + 1..self.whole.tip.next_seq).contains(&seq)
    }

    fn corrupt_block(&mut self, disk: &mut Disk, b: u64) {
        let at = b * BLOCK as u64;
        let Some(old) = disk.get(at, BLOCK) else {
            return;
        };
        let mut new = old.to_vec();
        match self.rng.below(4) {
            0 => new.fill(0),
            1 => {
                let sector = self.rng.below(8) as usize * 512;
                for x in &mut new[sector..sector + 512] {
                    *x = self.rng.draw() as u8;
                }
            }
            2 => {
                let i = self.rng.below(BLOCK as u64) as usize;
                new[i] ^= 1 << self.rng.below(8);
            }
            _ => {
                // The part of a block that holds headers and records.
                let i = self.rng.below(160) as usize;
                new[i] ^= 1 << self.rng.below(8);
            }
        }
        disk.write_through(at, &new);
    }
}
