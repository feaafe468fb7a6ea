//! Promises to classes on a live volume with a paced disk: a noisy class beside a quiet one.

mod common;

use common::two_files;
use isotherm_core::qos::Standing;
use isotherm_core::random::SplitMix64;
use isotherm_core::{IoError, RequestOp, World};
use isotherm_live::port::{Completion, IoRequest, Port};
use isotherm_live::{Handle, OpenMode, Volume, VolumeConfig};
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

const NOISY: u8 = 18;
const QUIET: u8 = 7;
const BLOCK: u64 = 64 << 10;
/// Size of the range on the disk that both classes read.
const BYTES: u64 = 8 << 20;

fn config(dir: &Path) -> VolumeConfig {
    let mut config = two_files(dir, "mylinear", 8 << 20, 48 << 20);
    config.members[1].paced = Some("wd5000aaks".into());
    config.qos = vec!["7+share=200".into()];
    config
}

type Ends = (mpsc::Sender<u8>, mpsc::Receiver<u8>);

struct Load {
    port: Arc<dyn Port>,
    from: u64,
    random: SplitMix64,
    ends: Ends,
    /// Number of requests that succeeded, by class.
    done: [u64; 64],
}

impl Load {
    fn send(&mut self, class: u8, len: u64) {
        let at = self.from + self.random.below(BYTES / BLOCK) * BLOCK;
        let ended = self.ends.0.clone();
        let done = move |result: Result<(), IoError>, _| {
            // An error is reported as an invalid class, which ends the test.
            let _ = ended.send(result.map_or(u8::MAX, |()| class));
        };
        let buf = self.port.buffer(at, len as u32);
        let op = RequestOp::Read;
        let done = Completion::new(done);
        (self.port).submit(
            IoRequest {
                op,
                offset: at,
                len: len as u32,
                fua: false,
                class,
                buffer: Some(buf),
                pages: None,
            },
            done,
        );
    }

    fn end(&mut self) -> u8 {
        let class = self.ends.1.recv().expect("we hold a sender");
        assert_ne!(class, u8::MAX, "a read failed");
        self.done[usize::from(class)] += 1;
        class
    }

    /// Keeps eight noisy requests and a quiet one in progress until `until` returns true; then waits until all have ended.
    fn run(&mut self, mut until: impl FnMut(&Load) -> bool) {
        let mut going = 9;
        (0..8).for_each(|_| self.send(NOISY, BLOCK));
        self.send(QUIET, 4096);
        while going > 0 {
            let class = self.end();
            if until(self) {
                going -= 1;
            } else {
                self.send(class, if class == NOISY { BLOCK } else { 4096 });
            }
        }
    }
}

fn promise(handle: &Handle, rows: &[&str]) {
    let spec = isotherm_words::qos::spec(rows.iter().copied()).expect("rows");
    handle
        .call(|engine, world| engine.promise(world.now(), spec))
        .expect("served");
}

fn standing(handle: &Handle, class: u8) -> Standing {
    let all = handle.call(|engine, world| engine.standing(world.now()));
    let mut all = all.expect("served").into_iter();
    all.find(|s| s.row.classes >> class & 1 != 0)
        .expect("a row")
}

#[test]
fn promises_are_kept_on_a_paced_volume_and_misses_are_reported() {
    let dir = tempfile::tempdir().unwrap();
    let volume = dir.path().join("v");
    let made = Volume::create(&volume, config(dir.path()), false).unwrap();
    let server = Volume::open(&volume, OpenMode::ReadWrite)
        .unwrap()
        .serve()
        .unwrap();
    let (port, handle) = (server.port(), server.handle());
    let from = u64::from(made.slots[0]) * BLOCK;
    let mut load = Load {
        port: Arc::clone(&port),
        from,
        random: SplitMix64::new(1),
        ends: mpsc::channel(),
        done: [0; 64],
    };
    for at in (from..from + BYTES).step_by(1 << 20) {
        let mut buf = port.buffer(at, 1 << 20);
        buf.fill(3);
        let (send, receive) = mpsc::channel();
        let done = Completion::new(move |r, _| send.send(r).expect("somebody waits"));
        port.submit(IoRequest::write(at, 1 << 20, buf), done);
        assert_eq!(receive.recv().unwrap(), Ok(()));
    }
    // The description's promise holds from the start.
    assert_eq!(standing(&handle, QUIET).row.share, 200);
    // A ceiling is never exceeded, whatever the speed of this machine.
    promise(&handle, &["18+ceiling=1M"]);
    let begun = Instant::now();
    // On a busy machine, the first answer can take longer than that.
    let both = |l: &Load| [NOISY, QUIET].iter().all(|&c| l.done[usize::from(c)] > 0);
    load.run(|l| begun.elapsed() > Duration::from_millis(1200) && both(l));
    let took = begun.elapsed().as_secs_f64();
    let most = took * f64::from(1 << 20) + f64::from(1 << 20) / 10.0;
    let noisy = load.done[usize::from(NOISY)];
    assert!((noisy * BLOCK) as f64 <= most, "{noisy} in {took} s");
    assert!(standing(&handle, NOISY).waited > 0);
    // No disk delivers 100 GiB a second: this is reported, and both classes continue.
    promise(&handle, &["7+floor=100G"]);
    let told = Instant::now();
    let missed = |h: &Handle| standing(h, QUIET).floor_held == Some(false);
    load.run(|_| missed(&handle) || told.elapsed() > Duration::from_secs(60));
    assert!(missed(&handle), "{:?}", standing(&handle, QUIET));
    // Any disk answers within a minute.
    promise(&handle, &["7+latency=60s"]);
    let told = Instant::now();
    let kept = |h: &Handle| standing(h, QUIET).latency_held == Some(true);
    load.run(|_| kept(&handle) || told.elapsed() > Duration::from_secs(60));
    assert!(kept(&handle), "{:?}", standing(&handle, QUIET));
    // Requests that the promise still delays when the volume stops are answered.
    promise(&handle, &["18+ceiling=4K"]);
    (0..8).for_each(|_| load.send(NOISY, BLOCK));
    while standing(&handle, NOISY).held == 0 {
        std::thread::yield_now();
    }
    server.stop().unwrap();
    (0..8).for_each(|_| assert_eq!(load.end(), NOISY));
}
