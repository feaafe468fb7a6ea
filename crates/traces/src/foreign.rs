//! Names files that people mistake for traces, so that the message says what to do with them.

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
