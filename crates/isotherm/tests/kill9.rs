//! kill -9 in the middle of everything, again and again: what was made durable is there after serving again.
//!
//! This proves the recovery of the process's state only; the machine's caches live on (`power_loss` drops those).
//! `ISOTHERM_KILLS=50` (or `make soak-kill9`) is the long form.

mod proof;

use isotherm_lab::hostile::Rng;
use proof::{Place, Shape, able, output, seed, wait};
use std::fs::OpenOptions;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const BLOCK: usize = 4096;
/// fio writes and verifies the first part, churns the second; the third is ours.
const VERIFIED_MB: u64 = 24;
const CHURNED_MB: u64 = 96;
const OURS: u64 = (VERIFIED_MB + CHURNED_MB) << 20;
const BLOCKS: usize = 512;

fn fio(file: &Path, seed: u64) -> Command {
    let mut c = Command::new("fio");
    c.args([
        "--name=a",
        "--direct=1",
        "--ioengine=libaio",
        "--iodepth=8",
        "--rw=randwrite",
        "--bs=16k",
        "--verify=crc32c",
    ])
    .args([
        &format!("--filename={}", file.display()),
        &format!("--size={VERIFIED_MB}m"),
        &format!("--randseed={seed}"),
    ])
    .args([
        "--allow_file_create=0",
        "--verify_state_save=0",
        "--end_fsync=1",
    ])
    .current_dir("/tmp");
    c
}

fn content(block: usize, version: u64) -> Vec<u8> {
    let word = (block as u64) << 40 | version;
    word.to_le_bytes().repeat(BLOCK / 8)
}

/// Versions that a block may hold: the last one acknowledged, and one whose write was under way.
#[derive(Clone, Copy, Default)]
struct Held {
    sure: u64,
    maybe: Option<u64>,
}

/// Durable writes (O_DSYNC), one at a time, until the volume is gone.
fn write_until_killed(file: PathBuf, mut held: Vec<Held>, seed: u64) -> (Vec<Held>, u64) {
    let mut rng = Rng::new(seed);
    let f = OpenOptions::new()
        .write(true)
        .custom_flags(libc::O_DSYNC)
        .open(file)
        .expect("the block file");
    let mut written = 0;
    for version in 1.. {
        let b = rng.below(BLOCKS as u64) as usize;
        let v = seed << 20 | version;
        held[b].maybe = Some(v);
        if f.write_all_at(&content(b, v), OURS + (b * BLOCK) as u64)
            .is_err()
        {
            break;
        }
        held[b] = Held {
            sure: v,
            maybe: None,
        };
        written += 1;
    }
    (held, written)
}

fn check_ours(file: &Path, held: &mut [Held]) {
    let f = std::fs::File::open(file).expect("the block file");
    let mut buf = vec![0; BLOCK];
    for (b, h) in held.iter_mut().enumerate() {
        f.read_exact_at(&mut buf, OURS + (b * BLOCK) as u64)
            .expect("read after recovery");
        let is = |v: u64| {
            buf == if v == 0 {
                vec![0; BLOCK]
            } else {
                content(b, v)
            }
        };
        let now = [Some(h.sure), h.maybe]
            .into_iter()
            .flatten()
            .find(|&v| is(v));
        // In 512-byte pieces a torn write in flight is legal for a disk; this program never tears a block.
        let now = now.unwrap_or_else(|| {
            panic!(
                "block {b} holds {:02x?}…, sure was {:#x}, maybe {:#x?}",
                &buf[..16],
                h.sure,
                h.maybe
            )
        });
        *h = Held {
            sure: now,
            maybe: None,
        };
    }
}

#[test]
fn what_was_durable_survives_kill_9() {
    survives("hot-dst-recency");
}

/// The newest data is in the cache alone, most of the time.
#[test]
fn what_was_durable_in_a_write_back_cache_survives_kill_9() {
    survives("lru");
}

fn survives(policy: &'static str) {
    if !able(&["fio"], true) {
        return;
    }
    let seed = seed();
    let kills: u64 = std::env::var("ISOTHERM_KILLS")
        .ok()
        .and_then(|k| k.parse().ok())
        .unwrap_or(6);
    let mut rng = Rng::new(seed);
    let shape = Shape {
        policy,
        ..Shape::default()
    };
    let mut place = Place::new(&shape);
    let mut held = vec![Held::default(); BLOCKS];
    let (mut verified, mut total) = (None, 0);
    for kill in 0..=kills {
        let file = place.serve_file();
        if let Some(s) = verified {
            let out = output(fio(&file, s).arg("--verify_only"));
            assert!(
                out.status.success(),
                "kill {kill}: {}{}",
                String::from_utf8_lossy(&out.stdout),
                String::from_utf8_lossy(&out.stderr)
            );
        }
        check_ours(&file, &mut held);
        if kill == kills {
            break;
        }
        let s = rng.draw() >> 33;
        let out = output(fio(&file, s).arg("--do_verify=0"));
        assert!(
            out.status.success(),
            "{}",
            String::from_utf8_lossy(&out.stderr)
        );
        verified = Some(s);
        // Churn, so that moves, checkpoints and evictions are under way.
        let mut churn = Command::new("fio")
            .args([
                "--name=b",
                "--direct=1",
                "--ioengine=libaio",
                "--iodepth=8",
                "--rw=randrw",
                "--bsrange=4k-64k",
                "--random_distribution=zipf:1.1",
            ])
            .args([
                "--time_based",
                "--runtime=60",
                "--fsync=64",
                "--allow_file_create=0",
                "--randrepeat=0",
            ])
            .args([
                &format!("--filename={}", file.display()),
                &format!("--offset={VERIFIED_MB}m"),
                &format!("--size={CHURNED_MB}m"),
            ])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .current_dir("/tmp")
            .spawn()
            .expect("fio starts");
        let ours = {
            let (file, held, seed) = (file.clone(), held.clone(), rng.draw() >> 40);
            std::thread::spawn(move || write_until_killed(file, held, seed | 1))
        };
        std::thread::sleep(Duration::from_millis(50 + rng.below(1500)));
        assert!(place.is_serving(), "the server ended by itself");
        place.kill();
        // Its writes fail now.
        wait(&mut churn, "fio");
        let written;
        (held, written) = ours.join().expect("the writer");
        total += written;
    }
    place.stop();
    place.check();
    println!("{kills} kills, {total} durable writes");
    assert!(total > 0);
}
