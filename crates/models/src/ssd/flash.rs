//! The flash below a drive: the translation layer, its cost in time, and how a sample represents a large drive.
//!
//! A translation layer for every page of a drive takes gigabytes of memory per terabyte. So on a drive with more than [`PAGES_MAX`] pages,
//! only one page in each group of 2ⁿ neighbours is simulated. A hash of the group's number chooses it, and the sample has the same share of
//! spare space as the drive. Every page written then pays the mean cost of the sample's recent writes. On a preconditioned drive this mean
//! begins with the closed-form value. Uniform writes, and runs longer than a group, amplify as on the whole drive. If a workload touches
//! fewer pages than some thousand groups, its amplification has the noise of a small sample.

use super::ftl::{Ftl, Work, greedy_write_amplification};
use super::sheet::{FtlSheet, Rated, SsdSheet};
use crate::options::{FlashState, Options};

/// Most logical pages that are simulated: 2 to 3 MiB of memory for a drive of any size.
const PAGES_MAX: u64 = 1 << 18;
/// Fewest blocks of a layer. For a small member or a sample, blocks are smaller than the sheet's: greedy collection over a handful of blocks
/// does not represent a drive, and neither do blocks of a few pages, whose counts of valid pages differ more.
const BLOCKS_MIN: u64 = 128;
/// Most pages of a block. Collection of larger ones differs by less than a few hundredths, and a sample of such blocks would be few blocks.
const BLOCK_PAGES_MAX: u64 = 256;
/// Fewest pages of a block, unless that leaves less than eight blocks.
const BLOCK_PAGES_MIN: u64 = 64;
/// Garbage collection takes at most this share of the time at a steady-state rate.
const COLLECTION_MAX: f64 = 0.9;

/// See the module.
#[derive(Debug)]
pub(super) struct Flash {
    layer: Ftl,
    page_bytes: u64,
    /// log2 of the number of pages that each simulated page represents.
    shift: u32,
    copy: u64,
    erase: u64,
    pe_cycles: f64,
    /// The share of the drive that is the member's. The drive levels wear over all of its flash.
    share: f64,
    /// Pages that were programmed for the host.
    host_pages: u64,
    /// The page in which the last write ended, if it ended within a page. The drive's buffer merges a write that continues there.
    open_page: Option<u64>,
    last_end: u64,
    /// Copies and erases per host page if only a sample is simulated: a moving mean over about `memory` simulated writes.
    copies: f64,
    erases: f64,
    memory: f64,
    /// Simulated writes since the last collection, and the number of these after which none seems to be needed.
    since: f64,
    pause: f64,
    /// The number of copies and erases so far.
    copied: f64,
    erased: f64,
    /// Number of blocks of the drive by its sheet.
    blocks: f64,
    /// Unit-nanoseconds of a host page without garbage collection.
    programming: u64,
    /// Unit-nanoseconds of collection that replace the flash which an idle drive keeps erased, and those that are due when the run begins.
    put_off: u64,
    owed: u64,
}

impl Flash {
    /// The flash of a drive on which a random host page takes `occupied` unit-nanoseconds, by its sheet. `None` if the sheet has no flash
    /// layer or the options ask for ideal flash.
    pub fn new(sheet: &SsdSheet, options: &Options, occupied: u64) -> Option<Flash> {
        let f = sheet.ftl.as_ref()?;
        if matches!(options.flash, FlashState::Ideal | FlashState::Rated) {
            return None;
        }
        let bytes = if options.size == 0 {
            sheet.capacity
        } else {
            options.size.min(sheet.capacity)
        };
        let page_bytes = u64::from(f.page_kib) * 1024;
        let pages = bytes.div_ceil(page_bytes).max(1);
        let shift = pages.div_ceil(PAGES_MAX).next_power_of_two().ilog2();
        let spare = options.over_provisioning.unwrap_or(f.over_provisioning);
        let logical = pages.div_ceil(1 << shift);
        let physical = (logical as f64 * (1.0 + spare)) as u64;
        let sheets = u64::from(f.pages_per_block);
        let small = BLOCK_PAGES_MIN.min(physical / 8).max(8);
        let block = sheets
            .min(BLOCK_PAGES_MAX)
            .min((physical / BLOCKS_MIN).max(small));
        let (programming, scale) = programming(f, occupied as f64);
        let mut layer = Ftl::new(logical as u32, block as u32, spare);
        let ns = |us: f64| (us * 1e3 * scale) as u64;
        // Smaller blocks are erased more often, and each page costs the same.
        let (copy, erase) = (ns(f.copy_us), ns(f.erase_us) * block / sheets);
        let amplification = greedy_write_amplification(spare);
        let usual = (amplification - 1.0, amplification / block as f64);
        // The whole drive's: what it keeps erased takes the writes of any member.
        let drive = sheet.capacity.div_ceil(page_bytes) as f64;
        let put_off =
            f.erased_ahead * spare * drive * (usual.0 * copy as f64 + usual.1 * erase as f64);
        let (mut copies, mut erases, mut owed) = (0.0, 0.0, 0.0);
        if options.flash == FlashState::Preconditioned {
            layer.age();
            (copies, erases) = usual;
            // The random overwrites have used up what was erased.
            owed = put_off;
        }
        Some(Flash {
            layer,
            page_bytes,
            shift,
            copy,
            erase,
            pe_cycles: f.pe_cycles,
            share: bytes as f64 / sheet.capacity as f64,
            host_pages: 0,
            open_page: None,
            last_end: 0,
            copies,
            erases,
            memory: 4.0 * block as f64,
            since: 0.0,
            pause: 2.0 * block as f64,
            copied: 0.0,
            erased: 0.0,
            blocks: (pages as f64 * (1.0 + spare) / block as f64).max(1.0),
            programming: programming as u64,
            put_off: put_off as u64,
            owed: owed as u64,
        })
    }

    /// Unit-nanoseconds of a random host page besides garbage collection.
    pub fn left_for_programming(&self) -> u64 {
        self.programming
    }

    /// Unit-nanoseconds of collection that can wait for idle time.
    pub fn put_off(&self) -> u64 {
        self.put_off
    }

    /// Unit-nanoseconds of collection that are due when the run begins.
    pub fn owed(&self) -> u64 {
        self.owed
    }

    /// The host writes `len` bytes at `offset`. Returns the unit-nanoseconds of garbage collection that this causes.
    #[inline]
    pub fn write(&mut self, offset: u64, len: u32) -> u64 {
        if len == 0 {
            return 0;
        }
        let end = offset + u64::from(len);
        let (mut first, last) = (offset / self.page_bytes, (end - 1) / self.page_bytes);
        // The rest of a page whose beginning is still in the buffer needs no programming of its own.
        if offset == self.last_end && self.open_page == Some(first) {
            first += 1;
        }
        self.last_end = end;
        self.open_page = (!end.is_multiple_of(self.page_bytes)).then_some(last);
        if first > last {
            return 0;
        }
        self.host_pages += last - first + 1;
        if self.shift == 0 {
            let work = self.layer.write(first, last);
            return u64::from(work.copies) * self.copy + u64::from(work.erases) * self.erase;
        }
        self.write_sample(first, last)
    }

    /// Writes pages `first..=last` of a drive of which only a sample is simulated.
    fn write_sample(&mut self, first: u64, last: u64) -> u64 {
        for group in first >> self.shift..=last >> self.shift {
            if (first..=last).contains(&followed(group, self.shift)) {
                let work = self.layer.write(group, group);
                self.note(work);
            }
        }
        let pages = (last - first + 1) as f64;
        let (copies, erases) = (pages * self.copies, pages * self.erases);
        self.copied += copies;
        self.erased += erases;
        (copies * self.copy as f64 + erases * self.erase as f64) as u64
    }

    /// Adds a simulated write to the moving means. A collection is for all writes since the last one.
    fn note(&mut self, work: Work) {
        self.since += 1.0;
        if work.erases > 0 {
            let part = (self.since / self.memory).min(1.0);
            self.copies += (f64::from(work.copies) / self.since - self.copies) * part;
            self.erases += (f64::from(work.erases) / self.since - self.erases) * part;
            self.since = 0.0;
        } else if self.since > self.pause {
            self.copies -= self.copies / self.memory;
            self.erases -= self.erases / self.memory;
        }
    }

    /// The host discards a range. Only whole pages in it are discarded.
    pub fn discard(&mut self, offset: u64, len: u32) {
        let first = offset.div_ceil(self.page_bytes);
        let end = (offset + u64::from(len)) / self.page_bytes;
        if first >= end {
            return;
        }
        for group in first >> self.shift..=(end - 1) >> self.shift {
            if self.shift == 0 || (first..end).contains(&followed(group, self.shift)) {
                self.layer.discard(group, group + 1);
            }
        }
    }

    /// Pages programmed and blocks erased since the drive was made, extrapolated to the whole drive.
    pub fn programmed_and_erased(&self) -> (u64, u64) {
        let (copied, erases) = if self.shift == 0 {
            self.layer.copied_and_erased()
        } else {
            (self.copied as u64, self.erased as u64)
        };
        (self.host_pages + copied, erases)
    }

    /// Bytes of the pages programmed.
    pub fn bytes_programmed(&self) -> u64 {
        self.programmed_and_erased().0 * self.page_bytes
    }

    /// Life used in 10⁻⁶, by the mean number of erases; `None` if the sheet does not state the number of cycles.
    pub fn wear_eu(&self) -> Option<f64> {
        let mean = if self.shift == 0 {
            self.layer.mean_erases()
        } else {
            self.erased / self.blocks
        };
        (self.pe_cycles > 0.0).then(|| mean * self.share * 1e6 / self.pe_cycles)
    }

    /// Bytes of the layer's tables.
    pub fn memory_bytes(&self) -> usize {
        self.layer.memory_bytes()
    }
}

/// The page of a group that is simulated.
#[inline]
fn followed(group: u64, shift: u32) -> u64 {
    let hash = group.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    (group << shift) | (hash & ((1 << shift) - 1))
}

/// The part of `occupied` that is left for programming a host page, and the factor by which collection must be cheaper than with the
/// sheet's typical times. With both, uniform random writes with collection reach the rate that is stated for the steady state.
pub(super) fn programming(f: &FtlSheet, occupied: f64) -> (f64, f64) {
    if f.rated == Rated::Fresh {
        return (occupied, 1.0);
    }
    let amplification = greedy_write_amplification(f.over_provisioning);
    let ns = (amplification - 1.0) * f.copy_us * 1e3
        + amplification / f64::from(f.pages_per_block) * f.erase_us * 1e3;
    let scale = (COLLECTION_MAX * occupied / ns).min(1.0);
    (occupied - ns * scale, scale)
}
