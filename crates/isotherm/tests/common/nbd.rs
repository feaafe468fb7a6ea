//! Copies data to and from a volume that is served on the socket `n`, with common NBD tools.

use super::Place;
use super::peer::Peer;

/// The URI of the volume, for nbdcopy and similar programs.
pub const NBD: &str = "nbd+unix:///?socket=n";
/// 2^20 bytes.
pub const MIB: usize = 1 << 20;

/// Bytes that differ from place to place and from seed to seed.
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    isotherm_core::random::SplitMix64::new(seed).fill(&mut bytes);
    bytes
}

fn nbdcopy(place: &Place, args: &[&str]) {
    let out = place.tool("nbdcopy", args);
    let why = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{why}");
}

/// Writes `data` from the volume's first byte on, and flushes.
pub fn copy_in(place: &Place, data: &[u8]) {
    std::fs::write(place.path("data"), data).expect("written");
    nbdcopy(place, &["--flush", "data", NBD]);
}

/// Reads the whole volume.
pub fn back(place: &Place) -> Vec<u8> {
    nbdcopy(place, &[NBD, "back"]);
    std::fs::read(place.path("back")).expect("read")
}

/// Checks that the volume begins with `data`. Nothing else is read, so that what a cache holds stays there.
pub fn begins(place: &Place, data: &[u8]) {
    let mut peer = Peer::connect(&place.path("n")).expect("connected");
    for (at, part) in (0..).step_by(1 << 16).zip(data.chunks(1 << 16)) {
        let got = peer.read(at, part.len() as u32).expect("read");
        assert!(got == part, "other data than was written at {at}");
    }
}

/// Checks that the volume begins with `data`, and that the rest was never written.
pub fn holds(place: &Place, data: &[u8]) {
    let all = back(place);
    assert!(all[..data.len()] == *data, "other data than was written");
    assert!(all[data.len()..].iter().all(|b| *b == 0), "not zeros");
}
