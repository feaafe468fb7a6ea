//! The parts of a device that can hold signatures, read once.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes at the start: the last copy of a LUKS2 header is at 4 MiB.
const HEAD: u64 = (4 << 20) + (64 << 10);
/// Bytes at the end: two ZFS labels, whose places are rounded down to 256 KiB.
const TAIL: u64 = 1 << 20;
/// btrfs keeps copies of its superblock here.
const COPIES: [u64; 2] = [64 << 20, 256 << 30];
/// Size of one read or erase.
const PIECE: u64 = 4096;

/// See the module.
pub(super) struct Window {
    parts: Vec<(u64, Vec<u8>)>,
    bytes: u64,
}

/// First byte and length of each part of a device of `bytes`, in order, without overlap.
fn places(bytes: u64) -> Vec<(u64, u64)> {
    let head = HEAD.min(bytes);
    let tail = (bytes.saturating_sub(TAIL) / PIECE * PIECE).max(head);
    let copies = COPIES
        .into_iter()
        .filter(|&at| at >= head && at + PIECE <= tail);
    std::iter::once((0, head))
        .chain(copies.map(|at| (at, PIECE)))
        .chain([(tail, bytes - tail)])
        .filter(|p| p.1 != 0)
        .collect()
}

impl Window {
    /// Reads them through the page cache, so that alignment and odd sizes do not matter.
    pub(super) fn read(file: &File, bytes: u64) -> io::Result<Window> {
        let mut parts = Vec::new();
        for (at, len) in places(bytes) {
            let mut part = vec![0; len as usize];
            file.read_exact_at(&mut part, at)?;
            parts.push((at, part));
        }
        Ok(Window { parts, bytes })
    }

    /// Size of the device.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// `len` bytes at `at`, if they are in one of the parts.
    pub(super) fn get(&self, at: u64, len: usize) -> Option<&[u8]> {
        self.parts.iter().find_map(|(start, part)| {
            let from = usize::try_from(at.checked_sub(*start)?).ok()?;
            part.get(from..from.checked_add(len)?)
        })
    }

    /// Fills all parts with zeros; writes only where the contents differ, so that holes of a sparse file stay.
    pub(super) fn erase(&self, file: &File) -> io::Result<()> {
        let zeros = [0; PIECE as usize];
        for (at, part) in &self.parts {
            for (piece, at) in part
                .chunks(PIECE as usize)
                .zip((*at..).step_by(PIECE as usize))
            {
                if piece.iter().any(|&b| b != 0) {
                    file.write_all_at(&zeros[..piece.len()], at)?;
                }
            }
        }
        file.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_the_places_and_do_not_overlap() {
        for bytes in [
            0,
            1,
            512,
            4096,
            HEAD,
            HEAD + 1,
            HEAD + TAIL,
            64 << 20,
            (64 << 20) + 100,
            3 << 38,
        ] {
            let places = places(bytes);
            assert!(
                places.windows(2).all(|p| p[0].0 + p[0].1 <= p[1].0),
                "{bytes}: {places:?}"
            );
            let reach = places.last().map_or(0, |p| p.0 + p.1);
            assert_eq!(reach, bytes, "{places:?}");
        }
        assert!(places(3 << 38).contains(&(256 << 30, 4096)));
    }
}
