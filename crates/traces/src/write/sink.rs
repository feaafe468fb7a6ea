//! The file under a writer: it is a `.part` file until it is complete, and compressed as the ending of its name says. Pipes are written
//! directly.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use super::part_of;

/// Level 3, the default of zstd, keeps up with the parser.
const ZSTD_LEVEL: i32 = 3;

/// A file that appears under its name only when it is complete.
pub(super) struct Target {
    pub(super) path: PathBuf,
    pub(super) part: PathBuf,
    published: bool,
    /// Whether the path is a pipe, a terminal or standard output: then it is written directly.
    pub(super) stream: bool,
}

/// Whether the path takes bytes in order and keeps nothing. Standard output may be a file; it is treated like a pipe, too.
pub fn is_stream(path: &Path) -> bool {
    let takes = |t: std::fs::FileType| t.is_fifo() || t.is_char_device() || t.is_socket();
    path == Path::new("/dev/stdout") || path.metadata().is_ok_and(|m| takes(m.file_type()))
}

impl Target {
    pub(super) fn new(path: &Path) -> Target {
        let stream = is_stream(path);
        Target {
            path: path.to_owned(),
            part: if stream {
                path.to_owned()
            } else {
                part_of(path)
            },
            published: false,
            stream,
        }
    }

    fn ending(&self) -> Option<&str> {
        self.path.extension().and_then(|e| e.to_str())
    }

    pub(super) fn compressed(&self) -> bool {
        matches!(self.ending(), Some("zst" | "gz"))
    }

    /// Creates the `.part` file, or opens the stream.
    pub(super) fn create(&self) -> io::Result<File> {
        if self.stream {
            return File::options().append(true).open(&self.path);
        }
        // What is there is left from a run that was killed, or somebody else's link: nothing is written through it.
        let _ = std::fs::remove_file(&self.part);
        File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&self.part)
    }

    /// Creates the `.part` file for a stream, compressed as the name says.
    pub(super) fn sink(&self) -> io::Result<Sink> {
        let file = BufWriter::with_capacity(1 << 18, self.create()?);
        Ok(match self.ending() {
            Some("zst") => Sink::Zstd(zstd::Encoder::new(file, ZSTD_LEVEL)?),
            Some("gz") => Sink::Gzip(flate2::write::GzEncoder::new(
                file,
                flate2::Compression::default(),
            )),
            _ => Sink::Plain(file),
        })
    }

    /// Renames the complete file to its final name.
    pub(super) fn publish(&mut self) -> io::Result<()> {
        if !self.stream {
            std::fs::rename(&self.part, &self.path)?;
        }
        self.published = true;
        Ok(())
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if !self.published && !self.stream {
            // The file may be absent, and nobody can act on a failure here.
            let _ = std::fs::remove_file(&self.part);
        }
    }
}

/// A stream into the `.part` file.
pub(super) enum Sink {
    Plain(BufWriter<File>),
    Zstd(zstd::Encoder<'static, BufWriter<File>>),
    Gzip(flate2::write::GzEncoder<BufWriter<File>>),
}

impl Sink {
    pub(super) fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Sink::Plain(w) => w.write_all(bytes),
            Sink::Zstd(w) => w.write_all(bytes),
            Sink::Gzip(w) => w.write_all(bytes),
        }
    }

    /// Ends the compressed stream and flushes everything to the operating system.
    pub(super) fn finish(self) -> io::Result<()> {
        let mut file = match self {
            Sink::Plain(w) => w,
            Sink::Zstd(w) => w.finish()?,
            Sink::Gzip(w) => w.finish()?,
        };
        file.flush()
    }
}
