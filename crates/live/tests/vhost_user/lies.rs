//! A guest that lies in its queues: it harms itself, and nobody else.

use super::*;
use guest::{BASE, INDIRECT};

/// Prepares a read in slot 0, lets `change` break it, and gives it to the device.
fn send(g: &mut Guest, change: impl FnOnce(&mut Guest)) {
    g.prepare(0, 0, READ, 0, &[], 512);
    change(g);
    g.publish(0, 0);
    g.kick(0);
}

#[test]
fn an_address_outside_of_the_memory_is_an_error() {
    let rig = rig();
    let mut g = rig.guest();
    let end = BASE + (96 << 20);
    for at in [0, BASE - 1, end - 100, end, u64::MAX - 511, u64::MAX] {
        send(&mut g, |g| g.descriptor(0, 1, at, 512, NEXT | WRITABLE, 2));
        let used = g.wait_used(0, Duration::from_secs(60));
        assert_eq!(used, Some((0, 1)), "{at:x}");
        assert_eq!(g.get(g.queues[0].status(0), 1), [ERROR], "{at:x}");
        g.prepare(0, 0, WRITE, 0, &[1; 512], 0);
        g.descriptor(0, 1, at, 512, NEXT, 2);
        g.publish(0, 0);
        g.kick(0);
        assert_eq!(g.wait_used(0, Duration::from_secs(60)), Some((0, 1)));
        assert_eq!(g.get(g.queues[0].status(0), 1), [ERROR], "{at:x}");
    }
    // So is a header there; and a status there cannot be written, but the request comes back.
    send(&mut g, |g| g.descriptor(0, 0, end, 16, NEXT, 1));
    assert_eq!(g.wait_used(0, Duration::from_secs(60)), Some((0, 1)));
    assert_eq!(g.get(g.queues[0].status(0), 1), [ERROR]);
    send(&mut g, |g| g.descriptor(0, 2, end, 1, WRITABLE, 0));
    assert_eq!(g.wait_used(0, Duration::from_secs(60)), Some((0, 512)));
    // More data than a request may have, and as much as a descriptor can say.
    for len in [(32 << 20) + 512, u32::MAX - 511] {
        send(&mut g, |g| {
            g.descriptor(0, 1, BASE, len, NEXT | WRITABLE, 2);
        });
        assert_eq!(g.wait_used(0, Duration::from_secs(60)), Some((0, 1)));
        assert_eq!(g.get(g.queues[0].status(0), 1), [ERROR]);
    }
    assert_eq!(g.read(0, 512), [0; 512], "nothing was written");
}

/// Breaks the rules of a queue in every way. Each time that queue is given up, another queue is served, and so is the next machine.
#[test]
fn a_broken_queue_is_given_up_alone() {
    type Lie = (&'static str, fn(&mut Guest));
    let lies: [Lie; 10] = [
        ("a circle", |g| {
            send(g, |g| {
                g.descriptor(0, 1, g.queues[0].data(0), 512, NEXT | WRITABLE, 1);
            });
        }),
        ("a descriptor outside of the table", |g| {
            send(g, |g| {
                g.descriptor(0, 1, g.queues[0].data(0), 512, NEXT | WRITABLE, SIZE);
            });
        }),
        ("no status", |g| {
            send(g, |g| g.descriptor(0, 0, g.queues[0].header(0), 16, 0, 0));
        }),
        ("a status of no bytes", |g| {
            send(g, |g| {
                g.descriptor(0, 0, g.queues[0].header(0), 16, NEXT, 2);
                g.descriptor(0, 2, g.queues[0].status(0), 0, WRITABLE, 0);
            });
        }),
        ("something to read after the status", |g| {
            send(g, |g| {
                g.descriptor(0, 1, g.queues[0].data(0), 512, NEXT | WRITABLE, 2);
                g.descriptor(0, 2, g.queues[0].data(0), 512, 0, 0);
            });
        }),
        ("a table outside of the memory", |g| {
            send(g, |g| g.descriptor(0, 0, u64::MAX - 15, 32, INDIRECT, 0));
        }),
        ("a table in a table", |g| {
            send(g, |g| {
                let table = g.queues[0].data(1);
                g.put(table, &guest::descriptor(table, 16, INDIRECT, 0));
                g.descriptor(0, 0, table, 16, INDIRECT, 0);
            });
        }),
        ("an empty table", |g| {
            send(g, |g| {
                g.descriptor(0, 0, g.queues[0].data(1), 0, INDIRECT, 0);
            });
        }),
        ("a request that is no descriptor", |g| {
            g.publish(0, SIZE);
            g.kick(0);
        }),
        ("more requests than descriptors", |g| {
            g.queues[0].published = g.queues[0].published.wrapping_add(SIZE + 5);
            g.publish(0, 0);
            g.kick(0);
        }),
    ];
    let rig = rig();
    for (what, lie) in lies {
        until("free", || rig.count("clients") == 0);
        let mut g = Guest::new(&rig.path, 2, SIZE, 0);
        lie(&mut g);
        assert!(
            guest::wait_readable(&g.queues[0].error, Duration::from_secs(60)),
            "{what}: not told"
        );
        assert_eq!(g.used(0), None, "{what}");
        // The other queue goes on.
        g.prepare(1, 0, READ, 0, &[], 512);
        g.publish(1, 0);
        g.kick(1);
        let used = g.wait_used(1, Duration::from_secs(60));
        assert_eq!(used, Some((0, 513)), "{what}: the other queue");
    }
    rig.check_served();
    assert_eq!(rig.count("violations"), lies.len() as u64);
}

/// The same request twice, while the first is in flight: there is one memory for it.
#[test]
fn a_request_twice_breaks_the_queue() {
    let rig = rig();
    let mut g = rig.guest();
    rig.hold();
    g.prepare(0, 0, READ, 0, &[], 512);
    g.publish(0, 0);
    g.publish(0, 0);
    g.kick(0);
    assert!(guest::wait_readable(
        &g.queues[0].error,
        Duration::from_secs(60)
    ));
    assert_eq!(rig.held(), 1);
    rig.go_on();
    // The first one is answered all the same.
    assert_eq!(g.wait_used(0, Duration::from_secs(60)), Some((0, 513)));
    drop(g);
    rig.check_served();
}

/// Noise in rings and tables, as fast as it comes.
#[test]
fn noise_in_the_queues() {
    let rig = rig();
    let mut rng = isotherm_core::random::SplitMix64::new(11);
    let before = rig.between.below.volume_bytes();
    for round in 0..60 {
        until("free", || rig.count("clients") == 0);
        let mut g = Guest::new(&rig.path, 2, SIZE, if round % 2 == 0 { 0 } else { 1 << 29 });
        let mut rows = vec![0; 16 * usize::from(SIZE)];
        rng.fill(&mut rows);
        for (i, row) in rows.chunks_mut(16).enumerate() {
            // Most addresses are in the memory and most lengths are short, else every request ends at its first descriptor.
            let at = BASE + u64::from_le_bytes(row[..8].try_into().expect("8")) % (95 << 20);
            row[..8].copy_from_slice(&at.to_le_bytes());
            row[9..12].fill(0);
            row[12] &= 7;
            row[13] = 0;
            row[14] %= SIZE as u8;
            row[15] = u8::from(i % 13 == 0);
        }
        g.put(g.queues[0].descriptors(), &rows);
        for _ in 0..SIZE {
            let head = rng.draw() as u16 % SIZE;
            g.publish(0, head);
            g.kick(0);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(rig.between.below.volume_bytes(), before);
    rig.check_served();
}
