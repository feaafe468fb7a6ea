//! Finds the file systems on a volume and keeps their layouts up to date.

use crate::classes::Source;
use crate::ext::{Bytes, Ext, ExtError, Refreshed};
use crate::layers::Layers;
use crate::partitions;
use crate::watch::Watch;
use crate::xfs::{Xfs, XfsError};
use std::fmt;
use std::ops::Range;

/// Counters of readings of the layout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Looks {
    /// Readings of everything.
    pub full: u64,
    /// Readings of only what was written.
    pub refreshes: u64,
    /// Ranges of metadata that were written.
    pub ranges: u64,
    /// Readings that ended early: the volume could not be read, or the file system is damaged.
    pub failed: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Layout {
    found: Vec<Ext>,
    xfs: Vec<Xfs>,
    starts: Vec<u64>,
    /// The counters.
    pub looks: Looks,
    /// The last failure of a reading, in words.
    pub trouble: Option<String>,
}

impl Layout {
    /// The ext2, ext3 and ext4 file systems.
    pub fn file_systems(&self) -> &[Ext] {
        &self.found
    }

    /// The XFS file systems.
    pub fn xfs(&self) -> &[Xfs] {
        &self.xfs
    }

    /// The byte ranges of the volume, in order, that are set aside for inodes and were never used.
    pub fn unused_inodes(&self) -> Vec<Range<u64>> {
        let mut all: Vec<_> = self.found.iter().flat_map(Ext::unused_inodes).collect();
        all.sort_unstable_by_key(|r| r.start);
        all
    }

    /// Memory in bytes, without the map.
    pub fn memory(&self) -> usize {
        self.found.iter().map(Ext::memory).sum()
    }

    /// Searches for file systems and reads their layouts from scratch.
    pub fn read(&mut self, from: &mut dyn Bytes, layers: &mut Layers, watch: &Watch) {
        self.looks.full += 1;
        self.trouble = None;
        let bytes = layers.bytes();
        self.starts = partitions::starts(from, bytes);
        // The superblock of ext is in the second kilobyte, that of XFS in the first. Only as many are used as can be watched.
        let (ext, xfs) = (
            self.starts.iter().map(|s| s + 1024),
            self.starts.iter().copied(),
        );
        let watched: Vec<u64> = [510].into_iter().chain(ext).chain(xfs).collect();
        watch.probe(&watched);
        self.found.clear();
        self.xfs.clear();
        for &start in &self.starts.clone() {
            match Ext::find(from, start, bytes) {
                Ok(ext) => self.found.push(ext),
                Err(ExtError::NotExt(_)) => match Xfs::find(from, start, bytes) {
                    Ok(xfs) => self.xfs.push(xfs),
                    Err(XfsError::NotXfs(_)) => {}
                    Err(e) => self.failed(&e),
                },
                Err(e) => self.failed(&e),
            }
        }
        // There is one map for all file systems. It has the smallest of their block sizes, and a base at which all of them are aligned.
        let ext = (self.found.iter()).map(|e| (e.superblock().block_shift, e.start()));
        let xfs = (self.xfs.iter()).map(|x| (x.superblock().block_shift, x.start()));
        let all: Vec<(u32, u64)> = ext.chain(xfs).collect();
        let Some(first) = all.first() else {
            return layers.clear(Source::Layout, 0, 12);
        };
        let shift = all.iter().map(|a| a.0).min().unwrap_or(12).min(12);
        let base = first.1 % (1 << shift);
        self.found.retain(|e| e.start() % (1 << shift) == base);
        self.xfs.retain(|x| x.start() % (1 << shift) == base);
        layers.clear(Source::Layout, base, shift);
        let mut xfs = std::mem::take(&mut self.xfs);
        for x in &mut xfs {
            x.place(base, shift);
            if let Err(e) = x.read(from, layers) {
                self.failed(&e);
            }
        }
        self.xfs = xfs;
        let mut found = std::mem::take(&mut self.found);
        for ext in &mut found {
            ext.place(base, shift);
            if let Err(e) = ext.read(from, layers) {
                self.failed(&e);
            }
        }
        self.found = found;
    }

    /// Reads again what was written; with `None`, everything.
    pub fn refresh(
        &mut self,
        from: &mut dyn Bytes,
        layers: &mut Layers,
        watch: &Watch,
        written: Option<&[Range<u64>]>,
    ) {
        let Some(written) = written else {
            return self.read(from, layers, watch);
        };
        self.looks.refreshes += 1;
        self.looks.ranges += written.len() as u64;
        let covers = |at: u64| written.iter().any(|r| r.contains(&at));
        let is_ext = |s: u64| self.found.iter().any(|e| e.start() == s);
        let known = |s: u64| is_ext(s) || self.xfs.iter().any(|x| x.start() == s);
        let may_be_new =
            (self.starts.iter()).any(|&s| !known(s) && (covers(s) || covers(s + 1024)));
        let table = covers(510) && partitions::starts(from, layers.bytes()) != self.starts;
        if self.looks.full == 0 || may_be_new || table {
            return self.read(from, layers, watch);
        }
        for i in 0..self.found.len() {
            match self.found[i].refresh(from, layers, written) {
                Ok(Refreshed::Current) => {}
                // A superblock that is no longer valid was overwritten.
                Ok(Refreshed::Another) | Err(ExtError::NotExt(_)) => {
                    return self.read(from, layers, watch);
                }
                Err(e) => self.failed(&e),
            }
        }
        for i in 0..self.xfs.len() {
            match self.xfs[i].refresh(from, layers, written) {
                Ok(Refreshed::Current) => {}
                Ok(Refreshed::Another) | Err(XfsError::NotXfs(_)) => {
                    return self.read(from, layers, watch);
                }
                Err(e) => self.failed(&e),
            }
        }
    }

    fn failed(&mut self, e: &dyn fmt::Display) {
        self.looks.failed += 1;
        self.trouble = Some(e.to_string());
    }
}
