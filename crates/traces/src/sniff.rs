//! Tells the format from the first bytes of the uncompressed content. Names of files are not looked at.

use crate::format::Format;
use crate::formats::blkreplay;

/// Bytes that [`sniff`] wants to see; fewer are fine where the trace is shorter.
pub const SNIFF_BYTES: usize = 64 << 10;

/// The format of a trace that begins with `head`, if it is clear.
pub fn sniff(head: &[u8]) -> Option<Format> {
    let lines = || head.split(|&c| c == b'\n');
    if lines().any(blkreplay::is_column_line)
        || lines().next().is_some_and(blkreplay::looks_like_record)
    {
        return Some(Format::Blkreplay);
    }
    None
}
