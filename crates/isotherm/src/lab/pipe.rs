//! Traces that come through a pipe. A trace is read more than once: to find its unit of time, to find the extents that it touches, and
//! to replay it. A pipe delivers its bytes once, so they are kept in a file without a name while the command runs.

use std::fs::File;
use std::io;
use std::os::fd::IntoRawFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use crate::Failure;

/// The path of a copy of what the pipe `path` delivers; `None` if `path` is no pipe.
///
/// The copy is in the directory for temporary files (`TMPDIR`), has no name there, and lasts as long as this process.
///
/// # Errors
/// The pipe cannot be read, or there is no space for the copy.
pub fn kept(path: &Path) -> Result<Option<PathBuf>, Failure> {
    let is_pipe = |t: std::fs::FileType| t.is_fifo() || t.is_socket();
    if !path.metadata().is_ok_and(|m| is_pipe(m.file_type())) {
        return Ok(None);
    }
    let failed = |what: &str, e: io::Error| {
        let folder = std::env::temp_dir();
        Failure::failed(format!(
            "{}: {what} {} (TMPDIR names another directory): {e}",
            path.display(),
            folder.display()
        ))
    };
    let mut pipe = File::open(path)
        .map_err(|e| Failure::failed(format!("{}: cannot open: {e}", path.display())))?;
    let mut copy =
        tempfile::tempfile().map_err(|e| failed("a pipe, but no copy can be made in", e))?;
    let bytes = io::copy(&mut pipe, &mut copy)
        .map_err(|e| failed("a pipe, and it cannot be copied to", e))?;
    // The descriptor stays open until the process ends, and with it the file.
    let there = PathBuf::from(format!("/proc/self/fd/{}", copy.into_raw_fd()));
    crate::log::note(format_args!(
        "isotherm: {}: a pipe: its {bytes} bytes are kept as {} meanwhile, because a trace is read more than once",
        path.display(),
        there.display()
    ));
    Ok(Some(there))
}
