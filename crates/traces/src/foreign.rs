//! Names files that people mistake for traces, so that the message says what to do with them.

use std::path::Path;

/// What a binary trace of Open CAS is, and what to do.
pub(crate) const OCTF_BINARY: &str = "is a binary trace of Open CAS (OCTF), which only its own program reads: write CSV with `iotrace --trace-parser --io --format csv`";

/// Whether a file is named as one of a binary trace of Open CAS.
pub(crate) fn is_octf_name(path: &Path) -> bool {
    let name = path
        .file_name()
        .and_then(|n| n.to_str())
        .unwrap_or_default();
    ["octf.trace", "octf.summary"]
        .iter()
        .any(|start| name.starts_with(start))
}

/// Whether a file begins as a binary trace of Open CAS: messages, each after its length, that all begin with a header of two numbers.
pub(crate) fn is_octf(mut head: &[u8]) -> bool {
    const ENOUGH: usize = 4;
    // The field 1 of a message (its header), and the fields 1 and 2 of a header (a serial number, omitted if it is 0, and a time).
    const HEADER: u8 = 0x0a;
    const FIELDS: [u8; 2] = [0x08, 0x10];
    for _ in 0..ENOUGH {
        // The messages are short: their length takes one byte, or two.
        let (len, from) = match *head {
            [len @ 4..=0x7f, ..] => (usize::from(len), 1),
            [low @ 0x80..=0xff, high @ 1..=0x7f, ..] => {
                (usize::from(low & 0x7f) | usize::from(high) << 7, 2)
            }
            _ => return false,
        };
        let Some(&[HEADER, inner, field, ..]) = head.get(from..from + len) else {
            return false;
        };
        if usize::from(inner) + 2 > len || !FIELDS.contains(&field) {
            return false;
        }
        head = &head[from + len..];
    }
    true
}

/// What a file that begins with `head` (decompressed) is, and what to do; `None` if it is none of the known kinds.
pub(crate) fn foreign(head: &[u8]) -> Option<&'static str> {
    const KINDS: [(&[u8], &str); 14] = [
        (
            b"PK\x03\x04",
            "it is a zip archive or a spreadsheet: unpack it, or save the sheet as CSV",
        ),
        (b"7z\xbc\xaf\x27\x1c", "it is a 7z archive: unpack it"),
        (b"Rar!\x1a\x07", "it is a RAR archive: unpack it"),
        (
            b"\x28\xb5\x2f\xfd",
            "it is compressed twice: decompress it once",
        ),
        (b"\x1f\x8b", "it is compressed twice: decompress it once"),
        (b"BZh", "it is compressed twice: decompress it once"),
        (
            b"\xfd7zXZ\x00",
            "it is compressed twice: decompress it once",
        ),
        (
            b"\x04\x22\x4d\x18",
            "it is compressed by lz4: decompress it (unlz4)",
        ),
        (
            b"\x1f\x9d",
            "it is compressed by compress: decompress it (uncompress)",
        ),
        (
            b"\xff\xfe",
            "it is text in UTF-16: convert it (iconv -f UTF-16 -t UTF-8)",
        ),
        (
            b"\xfe\xff",
            "it is text in UTF-16: convert it (iconv -f UTF-16 -t UTF-8)",
        ),
        (
            b"\x89HDF",
            "it is an HDF5 file: export the requests as CSV or Parquet",
        ),
        (
            b"SQLite format 3\x00",
            "it is an SQLite database: export the requests as CSV",
        ),
        (
            b"version https://git-lfs",
            "it is only a pointer of Git LFS to the file: fetch it with `git lfs pull`",
        ),
    ];
    if let Some((_, what)) = KINDS.iter().find(|(magic, _)| head.starts_with(magic)) {
        return Some(what);
    }
    if head.get(257..262) == Some(b"ustar") {
        return Some("it is a tar archive: unpack it, and name the trace in it");
    }
    let start = head.trim_ascii_start();
    let start = &start[..start.len().min(16)].to_ascii_lowercase();
    let page = start.starts_with(b"<!doctype html") || start.starts_with(b"<html");
    page.then_some("it is a web page: the download brought a page instead of the file")
}
