//! Serves a volume in memory as a block file until standard input ends, for benchmarks and manual tests.
//!
//! ```text
//! block_file_mem DIR NAME SIZE_MIB [threads=N] [handoff=MICROSECONDS]
//! ```
//!
//! Without `handoff`, requests complete on the thread that takes them from the kernel, as the engine's thread does. With it, they complete
//! on another thread, which polls for work for that long before it sleeps. Prints `ready` once I/O works.

use std::error::Error;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use isotherm_live::block_file::testing::{Handoff, MemPort};
use isotherm_live::block_file::{Options, mount};
use isotherm_live::port::Port;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [dir, name, mib, rest @ ..] = arguments.as_slice() else {
        return Err(
            "usage: block_file_mem DIR NAME SIZE_MIB [threads=N] [handoff=MICROSECONDS]".into(),
        );
    };
    let mut options = Options::default();
    let mut port: Arc<dyn Port> = Arc::new(MemPort::new(mib.parse::<u64>()? << 20, 512));
    for argument in rest {
        match argument.split_once('=') {
            Some(("threads", n)) => options.threads = n.parse()?,
            Some(("handoff", micros)) => {
                let inner = Arc::clone(&port);
                port = Arc::new(Handoff::new(inner, Duration::from_micros(micros.parse()?))?);
            }
            _ => return Err(format!("unknown argument {argument}").into()),
        }
    }
    let mut mount = mount(port, Path::new(dir), name, &options)?;
    println!("ready");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(mount.unmount()?)
}
