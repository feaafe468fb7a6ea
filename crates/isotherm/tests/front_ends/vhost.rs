//! A virtual machine over vhost-user: kill -9 of the server with many requests in flight, and growth.

use super::volume;
use crate::common::Place;
use crate::guest::{FLUSH, Guest, LARGEST, WRITE};
use crate::proof::seed;
use isotherm_hostile::Rng;
use serde_json::json;
use std::io::Read;
use std::time::Duration;

const BLOCK: usize = 4096;
const SLOTS: u16 = 40;
const QUEUES: usize = 2;
/// Sectors from one block to the next, so that every write has a record of its own.
const STRIDE: u64 = 128;
const PATIENCE: Duration = Duration::from_secs(60);

/// A machine that keeps both queues full of writes. Each slot has a block of its own, so a write that is answered is what the block holds
/// until the slot's next write is in flight.
struct Writer {
    guest: Guest,
    /// The version of each slot's write, and whether it is in flight.
    slots: Vec<(u64, bool)>,
    answered: u64,
}

fn content(slot: usize, version: u64) -> Vec<u8> {
    ((slot as u64) << 48 | version)
        .to_le_bytes()
        .repeat(BLOCK / 8)
}

impl Writer {
    fn send(&mut self, q: usize, slot: u16) {
        let n = q * usize::from(SLOTS) + usize::from(slot);
        self.slots[n] = (self.slots[n].0 + 1, true);
        let data = content(n, self.slots[n].0);
        let sector = n as u64 * STRIDE;
        self.guest.prepare(q, slot, WRITE, sector, &data, 0);
        self.guest.publish(q, 3 * slot);
    }

    /// Takes an answer, if one comes in this time.
    fn take(&mut self, q: usize, limit: Duration) -> Option<u16> {
        let (head, _) = self.guest.wait_used(q, limit)?;
        let slot = head / 3;
        let n = q * usize::from(SLOTS) + usize::from(slot);
        assert!(self.slots[n].1, "slot {n} is answered twice");
        self.slots[n].1 = false;
        let at = self.guest.queues[q].status(slot);
        assert_eq!(self.guest.get(at, 1), [0], "slot {n}");
        self.answered += 1;
        Some(slot)
    }

    /// Answers are followed by the next write, until none comes for a moment: the server is gone.
    fn work(&mut self) {
        loop {
            let mut took = false;
            for q in 0..QUEUES {
                while let Some(slot) = self.take(q, Duration::from_millis(100)) {
                    took = true;
                    self.send(q, slot);
                    self.guest.kick(q);
                }
            }
            if !took {
                return;
            }
        }
    }

    /// All that is in flight must be answered, and be found.
    fn settle(&mut self) {
        for q in 0..QUEUES {
            let first = q * usize::from(SLOTS);
            while self.slots[first..first + usize::from(SLOTS)]
                .iter()
                .any(|s| s.1)
            {
                assert!(self.take(q, PATIENCE).is_some(), "a request was lost");
            }
        }
        for n in 0..self.slots.len() {
            let data = self.guest.read(n as u64 * STRIDE, BLOCK);
            assert!(data == content(n, self.slots[n].0), "slot {n}");
        }
        assert_eq!(self.guest.ask(FLUSH, 0, &[], 0).0, 0);
    }
}

#[test]
fn requests_in_flight_are_answered_by_the_next_server() {
    let place = volume();
    let path = place.path("v.vhost");
    let mut rng = Rng::new(seed() ^ 0x7057);
    let kills = super::kills::kills();
    let mut served = place.serve("v --vhost-user v.vhost");
    let mut w = Writer {
        guest: Guest::new(&path, QUEUES, 128, 0),
        slots: vec![(0, false); QUEUES * usize::from(SLOTS)],
        answered: 0,
    };
    for kill in 0..kills {
        for q in 0..QUEUES {
            (0..SLOTS).for_each(|slot| w.send(q, slot));
            w.guest.kick(q);
        }
        let writer = std::thread::spawn(move || {
            w.work();
            w
        });
        std::thread::sleep(Duration::from_millis(20 + rng.below(400)));
        served.kill();
        w = writer.join().expect("the machine");
        served = place.serve("v --vhost-user v.vhost");
        w.guest.reconnect(&path);
        w.settle();
        println!("kill {kill}: {} writes answered", w.answered);
    }
    let status = place.json("status v", "status");
    assert_eq!(status["front_ends"], json!(["vhost-user:v.vhost"]));
    assert_eq!(status["params"]["kept_writes"], 1.0);
    let stats = place.json("stats v", "stats");
    let front = &stats["front_ends"][0];
    assert_eq!(
        (&front["counts"]["violations"], &front["counts"]["clients"]),
        (&json!(0), &json!(1))
    );
    // A stop answers what it has taken, and the machine goes on with the next server, too.
    for q in 0..QUEUES {
        (0..SLOTS).for_each(|slot| w.send(q, slot));
        w.guest.kick(q);
    }
    place.ok("stop v");
    drop(served);
    let served = place.serve("v --vhost-user v.vhost");
    w.guest.reconnect(&path);
    w.settle();
    drop(w);
    place.end(served);
    place.ok("check v");
}

/// The machine is told of a new size and uses it at once.
#[test]
fn a_volume_grows_under_a_virtual_machine() {
    let place = Place::new();
    place.ok("create v --fast f:16M --slow s:32M --policy lru");
    let served = place.serve("v --vhost-user v.vhost");
    let mut g = Guest::new(&place.path("v.vhost"), 1, 128, 0);
    let sectors = |g: &mut Guest| {
        let bytes = g.config()[..8].try_into().expect("8");
        u64::from_le_bytes(bytes)
    };
    let before = sectors(&mut g);
    assert_eq!(g.ask(WRITE, before, &[1; BLOCK], 0).0, 1, "beyond the end");
    place.enlarge("s", 128);
    place.ok("grow v");
    g.channel.read_exact(&mut [0; 12]).expect("told");
    let after = sectors(&mut g);
    assert!(after > before, "{before} {after}");
    let data = vec![7; LARGEST];
    g.write(after - LARGEST as u64 / 512, &data);
    assert!(g.read(after - LARGEST as u64 / 512, LARGEST) == data);
    drop(g);
    place.end(served);
}
