//! The key of a cell: a hash of all that determines its result.
//!
//! It covers the arguments that run the cell alone, the text of the data sheets that it names, the size of the trace with its first
//! and last bytes, and the program's version. A trace is not read as a whole: that would take as long as a run.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::Cell;
use crate::LabError;
use crate::sim::Digest;

/// Bytes at each end of a trace that the key covers.
const END: u64 = 64 << 10;

/// The key of a cell whose trace is `trace`.
///
/// # Errors
/// The trace or a data sheet cannot be read.
pub(super) fn of(cell: &Cell, trace: &Path) -> Result<String, LabError> {
    let mut digest = Digest::default();
    let mut mix = |bytes: &[u8]| bytes.iter().for_each(|b| digest.mix(u64::from(*b)));
    mix(env!("CARGO_PKG_VERSION").as_bytes());
    for argument in cell.args() {
        mix(b"\n");
        mix(argument.as_bytes());
    }
    for device in [&cell.fast, &cell.slow].into_iter().flatten() {
        mix(isotherm_models::sheet_text(device)?.as_bytes());
    }
    // The name of a generator determines all of its requests.
    if !isotherm_traces::Source::is_generator(trace) {
        let failed =
            |e: io::Error| LabError::setup(format!("{}: cannot look at: {e}", trace.display()));
        for file in files(trace).map_err(failed)? {
            ends(&file, &mut mix).map_err(failed)?;
        }
    }
    Ok(digest.text())
}

/// The files of a trace: one, or those in its folder.
fn files(trace: &Path) -> io::Result<Vec<PathBuf>> {
    if !trace.is_dir() {
        return Ok(vec![trace.to_owned()]);
    }
    let mut files = fs::read_dir(trace)?
        .map(|entry| Ok(entry?.path()))
        .collect::<io::Result<Vec<_>>>()?;
    files.retain(|f| f.is_file());
    files.sort();
    Ok(files)
}

/// Passes the size of a file, and the bytes at its beginning and end.
fn ends(path: &Path, mix: &mut impl FnMut(&[u8])) -> io::Result<()> {
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    mix(&size.to_le_bytes());
    let mut bytes = Vec::new();
    (&mut file).take(END).read_to_end(&mut bytes)?;
    file.seek(SeekFrom::Start(size.saturating_sub(END)))?;
    file.take(END).read_to_end(&mut bytes)?;
    mix(&bytes);
    Ok(())
}
