//! What outlives a connection and a server: requests in flight, the end of a server, another monitor, a new size.

use super::*;
use std::io::Read;
use vhost::VhostBackend;
use vhost::vhost_user::VhostUserFrontend;

/// The marks of an earlier server are redone in the order in which it took them, and what it gave back is not.
#[test]
fn requests_of_an_earlier_server_are_done_again() {
    let rig = rig();
    let mut g = rig.guest();
    // Slots 1 and 2 were taken, the second one first; slot 0 was given back, but its mark is still there. So the used index is 1, and
    // the earlier server knew of 0.
    for slot in [1u16, 2] {
        g.prepare(0, slot, WRITE, 8 * u64::from(slot), &[slot as u8; 4096], 0);
    }
    g.prepare(0, 0, WRITE, 0, &[0xee; 4096], 0);
    drop(std::mem::replace(&mut g.front, {
        let (other, _) = std::os::unix::net::UnixStream::pair().expect("a pair");
        vhost::vhost_user::Frontend::from_stream(other, 1)
    }));
    until("free", || rig.count("clients") == 0);
    for head in [0, 6, 3] {
        g.publish(0, head);
    }
    let used = g.queues[0].used();
    g.put(used + 2, &1u16.to_le_bytes());
    g.put(used + 4, &[0; 8]);
    let area = &g.inflight.as_ref().expect("an area").1;
    let mark = |head: u64, number: u64| {
        use std::os::unix::fs::FileExt;
        area.write_all_at(&[1], 16 + 16 * head).expect("marked");
        area.write_all_at(&number.to_le_bytes(), 16 + 16 * head + 8)
            .expect("marked");
    };
    mark(0, 0);
    mark(6, 1);
    mark(3, 2);
    // The last that was given back is descriptor 0; the used index was 0.
    rig.heard();
    g.reconnect(&rig.path);
    // Slot 0 as the earlier server gave it back, then the two.
    for _ in 0..3 {
        assert!(g.wait_used(0, Duration::from_secs(60)).is_some());
    }
    let offsets: Vec<u64> = rig.heard().into_iter().map(|h| h.1).collect();
    assert_eq!(
        offsets,
        [8192, 4096],
        "in order, and not what was given back"
    );
    assert_eq!(g.read(8, 4096), [1; 4096]);
    assert_eq!(g.read(16, 4096), [2; 4096]);
    assert_eq!(g.read(0, 4096), [0; 4096], "slot 0 is not done again");
}

/// Marks that lie: numbers and places that are none.
#[test]
fn an_area_of_noise_harms_nobody() {
    let rig = rig();
    let mut rng = isotherm_core::random::SplitMix64::new(3);
    for _ in 0..20 {
        until("free", || rig.count("clients") == 0);
        let mut g = rig.guest();
        until("gone", || {
            drop(std::mem::replace(&mut g.front, {
                let (other, _) = std::os::unix::net::UnixStream::pair().expect("a pair");
                vhost::vhost_user::Frontend::from_stream(other, 1)
            }));
            rig.count("clients") == 0
        });
        let (info, area) = g.inflight.as_ref().expect("an area");
        let mut bytes = vec![0; info.mmap_size as usize];
        rng.fill(&mut bytes);
        for entry in bytes[16..].chunks_mut(16) {
            entry[0] &= 1;
        }
        std::os::unix::fs::FileExt::write_all_at(area, &bytes, 0).expect("written");
        g.reconnect(&rig.path);
        std::thread::sleep(Duration::from_millis(5));
    }
    rig.check_served();
}

/// A server that stops answers what it took, tells the guest, and only then closes the socket.
#[test]
fn a_stop_answers_what_was_taken() {
    // On a busy machine it may take time until the stop begins, and until then all requests are this server's.
    let waits = [50, 500, 5000].map(Duration::from_millis);
    assert!(waits.into_iter().any(answers_what_was_taken));
}

/// Whether the stop had begun after this time.
fn answers_what_was_taken(begins: Duration) -> bool {
    let mut rig = rig();
    let mut g = rig.guest();
    rig.hold();
    for slot in 0..5u16 {
        g.prepare(0, slot, WRITE, 8 * u64::from(slot), &[9; 4096], 0);
        g.publish(0, 3 * slot);
    }
    g.kick(0);
    until("taken", || rig.held() == 5);
    let users = rig.front().users();
    assert_eq!(users.as_deref(), Some("1 virtual machine is connected"));
    let front = rig.front.take().expect("it runs");
    let stopped = std::thread::spawn(move || front.stop());
    std::thread::sleep(begins);
    assert!(!stopped.is_finished(), "five requests are in flight");
    // What comes now is for the next server.
    g.prepare(0, 5, WRITE, 40, &[9; 4096], 0);
    g.publish(0, 15);
    g.kick(0);
    std::thread::sleep(begins / 2);
    let has_begun = rig.held() == 5;
    rig.go_on();
    for _ in 0..5 {
        assert!(g.wait_used(0, Duration::from_secs(60)).is_some());
    }
    stopped.join().expect("stopped");
    if g.used(0).is_some() {
        return false;
    }
    assert!(!rig.path.exists(), "the socket is removed");
    rig.start().expect("started again");
    g.reconnect(&rig.path);
    assert_eq!(g.wait_used(0, Duration::from_secs(60)), Some((15, 1)));
    assert_eq!(g.read(40, 4096), [9; 4096]);
    has_begun
}

/// A monitor that stops a queue and starts it again, as at a restart of its guest, without a request lost.
#[test]
fn a_queue_stops_and_starts() {
    let rig = rig();
    let mut g = rig.guest();
    for round in 0..3 {
        rig.hold();
        g.prepare(0, 0, WRITE, 8, &[round; 4096], 0);
        g.publish(0, 0);
        g.kick(0);
        until("taken", || rig.held() == 1);
        let front = g.front.clone();
        let base = std::thread::spawn(move || front.get_vring_base(0).expect("base"));
        std::thread::sleep(Duration::from_millis(20));
        assert!(!base.is_finished(), "a request is in flight");
        rig.go_on();
        assert_eq!(
            base.join().expect("no panic"),
            u32::from(g.queues[0].published)
        );
        assert!(g.used(0).is_some());
        let q = &g.queues[0];
        g.front.set_vring_base(0, q.published).expect("base");
        g.front.set_vring_call(0, &q.call).expect("call");
        g.front.set_vring_kick(0, &q.kick).expect("kick");
        g.front.set_vring_enable(0, true).expect("enabled");
        assert_eq!(g.read(8, 4096), [round; 4096]);
        // Disabled, it takes nothing; enabled again, it takes what came meanwhile.
        g.front.set_vring_enable(0, false).expect("disabled");
        g.prepare(0, 0, READ, 8, &[], 512);
        g.publish(0, 0);
        g.kick(0);
        assert_eq!(g.wait_used(0, Duration::from_millis(30)), None);
        g.front.set_vring_enable(0, true).expect("enabled");
        assert_eq!(g.wait_used(0, Duration::from_secs(60)), Some((0, 513)));
    }
}

#[test]
fn a_new_size_is_told() {
    let mut rig = rig();
    assert!(rig.front().resized().contains("when it starts"));
    let mut g = rig.guest();
    assert!(rig.front().resized().contains("told"));
    let mut message = [0; 12];
    g.channel.read_exact(&mut message).expect("told");
    assert_eq!(message, [2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
}

/// A port that loses a completion: the guest gets an error, and the queue can be stopped.
#[test]
fn a_lost_request_is_an_error() {
    let rig = rig();
    let mut g = rig.guest();
    rig.hold();
    g.prepare(0, 0, WRITE, 8, &[1; 4096], 0);
    g.publish(0, 0);
    g.kick(0);
    until("taken", || rig.held() == 1);
    *rig.between.held.lock().expect("no panic") = None;
    assert_eq!(g.wait_used(0, Duration::from_secs(60)), Some((0, 1)));
    assert_eq!(g.get(g.queues[0].status(0), 1), [ERROR]);
}

/// A firmware that polls its queue takes no interrupt back. Told at the start, QEMU holds a line that other devices of the guest share, and
/// the next kernel hangs.
#[test]
fn a_driver_that_polls_is_not_interrupted() {
    let rig = rig();
    let mut g = Guest::new(&rig.path, 1, SIZE, 1 << 29);
    g.put(g.queues[0].available(), &1u16.to_le_bytes());
    g.front.set_vring_enable(0, false).expect("disabled");
    let _ = g.queues[0].call.read();
    g.front.set_vring_enable(0, true).expect("enabled");
    g.prepare(0, 0, READ, 0, &[], 512);
    g.publish(0, 0);
    g.kick(0);
    until("answered", || g.used(0).is_some());
    g.front.set_vring_enable(0, false).expect("disabled");
    assert!(!guest::wait_readable(&g.queues[0].call, Duration::ZERO));
}
