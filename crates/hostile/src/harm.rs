//! Damage to the metadata of a volume that is not being served: bits flip and blocks are lost, on the primary, on the mirror or on both.

use super::Rng;
use super::disk::Disk;
use super::run::Run;
use isotherm_core::MemberId;
use isotherm_core::store::checkpoint::Header;
use isotherm_core::store::{BLOCK, Carrier, Layout, Opened, journal};

/// Whether the damage hit a journal block that cannot be proved to have been durable on the primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tail {
    Whole,
    /// Such a block was hit on the primary. Its records may be lost, but no extent may show another extent's bytes.
    Hit,
    /// In addition, the mirror lost a block that the primary has lost, too. So it is unknown which slots have changed their owner.
    HitTwice,
    /// A block up to this number was hit that was known to be durable, and also what may have been the only proof of this: a counter, or a
    /// later block that the mirror alone had. If the remaining metadata does not prove it, this is equivalent to `HitTwice`.
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

/// A block of metadata, whichever place has it.
#[derive(Clone, Copy)]
enum Spot {
    /// A block of the member's head.
    Head(u64),
    /// Its second superblock.
    Copy,
    /// The mark of a disk of a cache volume.
    Mark(u64),
    /// A block of the newest checkpoint's region; 0: its header.
    Region(u64),
    /// The journal block of this number.
    Ring(u64),
}

/// A member, and the journal and checkpoints that are damaged there, if it has any.
type Target = (usize, Option<Carrier>);

impl Harm<'_> {
    fn layout(&self) -> Layout {
        self.run.sb.layout()
    }
    /// The places of journal and checkpoints.
    fn carriers(&self) -> Vec<Target> {
        let all = self.layout().carriers();
        all.map(|c| (usize::from(c.member.0), Some(c))).collect()
    }
    /// The block of a member that a spot is there.
    fn block(&self, (member, carrier): Target, spot: Spot) -> Option<u64> {
        let (layout, m) = (self.layout(), MemberId(member as u8));
        let region = Header::region(self.whole.checkpoint.number);
        let at = match spot {
            Spot::Head(b) => b * BLOCK as u64,
            Spot::Copy => self.run.sb.copy_offset(m),
            Spot::Mark(n) if self.run.sb.is_disk(m) => self.run.sb.mark_offset(m, n),
            Spot::Mark(_) => return None,
            Spot::Region(b) => layout.region_offset(carrier?, region) + b * BLOCK as u64,
            Spot::Ring(seq) => layout.ring_offset(carrier?, seq),
        };
        Some(at / BLOCK as u64)
    }

    /// Damages one to three parts.
    pub(super) fn inflict(&mut self, disks: &mut [Disk]) -> Tail {
        let carriers = self.carriers();
        let before = self.shared(disks);
        let (mut hit_tail, mut proof, mut hit_proof) = (false, 0, false);
        if self.rng.one_in(6) {
            // Only the checkpoint, on primary and mirror.
            let h = self.whole.checkpoint;
            let spot = Spot::Region(1 + self.rng.below(u64::from(h.blocks.max(1))));
            for &t in &carriers {
                self.hit(disks, t, spot);
            }
            return Tail::Whole;
        }
        for _ in 0..=self.rng.below(3) {
            let any = self.rng.below(disks.len() as u64) as usize;
            let own = carriers.iter().find(|t| t.0 == any).and_then(|t| t.1);
            let mut one = carriers.clone();
            one.push((any, own));
            let targets = if self.rng.one_in(4) {
                carriers.clone()
            } else {
                vec![one[self.rng.below(one.len() as u64) as usize]]
            };
            let spots = self.spots();
            for t in targets {
                for &spot in &spots {
                    let Some(b) = self.block(t, spot) else {
                        continue;
                    };
                    let seq = self.seq(&disks[t.0], b).unwrap_or(0);
                    hit_tail |= t.1 == Some(self.layout().primary) && self.is_tail(seq);
                    proof = proof.max(seq.min(self.whole.report.proven));
                    hit_proof |= matches!(spot, Spot::Head(2..4)) || self.is_tail(seq);
                }
                // The blocks of a run are damaged together, so all of them are examined before the first one is changed.
                for &spot in &spots {
                    self.hit(disks, t, spot);
                }
            }
        }
        let gone = |seq: &u64| !carriers.iter().any(|&t| self.has(disks, t, *seq));
        match hit_tail {
            false if hit_proof && proof > 0 => Tail::Proof(proof),
            false => Tail::Whole,
            true if before.iter().any(gone) => Tail::HitTwice,
            true => Tail::Hit,
        }
    }

    /// Damages one block of the newest checkpoint on primary and mirror, and the remains of the older checkpoint.
    pub(super) fn lose_checkpoint(&mut self, disks: &mut [Disk]) -> Tail {
        let h = self.whole.checkpoint;
        let b = 1 + self.rng.below(u64::from(h.blocks.max(1)));
        let layout = self.layout();
        for t in self.carriers() {
            self.hit(disks, t, Spot::Region(b));
            if let Some(c) = t.1 {
                let old = layout.region_offset(c, Header::region(h.number + 1));
                self.corrupt_block(&mut disks[t.0], old / BLOCK as u64);
            }
        }
        Tail::Whole
    }

    /// Damages a part of the newest checkpoint on primary and mirror; sometimes its header stays complete.
    pub(super) fn lose_newest(&mut self, disks: &mut [Disk]) {
        let h = self.whole.checkpoint;
        let b = if h.blocks == 0 || self.rng.one_in(4) {
            0
        } else {
            1 + self.rng.below(u64::from(h.blocks))
        };
        for t in self.carriers() {
            self.hit(disks, t, Spot::Region(b));
        }
    }

    /// Damages the newest blocks of the primary's journal: those that the mirror lacks, and sometimes the newest block of the mirror, too.
    pub(super) fn lose_tail(&mut self, disks: &mut [Disk]) -> Tail {
        let carriers = self.carriers();
        let (start, end) = (
            self.whole.checkpoint.start.next_seq,
            self.whole.tip.next_seq,
        );
        let mirror = carriers[carriers.len() - 1];
        let known = (start..end).take_while(|&seq| self.has(disks, mirror, seq));
        let lacked = start + known.count() as u64;
        let from = (lacked - u64::from(lacked > start && self.rng.one_in(3))).min(end);
        for seq in from..end {
            self.hit(disks, carriers[0], Spot::Ring(seq));
        }
        Tail::Hit
    }

    /// Whether a place has block `seq` of the journal.
    fn has(&self, disks: &[Disk], t: Target, seq: u64) -> bool {
        let b = self.block(t, Spot::Ring(seq));
        b.is_some_and(|b| self.seq(&disks[t.0], b) == Some(seq))
    }

    /// Blocks of the journal that both primary and mirror have.
    fn shared(&self, disks: &[Disk]) -> Vec<u64> {
        let carriers = self.carriers();
        let all = self.whole.checkpoint.start.next_seq..self.whole.tip.next_seq;
        all.filter(|&seq| carriers.iter().all(|&t| self.has(disks, t, seq)))
            .collect()
    }

    /// Chooses the blocks to damage.
    fn spots(&mut self) -> Vec<Spot> {
        let (start, end) = (
            self.whole.checkpoint.start.next_seq,
            self.whole.tip.next_seq,
        );
        let ring = u64::from(self.layout().area.ring_blocks);
        match self.rng.below(11) {
            0 => vec![Spot::Head(0)],
            1 => vec![Spot::Copy],
            2 => vec![Spot::Head(2 + self.rng.below(2))],
            3 => vec![Spot::Region(0)],
            4 | 5 => {
                let blocks = u64::from(self.whole.checkpoint.blocks.max(1));
                vec![Spot::Region(1 + self.rng.below(blocks))]
            }
            6 => (0..ring).map(Spot::Ring).collect(),
            7 => {
                let at = start + self.rng.below((end - start).max(1));
                (0..=self.rng.below(6))
                    .map(|i| Spot::Ring(at + i))
                    .collect()
            }
            8 => vec![Spot::Mark(self.rng.below(2))],
            _ => vec![Spot::Ring(start + self.rng.below((end - start).max(1)))],
        }
    }

    /// Damages a block.
    fn hit(&mut self, disks: &mut [Disk], t: Target, spot: Spot) {
        if let Some(b) = self.block(t, spot) {
            self.log.push(format!("member {} block {b}", t.0));
            self.corrupt_block(&mut disks[t.0], b);
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
