//! kill -9 at random moments, repeatedly: durable data must be there when the volume is served again.
//!
//! This proves only the recovery of the process's state, because the machine's caches survive (`power_loss` drops those).
//! `ISOTHERM_KILLS=50` (or `make soak-kill9`) is the long form.

mod common;
mod proof;

use common::peer::{FLUSH, Peer};
use isotherm_hostile::Rng;
use isotherm_live::block_file::O_DSYNC;
use proof::{Loop, Mounted, Place, Shape, able, output, run, seed, wait};
use std::fs::OpenOptions;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const BLOCK: usize = 4096;
/// fio writes and verifies the first part and changes the second; the test itself uses the third.
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

/// The versions that a block may hold: the last one acknowledged, and one whose write was in progress.
#[derive(Clone, Copy, Default)]
struct Held {
    sure: u64,
    maybe: Option<u64>,
}

/// Makes durable writes (O_DSYNC), one at a time, until the volume is gone.
fn write_until_killed(file: PathBuf, mut held: Vec<Held>, seed: u64, at: u64) -> (Vec<Held>, u64) {
    let mut rng = Rng::new(seed);
    let f = OpenOptions::new()
        .write(true)
        .custom_flags(O_DSYNC)
        .open(file)
        .expect("the block file");
    let mut written = 0;
    for version in 1.. {
        let b = rng.below(BLOCKS as u64) as usize;
        let v = seed << 20 | version;
        held[b].maybe = Some(v);
        if f.write_all_at(&content(b, v), at + (b * BLOCK) as u64)
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

/// The same over NBD: a write, then a FLUSH.
fn flush_until_killed(socket: &Path, mut held: Vec<Held>, seed: u64, at: u64) -> (Vec<Held>, u64) {
    let mut rng = Rng::new(seed);
    let mut peer = Peer::connect(socket).expect("connected");
    let mut written = 0;
    for version in 1.. {
        let b = rng.below(BLOCKS as u64) as usize;
        let v = seed << 20 | version;
        held[b].maybe = Some(v);
        let done = peer
            .write(at + (b * BLOCK) as u64, &content(b, v))
            .and_then(|()| peer.ask(FLUSH, 0, 0))
            .and_then(|()| peer.answer());
        if !matches!(done, Ok(0)) {
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

fn check_ours(file: &Path, held: &mut [Held], at: u64) {
    let f = std::fs::File::open(file).expect("the block file");
    let mut buf = vec![0; BLOCK];
    for (b, h) in held.iter_mut().enumerate() {
        f.read_exact_at(&mut buf, at + (b * BLOCK) as u64)
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
        // A disk may tear a write in progress into 512-byte pieces; this program never tears a block.
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

/// Most of the time, only the cache holds the newest data.
#[test]
fn what_was_durable_in_a_write_back_cache_survives_kill_9() {
    survives("lru");
}

#[expect(clippy::too_many_lines, reason = "one scenario")]
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
        check_ours(&file, &mut held, OURS);
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
        // Other work, so that moves, checkpoints and evictions are in progress.
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
            std::thread::spawn(move || write_until_killed(file, held, seed | 1, OURS))
        };
        std::thread::sleep(Duration::from_millis(50 + rng.below(1500)));
        assert!(place.is_serving(), "the server ended by itself");
        place.kill();
        // The writes of that work fail now.
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

fn sqlite(db: &Path, text: &str) -> Option<String> {
    // With this setting, the deletion of the journal is durable before each answer, too.
    let text = format!("PRAGMA synchronous=EXTRA; {text}");
    let out = output(Command::new("sqlite3").arg("-batch").arg(db).arg(text));
    let said = String::from_utf8_lossy(&out.stdout).trim().to_owned();
    out.status.success().then_some(said)
}

/// Inserts rows from `from` on, one in each transaction, until the volume is gone; returns the last acknowledged row.
fn insert_until_killed(db: &Path, from: u64) -> u64 {
    let mut sure = from;
    for n in from + 1.. {
        let row = format!("INSERT INTO t VALUES({n}, hex(randomblob(400)));");
        if sqlite(db, &row).is_none() {
            break;
        }
        sure = n;
    }
    sure
}

/// The database must be whole and have the rows 1 to at least `sure` without a gap; returns their number.
fn check_rows(db: &Path, sure: u64) -> u64 {
    let ask = "PRAGMA integrity_check; SELECT count(*) || ' ' || ifnull(max(n), 0) FROM t;";
    let said = sqlite(db, ask).expect("the database opens");
    let mut lines = said.lines();
    assert_eq!(lines.next(), Some("ok"), "{said}");
    let figures = lines.next().and_then(|l| l.split_once(' '));
    let (count, last) = figures.expect("two figures");
    assert_eq!(count, last, "rows are missing");
    let count: u64 = count.parse().expect("a number");
    assert!(count >= sure, "{count} rows, {sure} were acknowledged");
    count
}

/// Policies of a cache volume, which are used one after another; it is created with the first.
const CACHES: [&str; 8] = [
    "lru",
    "greendm-cache",
    "s3-fifo",
    "cache-ondemand",
    "dss-lru",
    "arc",
    "hystor",
    "benefit",
];
/// Policies of a tiering volume.
const TIERS: [&str; 5] = ["greendm", "hot-dst-recency", "linear", "type-aware", "hro"];

/// A file system of `mb` MiB at the start of the volume. The places of durable and of flushed writes follow it.
#[derive(Clone, Copy)]
struct FileSystem {
    kind: &'static str,
    mb: u64,
    /// Size of the volume's slow member.
    slow: &'static str,
    policies: &'static [&'static str],
}

impl FileSystem {
    fn make(self, device: &str) {
        let mb = self.mb;
        match self.kind {
            "xfs" => run(
                "mkfs.xfs",
                &["-q", "-f", "-d", &format!("size={mb}m"), device],
            ),
            _ => run("mkfs.ext4", &["-q", device, &format!("{mb}M")]),
        };
    }
    fn mount(self, device: &str, dir: PathBuf) -> Mounted {
        if self.kind != "xfs" {
            return Mounted::new(device, dir);
        }
        // The last mount, whose server was killed, may disappear a moment later, and has the same UUID.
        let _ = std::fs::create_dir(&dir);
        run(
            "mount",
            &["-o", "nouuid", device, dir.to_str().expect("text")],
        );
        Mounted(dir)
    }
}

/// sqlite on ext4 and, beside it, durable and flushed writes, with repeated changes of policy: after kill -9 all acknowledged data must be
/// there.
#[test]
fn a_database_survives_kill_9_and_changes_of_policy() {
    database_survives(FileSystem {
        kind: "ext4",
        mb: 120,
        slow: "256M",
        policies: &CACHES,
    });
}

#[test]
fn a_database_on_xfs_survives_kill_9_and_changes_of_policy() {
    database_survives(FileSystem {
        kind: "xfs",
        mb: 320,
        slow: "512M",
        policies: &TIERS,
    });
}

fn database_survives(fs: FileSystem) {
    let mkfs = format!("mkfs.{}", fs.kind);
    if !able(&["sqlite3", &mkfs, "losetup"], true) {
        return;
    }
    let seed = seed();
    let kills = std::env::var("ISOTHERM_KILLS").ok();
    let kills: u64 = kills.and_then(|k| k.parse().ok()).unwrap_or(2);
    let mut rng = Rng::new(seed ^ 0x5017);
    let shape = Shape {
        policy: fs.policies[0],
        slow: fs.slow,
        ..Shape::default()
    };
    let mut place = Place::new(&shape);
    let (durable, flushed) = (fs.mb << 20, (fs.mb << 20) + (BLOCKS * BLOCK) as u64);
    let mut held = [vec![Held::default(); BLOCKS], vec![Held::default(); BLOCKS]];
    let (mut rows, mut total, mut switches) = (0, [0, 0], 0);
    for kill in 0..=kills {
        place.serve("--block-file mnt --nbd unix:n");
        let (file, socket) = (place.path("mnt/v"), place.path("n"));
        check_ours(&file, &mut held[0], durable);
        check_ours(&file, &mut held[1], flushed);
        let disk = Loop::over(&file);
        if kill == 0 {
            fs.make(&disk.0);
        }
        let mounted = fs.mount(&disk.0, place.path("fs"));
        let db = mounted.0.join("db");
        if kill == 0 {
            let table = sqlite(&db, "CREATE TABLE t(n INTEGER PRIMARY KEY, v TEXT);");
            assert!(table.is_some(), "no table");
        }
        rows = check_rows(&db, rows);
        if kill == kills {
            mounted.unmount();
            drop(disk);
            break;
        }
        let seeds = [rng.draw() >> 40 | 1, rng.draw() >> 40 | 1];
        let [a, b] = held;
        let writer = std::thread::spawn(move || write_until_killed(file, a, seeds[0], durable));
        let flusher = std::thread::spawn(move || flush_until_killed(&socket, b, seeds[1], flushed));
        let inserts = {
            let db = db.clone();
            std::thread::spawn(move || insert_until_killed(&db, rows))
        };
        for _ in 0..2 + rng.below(2) {
            std::thread::sleep(Duration::from_millis(50 + rng.below(500)));
            let policy = fs.policies[rng.below(fs.policies.len() as u64) as usize];
            let set = output(&mut place.isotherm(&format!("set v policy={policy}")));
            let why = String::from_utf8_lossy(&set.stderr);
            assert!(set.status.success(), "{policy}: {why}");
            switches += 1;
        }
        assert!(place.is_serving(), "the server ended by itself");
        place.kill();
        let ends = [writer, flusher].map(|w| w.join().expect("a writer"));
        total = [total[0] + ends[0].1, total[1] + ends[1].1];
        held = ends.map(|e| e.0);
        rows = inserts.join().expect("the database's client");
        drop(mounted);
        drop(disk);
    }
    place.stop();
    place.check();
    println!(
        "{}: {kills} kills, {switches} changes of policy, {rows} rows, {} durable and {} flushed writes",
        fs.kind, total[0], total[1]
    );
    assert!(total[0] + rows > 0);
}
