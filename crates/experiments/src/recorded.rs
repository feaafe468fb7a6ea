//! Recordings of real mounts of whole files, which are run in addition to the generators: `fixtures/loris-*.parquet` (bench/files/loris.py,
//! `isotherm files record`). They are searched below `$ISOTHERM_TRACES`.
//!
//! A recording has the requests below the page cache. Each file has whole pieces of 64 KiB of its own, so an extent of that size belongs to
//! one file, and a file of at most that size is one extent. Names and attributes are not in it, because the mount answers them from memory.

use std::path::Path;
use std::sync::Arc;

use isotherm_traces::{Options, Record, TraceError};

use crate::{Ctx, Outcome};
use isotherm_lab::LabError;

/// Bytes of a piece of a file.
pub const PIECE: u32 = 64 << 10;
/// Number of clients on the mount, which is the number of requests in flight.
pub const CLIENTS: u32 = 8;

/// A recorded load: its name, and the file.
pub type Load = (&'static str, &'static str);

/// Postmark on the mount.
pub const MAIL: Load = ("Postmark", "loris-mail.parquet");
/// The file server.
pub const FILE: Load = ("file server", "loris-file.parquet");
/// The web server: whole files at random, and a log.
pub const WEB: Load = ("web server", "loris-web.parquet");
/// The web server with Zipf's distribution. In the second half other files are popular.
pub const ZIPF: Load = ("web server, Zipf", "loris-zipf.parquet");
/// All of them.
pub const ALL: [Load; 4] = [MAIL, FILE, WEB, ZIPF];

/// The requests of each load. `None` if a file is missing; the outcome then names it.
///
/// # Errors
/// A file cannot be read.
pub fn read(
    ctx: &Ctx<'_>,
    out: &mut Outcome,
    loads: &[Load],
) -> Result<Option<Vec<Arc<Vec<Record>>>>, LabError> {
    let words = "recordings of whole files on a real mount would be run beside the generators";
    let Some(dir) = &ctx.traces else {
        out.substitutes.push(format!(
            "{words}: set ISOTHERM_TRACES to the folder fixtures of the sources"
        ));
        return Ok(None);
    };
    if let Some((_, file)) = loads.iter().find(|l| !dir.join(l.1).exists()) {
        let dir = dir.display();
        out.substitutes.push(format!("{words}: {dir} lacks {file}"));
        return Ok(None);
    }
    let one = |(_, file): &Load| {
        let path = dir.join(file);
        ctx.once(&path.display().to_string(), || load(&path))
    };
    loads.iter().map(one).collect::<Result<_, _>>().map(Some)
}

/// Whether the user gives a recording of that load.
pub fn is_given(ctx: &Ctx<'_>, name: &str) -> bool {
    ctx.recordings.iter().any(|r| r.0 == name)
}

/// The requests of the recording that the user gives for a load.
///
/// # Errors
/// There is none, or it cannot be read.
pub fn given(ctx: &Ctx<'_>, name: &str) -> Result<Arc<Vec<Record>>, LabError> {
    let found = ctx.recordings.iter().find(|r| r.0 == name);
    let (_, path) = found.ok_or_else(|| {
        LabError::setup(format!(
            "this experiment needs one more recording: --recording {name}=FILE"
        ))
    })?;
    ctx.once(&path.display().to_string(), || load(path))
}

/// The length of a recording in seconds.
pub fn seconds(records: &[Record]) -> f64 {
    let last = records.last().map_or(0, |r| r.time.0);
    let first = records.first().map_or(0, |r| r.time.0);
    last.saturating_sub(first) as f64 / 1e9
}

fn load(path: &Path) -> Result<Vec<Record>, LabError> {
    let reader = isotherm_traces::open(path, &Options::default())?;
    Ok(reader.collect::<Result<_, TraceError>>()?)
}

/// Bytes of the volume that the requests need.
pub fn reach(records: &[Record]) -> u64 {
    let end = records.iter().map(Record::end).max().unwrap_or(0);
    end.next_multiple_of(4 << 20)
}
