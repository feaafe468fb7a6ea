//! Serves a volume in memory as a block file until standard input ends, for benchmarks and manual tests.
//!
//! ```text
//! block_file_mem DIR NAME SIZE_MIB [threads=N] [handoff=MICROSECONDS] [pump=MICROSECONDS]
//! ```
//!
//! Without `handoff`, requests complete on the session thread. With it, they complete on a thread of their own, as in the real engine,
//! which polls for work for that long before it sleeps. With `pump`, one thread takes requests from the kernel and carries them out, as the
//! engine's thread can; it polls for that long before it sleeps. Prints `ready` once I/O works.

use std::error::Error;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use isotherm_live::block_file::testing::{Handoff, MemPort};
use isotherm_live::block_file::{Options, Pump, Received, mount, mount_pumped};
use isotherm_live::port::Port;
use rustix::event::{PollFd, PollFlags, poll};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [dir, name, mib, rest @ ..] = arguments.as_slice() else {
        return Err(
            "usage: block_file_mem DIR NAME SIZE_MIB [threads=N] [handoff=MICROSECONDS] [pump=MICROSECONDS]"
                .into(),
        );
    };
    let mut pumped = None;
    let mut options = Options::default();
    let mut port: Arc<dyn Port> = Arc::new(MemPort::new(mib.parse::<u64>()? << 20, 512));
    for argument in rest {
        match argument.split_once('=') {
            Some(("threads", n)) => options.threads = n.parse()?,
            Some(("handoff", micros)) => {
                let inner = Arc::clone(&port);
                port = Arc::new(Handoff::new(inner, Duration::from_micros(micros.parse()?))?);
            }
            Some(("pump", micros)) => pumped = Some(Duration::from_micros(micros.parse()?)),
            _ => return Err(format!("unknown argument {argument}").into()),
        }
    }
    let mut engine = None;
    let mut mount = if let Some(spin) = pumped {
        let (mount, pump) = mount_pumped(port, Path::new(dir), name, &options)?;
        engine = Some(std::thread::spawn(move || drive(pump, spin)));
        mount
    } else {
        mount(port, Path::new(dir), name, &options)?
    };
    println!("ready");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    mount.unmount()?;
    if let Some(engine) = engine {
        engine
            .join()
            .map_err(|_| "the engine's thread panicked")??;
    }
    Ok(())
}

/// Takes the available requests, then waits, as an engine's thread does with a pump.
fn drive(mut pump: Pump, spin: Duration) -> std::io::Result<()> {
    let mut idle_since = Instant::now();
    loop {
        match pump.receive()? {
            Received::Request => idle_since = Instant::now(),
            Received::Ended => return Ok(()),
            Received::Nothing if !spin.is_zero() && idle_since.elapsed() < spin => {
                std::hint::spin_loop();
            }
            Received::Nothing => {
                poll(&mut [PollFd::new(&pump, PollFlags::IN)], None)?;
            }
        }
    }
}
