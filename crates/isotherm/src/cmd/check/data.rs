//! `check --data`: reads everything that the volume holds, so that a place that cannot be read any more is found before it is needed. Blocks
//! that exist twice, at the home and in a clean copy, are compared.

use std::path::Path;

use isotherm_answers::{CheckedData, Range};
use isotherm_control::data_check::{DataChecks, ranges};
use isotherm_core::store::{Media, Opened};
use isotherm_core::{ExtentId, Slot};
use isotherm_live::VolumeConfig;
use isotherm_live::loss::Ranges;
use isotherm_live::scrub::Found;

use super::Check;
use crate::progress::Progress;

/// Size of a read after a larger one has failed, in bytes.
const SMALL: usize = 4096;

/// The findings about the data of a volume.
#[derive(Default)]
struct Data {
    /// Bytes that were read.
    read: u64,
    /// Byte ranges of the volume that can be read from no member.
    lost: Ranges,
    /// Byte ranges of the volume that differ between home and copy.
    differing: Ranges,
}

/// The findings about byte ranges of the volume.
pub(super) fn in_findings(lost: &[Range], differing: &[Range]) -> Vec<String> {
    let words = [
        (
            lost,
            "cannot be read from any member: restore them from a backup",
        ),
        (
            differing,
            "differ between the copy and the slowest tier: one of the devices has changed them; compare the files there with a backup",
        ),
    ];
    let all = words
        .iter()
        .flat_map(|(ranges, what)| ranges.iter().map(move |r| (r, what)));
    all.map(|(r, what)| format!("bytes {} to {} of the volume {what}", r.from, r.to))
        .collect()
}

/// Keeps the outcome for `status` and for the server of the volume, which show damage until a check finds none. The outcome of a check while
/// it was served stays if this one says the same.
pub(super) fn tell_status(volume: &Path, config: &VolumeConfig, found: &Found) {
    let checks = DataChecks::load(volume, config.uuid.as_deref());
    if checks.figures().last.map(|last| last.ok) != Some(found.is_well()) {
        checks.keep(found);
    }
}

impl Check<'_> {
    /// Reads the data of an opened volume; adds what is wrong to the findings. Returns the part of the answer, and the outcome to keep.
    pub(super) fn data(&mut self, opened: &Opened) -> (CheckedData, Found) {
        let (map, geo) = (&opened.space.map, &opened.space.geo);
        // In the order of the homes, which is that of the disk.
        let mut all: Vec<(Slot, ExtentId)> = (0..geo.extents)
            .map(ExtentId)
            .filter(|&e| !map.is_gone(e))
            .filter_map(|e| Some((map.home(e)?, e)))
            .collect();
        all.sort_unstable();
        let total = (all.len() as u64 + u64::from(map.copied())) << geo.extent_shift;
        let progress = Progress::files();
        let (mut data, known) = (Data::default(), self.findings.len());
        for (home, e) in all {
            self.extent(opened, home, e, &mut data);
            progress.file("data", data.read, total);
        }
        progress.finish();
        let bad_places = self.findings[known..].to_vec();
        let read = CheckedData {
            read_bytes: data.read,
            lost: ranges(&data.lost),
            differing: ranges(&data.differing),
            not_compared: Vec::new(),
        };
        self.findings
            .extend(in_findings(&read.lost, &read.differing));
        let found = Found {
            read: data.read,
            lost: data.lost,
            differing: data.differing,
            bad_places,
            ..Found::default()
        };
        (read, found)
    }

    /// Reads the home of an extent, and its copy if it has one.
    fn extent(&mut self, opened: &Opened, home: Slot, e: ExtentId, data: &mut Data) {
        let (map, geo) = (&opened.space.map, &opened.space.geo);
        let block = 1u64 << geo.block_shift;
        let base = u64::from(e.0) << geo.extent_shift;
        let at_home = self.slot(opened, home, e, data);
        let copied = map.copy(e).map(|s| self.slot(opened, s, e, data));
        if copied.is_none() && at_home.bad.is_empty() {
            return;
        }
        for b in 0..geo.blocks_per_extent() {
            let of = |half: &'_ Half| half.has(b, block as usize);
            let (dirty, in_copy) = match copied {
                Some(_) => (map.dirty_run(e, b, b + 1).1, map.copy_run(e, b, b + 1).1),
                None => (false, false),
            };
            let from_home = (map.run(e, b, b + 1).1 && !dirty).then(|| of(&at_home));
            let from_copy = copied.as_ref().filter(|_| in_copy || dirty);
            let ranges = match (from_home, from_copy.map(of)) {
                (Some(true), Some(true))
                    if from_copy.is_some_and(|c| c.block(b, block) != at_home.block(b, block)) =>
                {
                    &mut data.differing
                }
                (Some(false) | None, Some(false)) | (Some(false), None) => &mut data.lost,
                _ => continue,
            };
            let at = base + u64::from(b) * block;
            match ranges.last_mut().filter(|r| r.1 == at) {
                Some(last) => last.1 += block,
                None => ranges.push((at, at + block)),
            }
        }
    }

    /// Reads a slot; if that fails, in small parts. Places that cannot be read are findings about the device.
    fn slot(&mut self, opened: &Opened, slot: Slot, e: ExtentId, data: &mut Data) -> Half {
        let geo = &opened.space.geo;
        let (m, start) = geo.locate(slot);
        let mut half = Half {
            bytes: vec![0; geo.extent_bytes() as usize],
            bad: Vec::new(),
        };
        data.read += half.bytes.len() as u64;
        if opened.report.missing.contains(&m) {
            half.bad = vec![true; half.bytes.len() / SMALL];
            return half;
        }
        if self.media.read(m, start, &mut half.bytes).is_ok() {
            return half;
        }
        for (at, part) in (start..).step_by(SMALL).zip(half.bytes.chunks_mut(SMALL)) {
            half.bad.push(self.media.read(m, at, part).is_err());
        }
        let bad = half.bad.iter().filter(|b| **b).count();
        if bad > 0 {
            let why = self.media.last_error().map(|e| format!(" ({e})"));
            let first = half.bad.iter().position(|b| *b).unwrap_or(0);
            let at = start + (first * SMALL) as u64;
            let what = format!(
                "{bad} places of {SMALL} bytes in extent {e} cannot be read, the first at byte {at}{}",
                why.unwrap_or_default()
            );
            self.find(usize::from(m.0), what);
        }
        half
    }
}

/// A slot that was read.
struct Half {
    bytes: Vec<u8>,
    /// For each part of [`SMALL`] bytes, whether it cannot be read; empty if all can.
    bad: Vec<bool>,
}

impl Half {
    fn block(&self, b: u32, size: u64) -> &[u8] {
        &self.bytes[b as usize * size as usize..][..size as usize]
    }

    /// Whether block `b` could be read.
    fn has(&self, b: u32, size: usize) -> bool {
        let at = b as usize * size;
        !(at / SMALL..(at + size).div_ceil(SMALL))
            .any(|i| self.bad.get(i).copied().unwrap_or(false))
    }
}
