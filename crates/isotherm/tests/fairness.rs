//! Clients that stall delay only themselves: the block file and other connections are still answered.

mod common;

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use common::Place;
use common::peer::{Peer, READ, WRITE, wait_for};

const MIB: u32 = 1 << 20;
/// A read of 4 KiB through each front end must be answered.
fn others_are_served(place: &Place, file: Option<&File>) {
    if let Some(file) = file {
        let mut block = [1; 4096];
        file.read_exact_at(&mut block, 0)
            .expect("the block file answers");
        assert_eq!(block, [7; 4096]);
    }
    let mut other = Peer::connect(&place.path("n")).expect("connected");
    assert_eq!(
        other.read(0, 4096).expect("another connection is answered"),
        [7; 4096]
    );
    // A read as large as those of the page cache.
    other
        .write(u64::from(8 * MIB), &vec![3; MIB as usize])
        .expect("written");
}

/// Whether the server still waits for what the client has not sent.
fn is_waited_for(peer: &mut Peer) -> bool {
    peer.0.set_nonblocking(true).expect("set");
    let read = std::io::Read::read(&mut peer.0, &mut [0]);
    peer.0.set_nonblocking(false).expect("set");
    read.is_err_and(|e| e.kind() == std::io::ErrorKind::WouldBlock)
}

#[test]
fn unread_replies_and_unfinished_writes_delay_no_other_client() {
    let place = Place::in_memory();
    place.ok("create v --slow s:600M --policy linear");
    std::fs::create_dir(place.path("mnt")).expect("made");
    let fuse = std::path::Path::new("/dev/fuse").exists();
    let front = if fuse {
        "--block-file mnt --nbd unix:n"
    } else {
        "--nbd unix:n"
    };
    let served = place.serve(&format!("v {front} --stop-timeout 0"));
    Peer::connect(&place.path("n"))
        .and_then(|mut p| p.write(0, &[7; 4096]))
        .expect("written");
    let file = fuse.then(|| File::open(place.path("mnt/v")).expect("opened"));
    // 278 reads of 1 MiB whose replies the client does not receive.
    let mut greedy = Peer::connect(&place.path("n")).expect("connected");
    for i in 0..278 {
        greedy.ask(READ, u64::from(i * MIB), MIB).expect("sent");
    }
    std::thread::sleep(Duration::from_millis(500));
    others_are_served(&place, file.as_ref());
    // Two writes of 32 MiB that stop after their headers.
    let mut halves: Vec<Peer> = (0..2)
        .map(|_| Peer::connect(&place.path("n")).expect("connected"))
        .collect();
    for half in &mut halves {
        half.ask(WRITE, 0, 32 * MIB).expect("sent");
        half.0.write_all(&[9; 1000]).expect("sent");
    }
    std::thread::sleep(Duration::from_millis(200));
    others_are_served(&place, file.as_ref());
    // They were served meanwhile, and not because the stalled ones had been cut off.
    assert!(halves.iter_mut().all(is_waited_for));
    // The greedy client gets its answers as soon as it receives them.
    for i in 0..278 {
        assert_eq!(greedy.answer().expect("a reply"), 0, "reply {i}");
        let mut data = vec![0; MIB as usize];
        std::io::Read::read_exact(&mut greedy.0, &mut data).expect("its data");
    }
    drop((greedy, halves));
    // A client that has left has returned all its memory.
    wait_for("the memory to come back", || {
        let stats = place.json("stats v", "stats");
        (stats["buffer_bytes_out"].as_u64()? == 0).then_some(())
    });
    drop(file);
    assert_eq!(served.terminate(), Some(0));
}
