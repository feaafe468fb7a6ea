//! `isotherm record --events`: records all inputs and decisions of a served volume's engine.

use std::fs::File;
use std::io::{BufReader, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use isotherm_traces::events::{Ending, summary};
use serde_json::json;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::Failure;
use crate::args::RecordArgs;
use crate::control::Request;
use crate::control::client::served;

/// Interval between two checks for the end of the recording.
const LOOK: Duration = Duration::from_millis(100);
/// Time limit for events in progress when the recording is asked to end.
const LAST: Duration = Duration::from_secs(30);

/// Records until it is told to stop, the limit is reached or the volume stops.
///
/// # Errors
/// The volume is not served or already recorded, or the recording was cut; the file then holds the events up to the cut.
pub fn run(args: &RecordArgs) -> Result<(), Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))
            .map_err(|e| Failure::failed(format!("cannot watch for signals: {e}")))?;
    }
    let mut client = served(&args.volume)?;
    let mut file = File::create_new(&args.out).map_err(|e| match e.kind() {
        ErrorKind::AlreadyExists => Failure::failed(format!(
            "{}: exists already: choose another name",
            args.out.display()
        )),
        _ => Failure::file(&args.out, "create", &e),
    })?;
    if let Err(e) = client.ask(&Request::Events { limit: args.limit }) {
        // Nothing was recorded, and an empty file would only block the name.
        let _ = std::fs::remove_file(&args.out);
        return Err(e);
    }
    eprintln!(
        "isotherm: recording the events of {} to {}",
        args.volume.display(),
        args.out.display()
    );
    receive(client.into_stream(), &mut file, args, &stop)?;
    let length = file
        .sync_all()
        .and_then(|()| file.metadata())
        .map_err(|e| Failure::file(&args.out, "write", &e))?
        .len();
    let whole =
        summary(&args.out).map_err(|e| Failure::failed(format!("{}: {e}", args.out.display())))?;
    let end = whole.end;
    let result = json!({
        "volume": args.volume, "out": args.out, "events": end.events, "requests": end.requests,
        "bytes": length, "ending": end.ending.name(),
    });
    args.json.print(&result, || {
        let why = match end.ending {
            Ending::Asked | Ending::Closed => "",
            Ending::FellBehind => ", ended early because the writer fell behind the engine",
            Ending::Untold => ", ended early because the engine was changed behind its back",
        };
        format!(
            "{}: {} events, {} requests, {length} bytes{why}\n",
            args.out.display(),
            end.events,
            end.requests
        )
    })
}

/// Writes the data from `stream` to `file` until the other side closes it. When told to stop, it asks for the rest.
fn receive(
    mut stream: BufReader<UnixStream>,
    file: &mut File,
    args: &RecordArgs,
    stop: &AtomicBool,
) -> Result<(), Failure> {
    let broken = |e: &std::io::Error| {
        Failure::failed(format!(
            "the recording broke off: {}",
            crate::failure::reason(e)
        ))
    };
    let timeout = stream.get_ref().set_read_timeout(Some(LOOK));
    timeout.map_err(|e| broken(&e))?;
    let mut until = args
        .seconds
        .map(|s| Instant::now() + Duration::from_secs(s));
    let mut ending = false;
    let mut bytes = vec![0; 1 << 18];
    loop {
        let over = until.is_some_and(|u| Instant::now() >= u);
        if ending && over {
            return Err(Failure::failed(
                "the recording broke off: the volume does not answer",
            ));
        }
        if !ending && (over || stop.load(Ordering::Relaxed)) {
            ending = true;
            until = Some(Instant::now() + LAST);
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
