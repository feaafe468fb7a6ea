//! The class of data that is being written, before anybody knows which file it belongs to.
//!
//! A file system writes data first and the inode that says whose data it is afterwards, often half a minute later. Until then the layout
//! reader finds no class, and `dss-lru-s` treats the data of a small new file like that of no file at all. The kernel of Differentiated
//! Storage Services tells the class with the write, by the size that the file has so far (4.2.1). Here a run of neighbouring writes stands
//! for the file: each write has the class of a file as long as its run is so far. From 1 MiB on nothing is guessed, because a long run may
//! be of many small files as well as of one large file.

use crate::classes::of_file_size;

/// Runs of this length are not guessed about.
const LONG: u64 = 1 << 20;

/// The run of the latest writes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Guess {
    end: u64,
    bytes: u64,
}

impl Guess {
    /// The class of a write; 0 for long runs.
    pub(crate) fn class(&mut self, offset: u64, len: u32) -> u8 {
        let len = u64::from(len);
        let goes_on = offset == self.end && self.bytes > 0;
        self.bytes = if goes_on {
            self.bytes.saturating_add(len)
        } else {
            len
        };
        self.end = offset.saturating_add(len);
        if self.bytes < LONG {
            of_file_size(self.bytes)
        } else {
            0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::FILE;

    #[test]
    fn a_run_is_a_file_as_long_as_it_is_so_far() {
        let mut g = Guess::default();
        assert_eq!(g.class(0, 4096), FILE);
        assert_eq!(g.class(4096, 12 << 10), FILE + 1, "16 KiB by now");
        assert_eq!(g.class(16 << 10, 1 << 10), FILE + 2);
        assert_eq!(g.class(1 << 30, 4096), FILE, "another run");
        assert_eq!(g.class((1 << 30) + 4096, (1 << 20) - 8192), FILE + 4);
        assert_eq!(g.class((1 << 30) + (1 << 20) - 4096, 4096), 0, "1 MiB");
        assert_eq!(g.class((1 << 30) + (1 << 20), 4096), 0, "and longer");
        assert_eq!(g.class(u64::MAX, u32::MAX), 0, "no place: refused later");
    }
}
