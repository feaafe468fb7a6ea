//! `isotherm record --events`: records all inputs and decisions of a served volume's engine.

use std::fs::File;
use std::io::{BufReader, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use isotherm_answers::{EventsEnding, RecordedEvents};
use isotherm_events::{Ending, summary};

use super::recording::{self, End};
use crate::Failure;
use crate::args::RecordArgs;
use crate::control::Request;
use crate::control::client::served;

/// Interval between two checks for the end of the recording.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Time limit for events in progress when the recording is asked to end.
const LAST: Duration = Duration::from_secs(30);

/// Records until it is told to stop, the limit is reached or the volume stops.
///
/// # Errors
/// The volume is not served or already recorded, or the recording was cut; the file then holds the events up to the cut.
pub fn run(args: &RecordArgs) -> Result<(), Failure> {
    let mut end = End::after(args.seconds)?;
    let mut client = served(&args.volume)?;
    let mut file = isotherm_paths::create(&args.out, 0o600).map_err(|e| match e.kind() {
        ErrorKind::AlreadyExists => recording::exists(&args.out),
        _ => Failure::file(&args.out, "create", &e),
    })?;
    if let Err(e) = client.ask(&Request::Events { limit: args.limit }) {
        // Nothing was recorded, and an empty file would only block the name.
        let _ = std::fs::remove_file(&args.out);
        return Err(e);
    }
    crate::log::note(format_args!(
        "isotherm: recording the events of {} to {}",
        args.volume.display(),
        args.out.display()
    ));
    end.begin();
    receive(client.into_stream(), &mut file, args, &end).inspect_err(|_| {
        // What was recorded until the cut can be replayed; if it is nothing, the file would only block the name.
        if file.metadata().is_ok_and(|m| m.len() == 0) {
            let _ = std::fs::remove_file(&args.out);
        }
    })?;
    let length = file
        .sync_all()
        .and_then(|()| file.metadata())
        .map_err(|e| Failure::file(&args.out, "write", &e))?
        .len();
    let whole =
        summary(&args.out).map_err(|e| Failure::failed(format!("{}: {e}", args.out.display())))?;
    let last = whole.end;
    let result = RecordedEvents {
        volume: args.volume.to_string_lossy().into_owned(),
        out: args.out.to_string_lossy().into_owned(),
        events: last.events,
        requests: last.requests,
        bytes: length,
        ending: ending(last.ending),
    };
    args.json.print(&result, || {
        let why = match last.ending {
            Ending::Asked | Ending::Closed => "",
            Ending::FellBehind => ", ended early because the writer fell behind the engine",
            Ending::Untold => ", ended early because the engine was changed behind its back",
        };
        format!(
            "{}: {} events, {} requests, {length} bytes{why}\n",
            args.out.display(),
            last.events,
            last.requests
        )
    })
}

/// Why a recording ended, as answers have it.
pub(crate) fn ending(ending: Ending) -> EventsEnding {
    match ending {
        Ending::Asked => EventsEnding::Asked,
        Ending::Closed => EventsEnding::Closed,
        Ending::FellBehind => EventsEnding::FellBehind,
        Ending::Untold => EventsEnding::Untold,
    }
}

/// Writes the data from `stream` to `file` until the other side closes it. When told to stop, it asks for the rest.
fn receive(
    mut stream: BufReader<UnixStream>,
    file: &mut File,
    args: &RecordArgs,
    end: &End,
) -> Result<(), Failure> {
    let broken = |e: &std::io::Error| {
        Failure::failed(format!(
            "the recording broke off: {}",
            crate::failure::reason(e)
        ))
    };
    let timeout = stream.get_ref().set_read_timeout(Some(CHECK_INTERVAL));
    timeout.map_err(|e| broken(&e))?;
    // Set when the volume was asked to end the recording.
    let mut latest: Option<Instant> = None;
    let mut bytes = vec![0; 1 << 18];
    loop {
        if latest.is_some_and(|l| Instant::now() >= l) {
            return Err(Failure::failed(
                "the recording broke off: the volume does not answer",
            ));
        }
        if latest.is_none() && end.is_due() {
            latest = Some(Instant::now() + LAST);
            let ended = stream.get_ref().shutdown(Shutdown::Write);
            ended.map_err(|e| broken(&e))?;
        }
        match stream.read(&mut bytes) {
            Ok(0) => return Ok(()),
            Ok(n) => file
                .write_all(&bytes[..n])
                .map_err(|e| Failure::file(&args.out, "write", &e))?,
            Err(e)
                if matches!(
                    e.kind(),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                ) => {}
            Err(e) => return Err(broken(&e)),
        }
    }
}
