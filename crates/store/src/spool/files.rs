//! The names of a spool's files.

use std::io;
use std::path::{Path, PathBuf};

/// The file of this number.
pub fn path(dir: &Path, number: u32) -> PathBuf {
    dir.join(format!("{number:010}.spool"))
}

/// The numbers of all files, in order.
pub fn numbers(dir: &Path) -> io::Result<Vec<u32>> {
    let mut numbers = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|n| n.strip_suffix(".spool"));
        numbers.extend(number.and_then(|n| n.parse::<u32>().ok()));
    }
    numbers.sort_unstable();
    Ok(numbers)
}
