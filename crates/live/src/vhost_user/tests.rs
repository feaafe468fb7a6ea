//! Rings and marks by themselves, at the ends of their numbers.

use super::inflight::{self, Area};
use super::ring::Ring;
use std::os::unix::fs::FileExt;
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

const SIZE: u16 = 8;
const AVAILABLE: u64 = 0x1000;
const USED: u64 = 0x2000;

fn ring(event_idx: bool, at: u16) -> (GuestMemoryMmap, Ring) {
    let mem = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 0x4000)]).expect("mapped");
    let mut ring = Ring {
        size: SIZE,
        at: Some([0, AVAILABLE, USED].map(GuestAddress)),
        event_idx,
        available: at,
        ..Ring::default()
    };
    put(&mem, USED + 2, at);
    ring.find_used(&mem).expect("inside");
    assert_eq!(ring.used, at);
    (mem, ring)
}

fn put(mem: &GuestMemoryMmap, at: u64, value: u16) {
    mem.write_obj(value, GuestAddress(at)).expect("inside");
}

fn get(mem: &GuestMemoryMmap, at: u64) -> u16 {
    mem.read_obj(GuestAddress(at)).expect("inside")
}

/// Indices go from 65535 to 0, and the places in the rings with them.
#[test]
fn indices_wrap() {
    let (mem, mut ring) = ring(true, 65534);
    put(&mem, AVAILABLE + 2, 2);
    for (i, head) in [5u16, 3, 0, 7].into_iter().enumerate() {
        put(&mem, AVAILABLE + 4 + 2 * ((6 + i as u64) % 8), head);
    }
    let mut taken = Vec::new();
    while let Some(head) = ring.peek(&mem).expect("inside") {
        ring.advance();
        taken.push(head);
        ring.push_used(&mem, head, 9).expect("inside");
    }
    assert_eq!(taken, [5, 3, 0, 7]);
    assert_eq!((ring.used, get(&mem, USED + 2)), (2, 2));
    assert_eq!(get(&mem, USED + 4 + 8 * 6), 5, "the first, at place 6");
    assert_eq!(get(&mem, USED + 4 + 8), 7, "the last, at place 1");
    assert_eq!(ring.listen(&mem), Ok(false));
    assert_eq!(
        get(&mem, USED + 4 + 8 * u64::from(SIZE)),
        2,
        "wants to hear of 2"
    );
}

#[test]
fn a_driver_is_told_when_it_wants_to_be() {
    let (mem, mut ring) = ring(true, 65533);
    let wanted = AVAILABLE + 4 + 2 * u64::from(SIZE);
    // It wants to hear of the third: not of the first two, and not again after it.
    put(&mem, wanted, 65535);
    let told: Vec<bool> = (0..5)
        .map(|head| {
            ring.push_used(&mem, head, 1).expect("inside");
            ring.must_tell(&mem).expect("inside")
        })
        .collect();
    assert_eq!(told, [false, false, true, false, false]);
    assert_eq!(ring.must_tell(&mem), Ok(false), "nothing new");
    // Without EVENT_IDX a flag decides.
    ring.event_idx = false;
    assert_eq!(ring.must_tell(&mem), Ok(true));
    put(&mem, AVAILABLE, 1);
    assert_eq!(ring.must_tell(&mem), Ok(false));
}

/// A server may be killed between any two steps of giving a request back. The next one finds what is to be done again.
#[test]
fn a_kill_between_any_two_steps_loses_and_repeats_nothing() {
    for killed_after in 0..4 {
        let file = inflight::create(2, SIZE).expect("an area");
        let open = || Area::open(file.try_clone().expect("a descriptor"), 0, 2, SIZE);
        let area = open().expect("mapped");
        let mut marks = area.queue(1, SIZE).expect("room");
        assert!(marks.left(65535).is_empty(), "a new area");
        // One was given back earlier.
        marks.taken(6);
        marks.before_used(6);
        marks.after_used(6, 0);
        for head in [4, 2, 7] {
            marks.taken(head);
        }
        // 2 is given back.
        let mut used = 0u16;
        if killed_after > 0 {
            marks.before_used(2);
        }
        if killed_after > 1 {
            used += 1;
        }
        if killed_after > 2 {
            marks.after_used(2, used);
        }
        let mut next = open().expect("mapped").queue(1, SIZE).expect("room");
        let want: &[u16] = if used == 1 { &[4, 7] } else { &[4, 2, 7] };
        assert_eq!(next.left(used), want, "killed after step {killed_after}");
        // New requests come after those.
        next.taken(0);
        assert_eq!(next.left(used), [want, &[0]].concat());
    }
}

/// The peer can write anything there; a walk of its list ends.
#[test]
fn marks_of_any_content_are_survived() {
    let file = inflight::create(1, SIZE).expect("an area");
    let mut rng = isotherm_core::random::SplitMix64::new(4);
    for _ in 0..500 {
        let mut bytes = vec![0; inflight::area_bytes(1, SIZE) as usize];
        rng.fill(&mut bytes);
        for entry in bytes[16..].chunks_mut(16) {
            entry[0] &= 1;
            entry[6] &= 15;
            entry[7] = 0;
        }
        file.write_all_at(&bytes, 0).expect("written");
        let area = Area::open(file.try_clone().expect("a descriptor"), 0, 1, SIZE);
        let mut marks = area.expect("mapped").queue(0, SIZE).expect("room");
        let left = marks.left(rng.draw() as u16);
        assert!(left.len() <= usize::from(SIZE) && left.iter().all(|h| *h < SIZE));
    }
    // Nobody can cut what is mapped, and what is cut is not mapped.
    assert!(file.set_len(16).is_err());
    let area = Area::open(file.try_clone().expect("a descriptor"), 64, 1, SIZE);
    assert!(area.is_err());
}
