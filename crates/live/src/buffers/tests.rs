use super::*;
use std::sync::atomic::{AtomicUsize, Ordering};

#[test]
fn a_buffer_covers_whole_blocks_and_derefs_to_the_payload() {
    for (offset, len, block, head, covered) in [
        (0, 4096, 512, 0, 4096),
        (513, 1, 512, 1, 512),
        (511, 2, 512, 511, 1024),
        (5000, 9000, 4096, 904, 12288),
    ] {
        for mut buffer in [
            Buffer::new(offset, len, block),
            Pool::new(1 << 20).buffer(offset, len, block),
        ] {
            assert_eq!(
                (buffer.len(), buffer.head(), buffer.aligned().len()),
                (len as usize, head, covered)
            );
            assert_eq!(buffer.tail(), covered - head - len as usize);
            assert_eq!(buffer.aligned().as_ptr() as usize % ALIGNMENT, 0);
            buffer.fill(7);
            let at = |i: usize| u8::from(i >= head && i < head + len as usize) * 7;
            assert!(
                buffer
                    .aligned()
                    .iter()
                    .enumerate()
                    .all(|(i, &b)| b == at(i))
            );
        }
    }
}

#[test]
fn chunks_never_overlap_and_all_come_together_again() {
    // The size is not a power of two: the last pages have no buddy.
    let pool = Pool::new(11 * ALIGNMENT);
    let mut random = isotherm_core::random::SplitMix64::new(1);
    let mut held: Vec<(u8, Buffer)> = Vec::new();
    for step in 0..5000u32 {
        let len = [100, 4096, 8192, 16384, 32768][random.below(5) as usize];
        if random.below(2) == 0 && pool.has(len as usize) {
            let mut b = pool.buffer(0, len, 512);
            b.fill(step as u8);
            held.push((step as u8, b));
        } else if !held.is_empty() {
            let (mark, b) = held.swap_remove(random.below(held.len() as u64) as usize);
            assert!(b.iter().all(|&x| x == mark), "step {step}");
        }
    }
    held.clear();
    assert_eq!(pool.bytes_out(), 0);
    // 8 + 2 + 1 pages, merged again.
    let all = [
        pool.buffer(0, 8 * 4096, 512),
        pool.buffer(0, 2 * 4096, 512),
        pool.buffer(0, 4096, 512),
    ];
    assert!(!pool.has(1));
    drop(all);
}

#[test]
fn threads_wait_in_order_and_share_fairly() {
    let pool = Pool::new(8 * ALIGNMENT);
    let large = AtomicUsize::new(0);
    std::thread::scope(|s| {
        for t in 0..4u8 {
            let (pool, large) = (&pool, &large);
            s.spawn(move || {
                for i in 0..400u32 {
                    // Thread 0 needs the whole pool each time; if the others could overtake it, it would never get it.
                    let len = if t == 0 { 8 * 4096 } else { 4096 << (i % 2) };
                    let mut b = pool.buffer(0, len, 512);
                    b.fill(t);
                    std::thread::yield_now();
                    assert!(b.iter().all(|&x| x == t));
                    large.fetch_add(usize::from(t == 0), Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!((large.into_inner(), pool.bytes_out()), (400, 0));
}

#[test]
fn a_request_larger_than_any_chunk_gets_memory_of_its_own() {
    let pool = Pool::new(16 * ALIGNMENT);
    let big = pool.buffer(0, 1 << 20, 4096);
    assert_eq!(big.len(), 1 << 20);
    assert!(!pool.has(1 << 20) && pool.has(4096));
    drop(big);
    assert!(pool.has(1 << 20));
    let now = pool.get_now(1 << 20);
    assert_eq!((now.bytes().len(), pool.bytes_out()), (1 << 20, 0));
}

#[test]
fn the_arena_keeps_its_parts_apart() {
    let arena = Arena::new(1 << 20, 3, 65536, 0).unwrap();
    let base = arena.region.base() as usize;
    assert_eq!(arena.move_at(0, 0, 65536) as usize, base + (1 << 20));
    assert_eq!(
        arena.move_at(2, 512, 512) as usize,
        base + (1 << 20) + 2 * 65536 + 512
    );
    assert!(arena.region.contains(arena.zeros(), Arena::ZEROS));
    assert!(!arena.region.contains(arena.zeros(), Arena::ZEROS + 1));
    let own = arena.own.get_now(4096);
    assert!(own.as_ptr() as usize >= base + (1 << 20) + 3 * 65536);
}
