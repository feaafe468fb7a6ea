//! A client that writes all the time, and knows what the volume must hold.

use super::Place;
use super::nbd::back;
use super::peer::{FLUSH, Peer};
use isotherm_hostile::Rng;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// Size of a block that is written, in bytes.
pub const BLOCK: usize = 4096;

/// The versions that a block may hold: the last one that was flushed, and those that were written since.
#[derive(Clone, Default)]
pub struct Held {
    pub sure: u64,
    pub maybe: Vec<u64>,
}

/// The bytes of a version of a block.
pub fn content(block: usize, version: u64) -> Vec<u8> {
    if version == 0 {
        return vec![0; BLOCK];
    }
    let word = (block as u64) << 40 | version;
    word.to_le_bytes().repeat(BLOCK / 8)
}

/// A client that writes over the whole volume of `blocks` until it is told to stop, or has lost the server. It flushes now and then.
pub struct Writer {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<(Vec<Held>, u64)>,
}

impl Writer {
    pub fn start(place: &Place, mut held: Vec<Held>, seed: u64) -> Writer {
        let stop = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&stop);
        let mut peer = Peer::connect(&place.path("n")).expect("connected");
        let thread = std::thread::spawn(move || {
            let mut rng = Rng::new(seed);
            let mut version = seed << 20;
            while !is_over.load(Ordering::Relaxed) {
                version += 1;
                let b = rng.below(held.len() as u64) as usize;
                held[b].maybe.push(version);
                if peer
                    .write((b * BLOCK) as u64, &content(b, version))
                    .is_err()
                {
                    break;
                }
                if version.is_multiple_of(16) {
                    let flushed = peer.ask(FLUSH, 0, 0).and_then(|()| peer.answer());
                    if !matches!(flushed, Ok(0)) {
                        break;
                    }
                    for h in &mut held {
                        h.sure = h.maybe.pop().unwrap_or(h.sure);
                        h.maybe.clear();
                    }
                }
            }
            (held, version - (seed << 20))
        });
        Writer { stop, thread }
    }

    /// Whether a request has failed.
    pub fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Returns what the volume must hold, and the number of writes.
    pub fn stop(self) -> (Vec<Held>, u64) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("no panic")
    }
}

/// Compares the whole volume with what was written, and returns what it holds. What is behind must be zeros.
pub fn checked(place: &Place, held: &[Held]) -> Vec<Held> {
    let all = back(place);
    let found = held.iter().enumerate().map(|(b, h)| {
        let now = &all[b * BLOCK..(b + 1) * BLOCK];
        let mut may = std::iter::once(&h.sure).chain(&h.maybe);
        let sure = *(may.find(|v| content(b, **v) == now)).unwrap_or_else(|| {
            panic!(
                "block {b}: {:02x?}, not {:#x} or {:#x?}",
                &now[..16],
                h.sure,
                h.maybe
            )
        });
        Held {
            sure,
            maybe: Vec::new(),
        }
    });
    let found = found.collect();
    let rest = &all[held.len() * BLOCK..];
    if let Some(at) = rest.iter().position(|b| *b != 0) {
        let (from, bytes) = (held.len() * BLOCK, &rest[at..(at + 48).min(rest.len())]);
        let left = rest.iter().filter(|b| **b != 0).count();
        panic!(
            "what is new reads as zeros, but for {left} bytes from {from} + {at} on: {bytes:02x?}"
        );
    }
    found
}
