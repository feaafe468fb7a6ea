//! The logical block that users of a cache volume see is that of its disks, whatever its flash and later disks have.

mod common;

use common::Place;
use common::loop_device::LoopDevice;
use common::peer::{FLUSH, Peer};
use serde_json::json;
use std::fs::File;

const MIB: u64 = 1 << 20;

/// A loop device of `mib` MiB with sectors of `sector` bytes.
fn disk(place: &Place, name: &str, mib: u64, sector: &str) -> Option<LoopDevice> {
    let made = File::create(place.path(name)).and_then(|f| f.set_len(mib * MIB));
    made.expect("a sparse file");
    LoopDevice::over(place, &["--sector-size", sector], name)
}

fn flush(peer: &mut Peer) {
    peer.ask(FLUSH, 0, 0).expect("sent");
    assert_eq!(peer.answer().expect("answered"), 0);
}

/// The byte that sector `n` has; each 4 KiB have eight different ones.
fn byte(n: u64) -> u8 {
    (n % 251) as u8 + 1
}

/// Sectors that are written alone, some of them within one 4 KiB. The first ones are in the head of the disk.
fn sectors() -> impl Iterator<Item = u64> {
    (0..195).flat_map(|i| [i * 1258, i * 1258 + 1, i * 1258 + 6])
}

fn check(peer: &mut Peer) {
    for n in sectors() {
        let got = peer.read(n * 512, 512).expect("read");
        assert_eq!(got, [byte(n); 512], "sector {n}");
    }
}

#[test]
fn flash_and_later_disks_with_larger_sectors_change_nothing() {
    let place = Place::new();
    let disks = [("f", 32, "4096"), ("s", 128, "512"), ("t", 128, "4096")];
    let [Some(f), Some(s), Some(t)] = disks.map(|(n, mib, sector)| disk(&place, n, mib, sector))
    else {
        return;
    };
    let made = place.json(
        &format!("create v --fast {} --slow {} --policy lru", f.0, s.0),
        "create",
    );
    assert_eq!(made["block_bytes"], json!(512));
    let served = place.serve("v --nbd unix:n");
    let mut peer = Peer::connect(&place.path("n")).expect("connected");
    for n in sectors() {
        peer.write(n * 512, &[byte(n); 512]).expect("written");
    }
    flush(&mut peer);
    drop(peer);
    served.kill();
    for disk in [None, Some(&t)] {
        if let Some(new) = disk {
            // (A file system with sectors of 512 bytes is above: its logical block must not change.)
            place.json(&format!("replace v {} --member 1", new.0), "replace");
        }
        let served = place.serve("v --nbd unix:n");
        assert_eq!(place.json("status v", "status")["block_bytes"], json!(512));
        let mut peer = Peer::connect(&place.path("n")).expect("connected");
        check(&mut peer);
        // One sector alone is written again: its neighbours stay.
        let n = sectors().nth(200).expect("there");
        peer.write(n * 512, &[byte(n); 512]).expect("written");
        flush(&mut peer);
        check(&mut peer);
        drop(peer);
        assert_eq!(served.terminate(), Some(0));
    }
    // The whole disk is given back, and has every sector.
    place.ok("release v --yes");
    drop(s);
    let plain = std::fs::read(&t.0).expect("read");
    for n in sectors() {
        let at = n as usize * 512;
        assert_eq!(plain[at..at + 512], [byte(n); 512], "sector {n}");
    }
}
