//! What happens between the two reads of an extent.

use super::*;

/// A write to both devices between the two reads makes them differ in every look. Without the rule about settled looks, this would be
/// reported as damage.
#[test]
fn a_write_between_the_reads_is_no_difference() {
    let rig = Rig::new(THROUGH);
    let server = rig.serve(OpenMode::ReadWrite);
    let handle = server.handle();
    write(&handle, 0, EXTENT as u32, 1);
    let (writer, mut fill) = (handle.clone(), 1u8);
    let found = with_steps(&handle, FAST, move || {
        fill ^= 3;
        write(&writer, 4096, 4096, fill);
    });
    assert!(found.is_well(), "{found:?}");
    // It was seen, and not believed.
    assert_eq!(found.not_compared, [(4096, 8192)], "{found:?}");
    let found = plain(&handle);
    assert!(
        found.is_well() && found.not_compared.is_empty(),
        "{found:?}"
    );
    server.stop().expect("stopped");
}

/// The writes end after some looks: then the extent is compared, and well.
#[test]
fn a_doubt_is_cleared_when_the_writes_end() {
    let rig = Rig::new(THROUGH);
    let server = rig.serve(OpenMode::ReadWrite);
    let handle = server.handle();
    write(&handle, 0, EXTENT as u32, 1);
    let (writer, mut fill) = (handle.clone(), 1u8);
    let found = with_steps(&handle, FAST, move || {
        if fill < 6 {
            fill += 1;
            write(&writer, 4096, 4096, fill);
        }
    });
    assert!(
        found.is_well() && found.not_compared.is_empty(),
        "{found:?}"
    );
    server.stop().expect("stopped");
}

/// Between the reads, the slot of the copy gets the data of another extent, and then the same copy again. Both queries of the engine see the
/// same places, no writer and no write to the slow device. Without the rule about moves, this would be reported as damage.
#[test]
fn a_copy_that_left_and_returned_between_the_reads_is_no_difference() {
    let rig = Rig::with(THROUGH, 4 << 20, None);
    let server = rig.serve(OpenMode::ReadWrite);
    let handle = server.handle();
    for e in 0..100u8 {
        write(&handle, u64::from(e) * EXTENT, EXTENT as u32, e + 1);
    }
    // The cache is full, and extent 0 is the one that leaves it next.
    for e in 0..100 {
        ask(&handle, RequestOp::Read, e * EXTENT, EXTENT as u32, 0);
        at_rest(&handle);
    }
    let copied = handle.call(|e, _| e.space().map.copied());
    let slots = u64::from(copied.expect("served"));
    assert!((2..90).contains(&slots), "{slots}");
    let all = move |handle: &Handle| {
        for e in 0..slots {
            fetch(handle, e);
        }
        // From the first one on, so that this is the oldest again.
        for e in 0..slots {
            ask(handle, RequestOp::Read, e * EXTENT, 4096, 0);
        }
        at_rest(handle);
    };
    all(&handle);
    let (home, Some(slot)) = places(&handle, 0) else {
        panic!("extent 0 has no copy");
    };
    let reader = handle.clone();
    let seen = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&seen);
    let found = with_phases(&handle, FAST, move |phase, at| {
        if Some(at) != home {
            return;
        }
        if phase == Phase::HomeRead {
            // Another extent takes the slot of the oldest copy.
            fetch(&reader, 95);
            let taken = places(&reader, 95).1 == Some(slot);
            counted.fetch_add(u32::from(taken), Ordering::Relaxed);
        } else {
            // It becomes the oldest, and extent 0 takes its slot.
            for e in 1..slots {
                ask(&reader, RequestOp::Read, e * EXTENT, 4096, 0);
            }
            fetch(&reader, 0);
            for e in 1..slots {
                ask(&reader, RequestOp::Read, e * EXTENT, 4096, 0);
            }
            at_rest(&reader);
            assert_eq!(places(&reader, 0), (home, Some(slot)));
        }
    });
    // The scene was played in every look.
    assert!(seen.load(Ordering::Relaxed) > 30, "{seen:?}");
    assert!(found.is_well(), "{found:?}");
    assert_eq!(found.not_compared, [(0, EXTENT)], "{found:?}");
    let found = plain(&handle);
    assert!(
        found.is_well() && found.not_compared.is_empty(),
        "{found:?}"
    );
    server.stop().expect("stopped");
}

/// A look during a write says so.
#[test]
fn an_extent_with_a_write_in_progress_is_not_at_rest() {
    // Each write takes several milliseconds, as on a disk.
    let rig = Rig::with(THROUGH, 16 << 20, Some("wd5000aaks"));
    let server = rig.serve(OpenMode::ReadWrite);
    let handle = server.handle();
    write(&handle, 0, EXTENT as u32, 1);
    let rests = |handle: &Handle| {
        let look = look(handle, &[ExtentId(0)], 0).expect("served");
        look.placed[0].at_rest
    };
    let seen = (0..1000).any(|i| {
        let mut b = handle.buffer(0, 4096);
        b.fill(i as u8);
        let (send, receive) = mpsc::channel();
        let request = IoRequest {
            op: RequestOp::Write,
            offset: 0,
            len: 4096,
            fua: false,
            class: 0,
            buffer: Some(b),
            pages: None,
        };
        handle.submit(
            request,
            Completion::new(move |r, _| send.send(r).expect("it is awaited")),
        );
        // On a loaded machine the write may have ended before.
        let rested = rests(&handle);
        assert_eq!(receive.recv().expect("answered"), Ok(()));
        !rested
    });
    assert!(seen);
    at_rest(&handle);
    assert!(rests(&handle));
    server.stop().expect("stopped");
}
