//! Moments at which a promise was just made, so that a power failure then shows whether it was kept.

use super::rack::Rack;
use super::{BLOCK, EXTENT, FAST, SLOW, can_mount, config, open, seeds};
use isotherm_core::{IoError, RequestOp};
use isotherm_hostile::disk::Disk;
use isotherm_live::Volume;
use isotherm_live::port::{Buffer, Completion, IoRequest, Port};
use std::sync::{Arc, mpsc};

/// Sends one request and waits for its end; returns the payload.
pub(super) fn ask(port: &Arc<dyn Port>, request: IoRequest) -> Result<Option<Buffer>, String> {
    let (send, receive) = mpsc::channel();
    let op = request.op;
    let done = Completion::new(move |result: Result<(), IoError>, buf| {
        // The receiver waits.
        let _ = send.send(result.map(|()| buf));
    });
    port.submit(request, done);
    let ended = receive.recv().map_err(|e| e.to_string())?;
    ended.map_err(|e| format!("{op:?}: {e:?}"))
}

/// Durable data is zeroed with FUA, and power is lost when that is answered: whole extents, and a range that begins and ends within blocks.
fn zeroed_with_fua(op: RequestOp, seed: u64) {
    let dir = tempfile::tempdir().unwrap();
    let (members, volume) = (dir.path().join("members"), dir.path().join("v"));
    std::fs::create_dir(&members).unwrap();
    let disks = vec![Disk::new(FAST), Disk::new(SLOW)];
    let rack = Rack::mount(disks, &members, seed).unwrap();
    Volume::create(&volume, config(&members, "greendm"), true).unwrap();
    let server = open(&volume).unwrap().serve().unwrap();
    let port = server.port();
    let (whole, odd, len) = (2 * EXTENT as u32, 3 * EXTENT, 4 * EXTENT as u32);
    let mut buf = port.buffer(0, len);
    buf.fill(7);
    ask(&port, IoRequest::write(0, len, buf).with_fua(true)).unwrap();
    for (from, bytes) in [(0, whole), (odd + 100, 9000)] {
        ask(&port, IoRequest::new(op, from, bytes).with_fua(true)).unwrap();
    }
    rack.cut();
    drop(port);
    // Without power it may be impossible to close.
    let _ = server.stop();
    let rack = Rack::mount(rack.into_disks().unwrap(), &members, 0).unwrap();
    let server = open(&volume).unwrap().serve().unwrap();
    let port = server.port();
    let buf = port.buffer(0, len);
    let data = ask(&port, IoRequest::read(0, len, buf)).unwrap().unwrap();
    // A hint changes only whole blocks.
    let zeros = if op == RequestOp::Discard {
        odd + BLOCK as u64..odd + 2 * BLOCK as u64
    } else {
        odd + 100..odd + 9100
    };
    for (at, byte) in (0..).zip(data.iter()) {
        let zero = at < whole.into() || zeros.contains(&at);
        let want = if zero { 0 } else { 7 };
        assert_eq!(*byte, want, "ISOTHERM_SEED={seed}: {op:?}: byte {at}");
    }
    drop(port);
    server.stop().unwrap();
    drop(rack);
}

#[test]
fn zeros_and_discards_with_fua_survive_the_loss_of_power() {
    if !can_mount() {
        return;
    }
    let zeroes = |keep| RequestOp::WriteZeroes { keep };
    for op in [zeroes(true), zeroes(false), RequestOp::Discard] {
        for seed in seeds(4).take(4) {
            zeroed_with_fua(op, seed);
        }
    }
}

/// Power is lost as soon as a volume was created, and again as soon as it was opened: metadata of both is durable by then.
#[test]
fn a_new_volume_and_its_first_life_survive_the_loss_of_power() {
    if !can_mount() {
        return;
    }
    for seed in seeds(4).take(4) {
        let dir = tempfile::tempdir().unwrap();
        let (members, volume) = (dir.path().join("members"), dir.path().join("v"));
        std::fs::create_dir(&members).unwrap();
        let mut disks = vec![Disk::new(FAST), Disk::new(SLOW)];
        for life in 0..3 {
            let rack = Rack::mount(disks, &members, seed).unwrap();
            if life == 0 {
                Volume::create(&volume, config(&members, "greendm"), true).unwrap();
                rack.cut();
            } else {
                let opened = open(&volume);
                let opened = opened.unwrap_or_else(|e| panic!("ISOTHERM_SEED={seed}: {e}"));
                let server = opened.serve().unwrap();
                rack.cut();
                // Without power it may be impossible to close.
                let _ = server.stop();
            }
            disks = rack.into_disks().unwrap();
        }
    }
}
