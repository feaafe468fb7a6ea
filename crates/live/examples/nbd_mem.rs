//! Serves a volume in memory over NBD, to test clients: `nbd_mem unix:/tmp/s 1073741824 [engine]`. With `engine`, completions come from a
//! thread of their own, as from the real engine.

use std::sync::Arc;

use isotherm_live::nbd::server::{Config, Server};
use isotherm_live::nbd::testing::MemPort;

const POOL_BYTES: usize = 256 << 20;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().collect();
    let [_, address, bytes, rest @ ..] = args.as_slice() else {
        return Err("usage: nbd_mem unix:PATH|HOST:PORT BYTES [engine]".into());
    };
    let bytes: u64 = bytes.parse().map_err(|e| format!("BYTES: {e}"))?;
    let port = match rest {
        [] => MemPort::new(bytes),
        [word] if word == "engine" => MemPort::with_engine_thread(bytes, POOL_BYTES)?,
        _ => return Err("the only word after BYTES is `engine`".into()),
    };
    let server = Server::start(Arc::new(port), &[address.parse()?], Config::new("mem"))?;
    for address in server.addresses() {
        println!("ready {address}");
    }
    loop {
        std::thread::park();
    }
}
