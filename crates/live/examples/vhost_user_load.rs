//! Load on a vhost-user block device: `vhost_user_load SOCKET read|write|fill DEPTH SECONDS` prints requests of 4 KiB at random places per
//! second, by one queue. `fill` writes the whole device once.

#[path = "../tests/common/guest.rs"]
#[allow(dead_code)]
mod guest;

use guest::{Guest, LARGEST, READ, WRITE};
use isotherm_core::random::SplitMix64;
use std::path::Path;
use std::time::{Duration, Instant};

const BLOCK: usize = 4096;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().collect();
    let [_, socket, kind, depth, seconds] = args.as_slice() else {
        return Err("usage: vhost_user_load SOCKET read|write|fill DEPTH SECONDS".into());
    };
    let (depth, seconds): (u16, f64) = (depth.parse()?, seconds.parse()?);
    let mut guest = Guest::new(Path::new(socket), 1, 128, 0);
    let sectors = u64::from_le_bytes(guest.config()[..8].try_into()?);
    if kind == "fill" {
        let data = vec![0x5a; LARGEST];
        let step = (LARGEST / 512) as u64;
        (0..sectors / step).for_each(|i| guest.write(i * step, &data));
        return Ok(());
    }
    let (kind, out, back) = match kind.as_str() {
        "read" => (READ, Vec::new(), BLOCK),
        "write" => (WRITE, vec![0x5a; BLOCK], 0),
        other => return Err(format!("{other}: neither read nor write nor fill").into()),
    };
    let mut rng = SplitMix64::new(7);
    let mut send = |guest: &mut Guest, slot: u16| {
        let sector = rng.draw() % (sectors / 8) * 8;
        guest.prepare(0, slot, kind, sector, &out, back);
        guest.publish(0, 3 * slot);
    };
    (0..depth).for_each(|slot| send(&mut guest, slot));
    guest.kick(0);
    let (begun, time) = (Instant::now(), Duration::from_secs_f64(seconds));
    let mut done = 0u64;
    while begun.elapsed() < time {
        let mut head = guest.wait_used(0, Duration::from_secs(30));
        if head.is_none() {
            return Err("a request was not answered in 30 s".into());
        }
        // What came together is followed together, as a driver does.
        while let Some((first, _)) = head {
            if guest.get(guest.queues[0].status(first / 3), 1) != [0] {
                return Err("a request failed".into());
            }
            done += 1;
            send(&mut guest, first / 3);
            head = guest.used(0);
        }
        guest.kick(0);
    }
    println!("{:.0}", done as f64 / begun.elapsed().as_secs_f64());
    Ok(())
}
