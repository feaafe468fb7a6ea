//! PostgreSQL on a tiering file system: the mover moves every file at random, and kill -9 ends the program in the middle of it.

use crate::proof::{self, PATIENCE, seed};
use crate::server::{Postgres, kill_postmaster, programs};
use crate::var;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Two directories on different file systems, mounted.
struct Tiers {
    fast: PathBuf,
    slow: PathBuf,
    mnt: PathBuf,
    server: Option<Child>,
}

impl Tiers {
    /// With an odd seed, files are copied at random as well.
    fn mount(&mut self, seed: u64) {
        let copies = ["--copies"].iter().filter(|_| seed % 2 == 1);
        let mut child = Command::new(env!("CARGO_BIN_EXE_isotherm"))
            .args(["mount", "--watermarks", "100,100", "--chaos"])
            .arg(seed.to_string())
            .args(copies)
            .arg("--fast")
            .arg(&self.fast)
            .arg("--slow")
            .arg(&self.slow)
            .arg(&self.mnt)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().expect("piped"));
        out.read_line(&mut line).expect("read");
        self.server = Some(child);
        assert_eq!(line, "ready\n");
    }
    fn leave(&self) {
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let ours = self.mnt.display().to_string();
        if mounts.lines().any(|l| l.split(' ').nth(1) == Some(&ours)) {
            let _ = Command::new("umount").arg("-l").arg(&self.mnt).status();
        }
    }
    fn kill(&mut self) {
        if let Some(mut child) = self.server.take() {
            child.kill().expect("killed");
            child.wait().expect("waited");
        }
        self.leave();
    }
    /// The answer of `isotherm files WHAT`.
    fn ask(&self, what: &str) -> serde_json::Value {
        let mut ask = Command::new(env!("CARGO_BIN_EXE_isotherm"));
        let out = proof::output(ask.args(["files", what, "--json"]).arg(&self.mnt));
        serde_json::from_slice(&out.stdout).expect("JSON")
    }
    fn moved(&self) -> u64 {
        self.ask("stats")["moves"]["done"]
            .as_u64()
            .expect("a number")
    }
    /// Waits until the mover has moved this number of further files.
    fn moves(&self, more: u64) {
        let (until, enough) = (Instant::now() + PATIENCE, self.moved() + more);
        while self.moved() < enough {
            assert!(Instant::now() < until, "the mover does not move");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    /// Unmounts in order. Nothing hidden may be left.
    fn unmount(&mut self) {
        proof::run("umount", &[self.mnt.to_str().expect("text")]);
        let mut child = self.server.take().expect("mounted");
        assert!(proof::wait(&mut child, "mount").success());
        for tier in [&self.fast, &self.slow] {
            for dir in ["tmp", "intents"] {
                let left = std::fs::read_dir(tier.join(".isotherm").join(dir));
                assert_eq!(left.map_or(0, Iterator::count), 0, "{dir}");
            }
        }
    }
}

impl Drop for Tiers {
    fn drop(&mut self) {
        if let Some(mut child) = self.server.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        self.leave();
    }
}

/// Two mounts with copies. The second takes the copies of the first over.
fn remounted_with_copies(tiers: &mut Tiers, pg: &Postgres, seed: u64) {
    let list = tiers.fast.join(".isotherm/copies.json");
    for turn in 0..2 {
        tiers.mount(seed | 1);
        assert!(!list.exists(), "the list is gone while it is mounted");
        pg.start();
        pg.ok("pgbench", &["-n", "-c", "2", "-T", "1"]);
        tiers.moves(20);
        pg.check();
        pg.stop();
        let stats = tiers.ask("stats");
        println!("mount {turn} with copies: {}", stats["copies"]);
        tiers.unmount();
        assert!(list.exists(), "copies are listed");
    }
}

#[test]
fn postgres_keeps_everything_while_its_files_move() {
    if !Path::new("/dev/fuse").exists() || !rustix::process::getuid().is_root() {
        println!("skipped: needs /dev/fuse and root");
        return;
    }
    let Some(bin) = programs() else {
        println!("skipped: PostgreSQL with pgbench and pg_amcheck is not installed");
        return;
    };
    let seed = seed();
    let (seconds, kills) = (var("ISOTHERM_PG_SECONDS", 2), var("ISOTHERM_KILLS", 1));
    let open = tempfile::tempdir().expect("a temporary directory");
    // One tier in memory, so that most of the mover's time is not the disk's.
    let memory = Path::new("/dev/shm");
    let memory = if memory.is_dir() { memory } else { open.path() };
    let memory = tempfile::tempdir_in(memory).expect("a temporary directory");
    let mut tiers = Tiers {
        fast: memory.path().join("fast"),
        slow: open.path().join("slow"),
        mnt: open.path().join("mnt"),
        server: None,
    };
    for dir in [&tiers.fast, &tiers.slow, &tiers.mnt] {
        std::fs::create_dir(dir).expect("made");
    }
    // The server runs as the user postgres.
    for dir in [open.path(), &tiers.fast, &tiers.slow] {
        proof::run("chown", &["postgres", dir.to_str().expect("text")]);
    }
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(memory.path(), mode).expect("set");
    tiers.mount(seed);
    let pg = Postgres {
        bin,
        fs: tiers.mnt.clone(),
        log: open.path().join("log"),
    };
    pg.fill();
    for kill in 0..kills {
        let mut bench = pg.load();
        std::thread::sleep(Duration::from_secs(seconds));
        tiers.moves(100);
        let (before, moved) = (pg.committed(), tiers.moved());
        tiers.kill();
        proof::wait(&mut bench, "pgbench");
        kill_postmaster(&pg.log);
        tiers.mount(seed + 1 + kill);
        pg.start();
        pg.check();
        let after = pg.committed();
        println!("kill {kill}: {before} transactions seen before, {after} after, {moved} moves");
        assert!(
            before > 0 && after >= before,
            "committed transactions are gone: {before} before, {after} after"
        );
    }
    pg.ok("pgbench", &["-n", "-c", "2", "-T", "1"]);
    tiers.moves(20);
    pg.check();
    pg.stop();
    let check = tiers.ask("check");
    assert_eq!(check["ok"], true, "{check}");
    tiers.unmount();
    remounted_with_copies(&mut tiers, &pg, seed);
}
