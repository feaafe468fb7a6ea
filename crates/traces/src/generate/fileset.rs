//! A set of files in a tree of directories, as Filebench, Postmark and the generators of DSS create it.

use isotherm_core::Nanos;
use rand::RngExt;

use super::param::{Param, Values};
use super::run::Rng;
use crate::layout::{Config, FileSystem, Ino, LayoutError};

/// Whether deleting a file discards its blocks on the disk.
pub(super) const DISCARD: Param = Param::switch(
    "discard",
    false,
    "what is deleted is discarded at once (Loris V-D2; off: the disk does not learn of it)",
);
/// The number of names and inodes that are cached in addition to the page cache.
pub(super) const INODES: Param = Param::count(
    "inodes",
    65_536,
    (1, 1 << 30),
    "inodes in memory beside the page cache, not scaled (assumed)",
);

/// The room of a file: with the size of an extent, one file has one extent.
pub(super) const ROOM: Param = Param::bytes(
    "room",
    0,
    (0, 256 << 10),
    "a file begins at a multiple of this in room of its own, so that extents of this size hold one file; 0: side by side",
);
/// The part of a file-level workload's parameters that describes the volume.
pub(super) fn config(v: &Values, data_bytes: f64, files: u64) -> Config {
    // Space for the data, its rounding to blocks, the inode tables and journals, and a quarter in reserve for good allocation.
    let needed = (data_bytes + files as f64 * 6144.0) * 1.25 + f64::from(128 << 20);
    let bytes_per_inode = (data_bytes / files.max(1) as f64 / 2.0).clamp(4096.0, 16_384.0) as u32;
    let usual = Config::default();
    let room = if v.has("room") { v.real("room") } else { 0.0 };
    let needed = needed + files as f64 * room * 1.25;
    let inodes = v.has("inodes").then(|| v.count("inodes") as u32);
    Config {
        discard: v.has("discard") && v.on("discard"),
        room_blocks: (room / 4096.0) as u32,
        inode_cache: inodes.unwrap_or(usual.inode_cache),
        bytes: (needed as u64).next_multiple_of(128 << 20).min(16 << 40),
        bytes_per_inode: bytes_per_inode / 4096 * 4096,
        cache_bytes: (v.real("cache") * v.scale) as u64,
        ..usual
    }
}

/// The interval at which the caches are emptied, if they are.
pub(super) fn drop_every(v: &Values) -> Option<Nanos> {
    let seconds = v.real("drop");
    (seconds > 0.0).then_some(Nanos((seconds * 1e9) as u64))
}

/// A set from which files can be drawn, added and removed in constant time.
#[derive(Debug, Default)]
pub(super) struct FileSet {
    pub directories: Vec<Ino>,
    pub files: Vec<Ino>,
}

impl FileSet {
    /// Directories in one level below the root.
    pub fn flat(fs: &mut FileSystem, directories: u64) -> Result<FileSet, LayoutError> {
        let root = fs.root();
        let made: Result<Vec<Ino>, LayoutError> =
            (0..directories).map(|_| fs.mkdir(root)).collect();
        Ok(FileSet {
            directories: made?,
            files: Vec::new(),
        })
    }

    /// A tree in which each directory has `width` entries and whose leaves have room for `files`.
    pub fn tree(fs: &mut FileSystem, files: u64, width: u64) -> Result<FileSet, LayoutError> {
        let top = fs.root();
        let mut level = vec![fs.mkdir(top)?];
        let leaves = files.div_ceil(width);
        while (level.len() as u64) < leaves {
            let want = leaves.min(level.len() as u64 * width);
            let mut next = Vec::with_capacity(want as usize);
            for i in 0..want {
                next.push(fs.mkdir(level[(i / width) as usize % level.len()])?);
            }
            level = next;
        }
        Ok(FileSet {
            directories: level,
            files: Vec::new(),
        })
    }

    /// A file of `size` bytes in a random directory.
    pub fn add(
        &mut self,
        fs: &mut FileSystem,
        rng: &mut Rng,
        size: u64,
    ) -> Result<(), LayoutError> {
        let directory = self.directories[rng.random_range(0..self.directories.len())];
        self.add_in(fs, directory, size)
    }

    /// A file of `size` bytes in `directory`.
    pub fn add_in(
        &mut self,
        fs: &mut FileSystem,
        directory: Ino,
        size: u64,
    ) -> Result<(), LayoutError> {
        let file = fs.create(directory)?;
        fs.write(file, 0, size)?;
        self.files.push(file);
        Ok(())
    }

    /// A random file; `None` if the set is empty.
    pub fn any(&self, rng: &mut Rng) -> Option<Ino> {
        if self.files.is_empty() {
            return None;
        }
        Some(self.files[rng.random_range(0..self.files.len())])
    }

    /// Removes the file at an index; the last file takes its index.
    pub fn remove(&mut self, fs: &mut FileSystem, at: usize) -> Result<(), LayoutError> {
        if at < self.files.len() {
            let file = self.files.swap_remove(at);
            fs.unlink(file)?;
        }
        Ok(())
    }
}
