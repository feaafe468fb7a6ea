//! PostgreSQL on ext4 on the block file: pgbench, kill -9 of the server during the work, recovery, and a check of every page and every
//! balance. `ISOTHERM_PG_SECONDS=N` runs longer, `ISOTHERM_KILLS=N` kills more often.

mod proof;

use proof::{Loop, Mounted, Place, Shape, able, output, seed};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

const PORT: &str = "54329";

/// The programs of the newest installed PostgreSQL.
fn programs() -> Option<PathBuf> {
    let mut dirs: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .ok()?
        .filter_map(|e| Some(e.ok()?.path().join("bin")))
        .filter(|d| {
            d.join("pg_amcheck").exists() && d.join("pgbench").exists() && d.join("initdb").exists()
        })
        .collect();
    dirs.sort();
    dirs.pop()
}

struct Postgres {
    bin: PathBuf,
    fs: PathBuf,
    log: PathBuf,
}

impl Postgres {
    /// A program that runs as the user `postgres`, because the server refuses root.
    fn command(&self, program: &str, args: &[&str]) -> Command {
        let mut c = Command::new("setpriv");
        c.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]);
        c.arg(self.bin.join(program)).args(args);
        c.env("PGHOST", self.log.parent().expect("in a directory"))
            .env("PGPORT", PORT)
            .env("PGDATABASE", "postgres")
            .current_dir("/");
        c
    }
    fn run(&self, program: &str, args: &[&str]) -> Output {
        output(&mut self.command(program, args))
    }
    fn ok(&self, program: &str, args: &[&str]) -> String {
        let out = self.run(program, args);
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let tail = log.len().saturating_sub(1500);
        assert!(
            out.status.success(),
            "{program} {args:?}: {}{}\n…{}",
            String::from_utf8_lossy(&out.stdout),
            String::from_utf8_lossy(&out.stderr),
            log.get(tail..).unwrap_or_default()
        );
        String::from_utf8_lossy(&out.stdout).trim().to_owned()
    }
    fn data(&self) -> String {
        self.fs.join("pg").display().to_string()
    }
    fn start(&self) {
        let socket = self
            .log
            .parent()
            .expect("in a directory")
            .display()
            .to_string();
        let options = format!(
            "-p {PORT} -k {socket} -c listen_addresses= -c shared_buffers=16MB -c max_wal_size=64MB -c checkpoint_timeout=30s"
        );
        // The log and the socket are outside the volume, because they must survive it.
        self.ok(
            "pg_ctl",
            &[
                "-D",
                &self.data(),
                "-l",
                &self.log.display().to_string(),
                "-o",
                &options,
                "-w",
                "-t",
                "120",
                "start",
            ],
        );
    }
    fn sum(&self, what: &str) -> i64 {
        self.ok(
            "psql",
            &[
                "-X",
                "-A",
                "-t",
                "-c",
                &format!("select coalesce(sum({what}), 0) from {}", table(what)),
            ],
        )
        .parse()
        .expect("a number")
    }
    fn check(&self) {
        self.ok(
            "pg_amcheck",
            &[
                "--install-missing",
                "--heapallindexed",
                "--parent-check",
                "-d",
                "postgres",
            ],
        );
        let sums: Vec<i64> = ["abalance", "bbalance", "tbalance", "delta"]
            .iter()
            .map(|w| self.sum(w))
            .collect();
        assert!(
            sums.iter().all(|s| *s == sums[0]),
            "accounts, branches, tellers and history disagree: {sums:?}"
        );
    }
}

fn table(column: &str) -> &'static str {
    match column {
        "abalance" => "pgbench_accounts",
        "bbalance" => "pgbench_branches",
        "tbalance" => "pgbench_tellers",
        _ => "pgbench_history",
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // Not with pg_ctl alone: its data directory may be gone.
        let _ = self
            .command("pg_ctl", &["-D", &self.data(), "-m", "immediate", "stop"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        kill_postmaster(&self.log);
    }
}

/// Kills the server whose process id is in its log, and waits for its end.
fn kill_postmaster(log: &Path) {
    let pid_file = log.with_extension("pid");
    let Ok(pid) = std::fs::read_to_string(&pid_file) else {
        return;
    };
    let pid = pid.trim();
    let _ = Command::new("kill")
        .args(["-9", pid])
        .stderr(Stdio::null())
        .status();
    for _ in 0..1000 {
        if !Path::new("/proc").join(pid).exists() {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let _ = std::fs::remove_file(pid_file);
}

/// `isotherm classify --postgres`: the volume's class of the first block of each file must be that of the catalogue.
#[expect(clippy::too_many_lines, reason = "one scenario")]
fn classes_are_those_of_the_catalogue(place: &Place, pg: &Postgres) {
    let psql = |sql: &str| pg.ok("psql", &["-X", "-A", "-t", "-c", sql]);
    psql("checkpoint");
    // From now on, one table is read through its index, more rows than the load scanned, and the other from beginning to end.
    psql("select pg_stat_reset()");
    psql(
        "set enable_seqscan = off; select count(*) from pgbench_accounts a join generate_series(1, 20000) i on a.aid = i where a.filler is not null",
    );
    psql("select sum(bbalance) from pgbench_branches; select sum(tbalance) from pgbench_tellers");
    psql("select pg_stat_force_next_flush()");
    proof::run("sync", &["-f", &pg.data()]);
    let host = pg.log.parent().expect("in a directory").display();
    let mut classify = place.isotherm("classify --volume v --json --postgres");
    let out = output(classify.arg(format!(
        "host={host} port={PORT} user=postgres dbname=postgres"
    )));
    let err = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "classify: {err}");
    let said: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
    assert_eq!(
        (said["elsewhere"].as_u64(), said["failed"].as_u64()),
        (Some(0), Some(0)),
        "{said}"
    );
    assert!(
        output(&mut place.isotherm("classes export v pg.json"))
            .status
            .success()
    );
    let text = std::fs::read_to_string(place.path("pg.json")).expect("written");
    let all: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let class_of = |file: &str| {
        let path = pg.fs.join("pg").join(file).display().to_string();
        let frag = proof::run("filefrag", &["-v", "-b4096", &path]);
        let line = frag
            .lines()
            .find(|l| l.trim_start().starts_with("0:"))
            .expect("an extent");
        let place = line.split(':').nth(2).expect("its place");
        let block: u64 = place
            .split("..")
            .next()
            .expect("first")
            .trim()
            .parse()
            .expect("a number");
        let holds = |r: &&serde_json::Value| {
            let from = r["offset"].as_u64().expect("a number");
            (from..from + r["bytes"].as_u64().expect("a number")).contains(&(block << 12))
        };
        let found = all["ranges"].as_array().expect("a list").iter().find(holds);
        found.map_or_else(
            || "none".into(),
            |r| r["class"].as_str().expect("text").to_owned(),
        )
    };
    let path = |relation: &str| psql(&format!("select pg_relation_filepath('{relation}')"));
    let accounts = path("pgbench_accounts");
    for (file, class) in [
        (accounts.clone(), "db-random"),
        (accounts + "_fsm", "db-free-space"),
        (path("pgbench_accounts_pkey"), "db-index"),
        (path("pgbench_tellers"), "db-sequential"),
        (path("pg_class"), "db-system"),
        (path("pg_class_oid_index"), "db-system"),
        ("global/pg_control".to_owned(), "db-system"),
        (
            format!(
                "pg_wal/{}",
                psql("select pg_walfile_name(pg_current_wal_lsn())")
            ),
            "db-log",
        ),
    ] {
        assert_eq!(class_of(&file), class, "{file}");
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario")]
fn postgres_loses_no_transaction_and_no_page() {
    if !able(&["mkfs.ext4", "losetup", "setpriv"], true) {
        return;
    }
    let Some(bin) = programs() else {
        println!(
            "skipped: PostgreSQL with pgbench and pg_amcheck is not installed (postgresql, postgresql-contrib)"
        );
        return;
    };
    seed();
    let var = |n: &str, d: u64| {
        std::env::var(n)
            .ok()
            .and_then(|v| v.parse().ok())
            .unwrap_or(d)
    };
    let (seconds, kills) = (var("ISOTHERM_PG_SECONDS", 4), var("ISOTHERM_KILLS", 1));
    // The user postgres must be able to reach the socket.
    let open = tempfile::tempdir().expect("a temporary directory");
    proof::run("chown", &["postgres", open.path().to_str().expect("text")]);
    let mut place = Place::new(&Shape {
        fast: "64M",
        slow: "512M",
        ..Shape::default()
    });
    // ext4 is mounted at a place that the user postgres can reach.
    let fs = open.path().join("fs");
    let mut disk = Some(Loop::over(&place.serve_file()));
    let device = disk.as_ref().expect("attached").0.clone();
    proof::run("mkfs.ext4", &["-q", "-F", &device]);
    let mut mounted = Some(Mounted::new(&device, fs.clone()));
    proof::run("chown", &["postgres", fs.to_str().expect("text")]);
    let pg = Postgres {
        bin,
        fs: fs.clone(),
        log: open.path().join("log"),
    };
    pg.ok(
        "initdb",
        &[
            "-D",
            &pg.data(),
            "--data-checksums",
            "-A",
            "trust",
            "-U",
            "postgres",
        ],
    );
    pg.start();
    pg.ok("pgbench", &["-i", "-q", "-s", "2"]);
    classes_are_those_of_the_catalogue(&place, &pg);
    for kill in 0..kills {
        let pid = std::fs::read_to_string(fs.join("pg/postmaster.pid")).expect("running");
        let pid = pid.lines().next().expect("a process id").to_owned();
        std::fs::write(pg.log.with_extension("pid"), &pid).expect("written");
        let log = open.path().join("committed");
        let mut bench = pg
            .command(
                "pgbench",
                &["-n", "-c", "4", "-j", "1", "-T", "600", "-P", "1"],
            )
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&log).expect("made"))
            .spawn()
            .expect("pgbench starts");
        std::thread::sleep(Duration::from_secs(seconds));
        // Transactions that were committed before this moment must be durable.
        let before = pg
            .ok(
                "psql",
                &[
                    "-X",
                    "-A",
                    "-t",
                    "-c",
                    "select count(*) from pgbench_history",
                ],
            )
            .parse::<u64>()
            .expect("a number");
        assert!(place.is_serving());
        place.kill();
        proof::wait(&mut bench, "pgbench");
        kill_postmaster(&pg.log);
        mounted = None;
        disk = None;
        assert!(mounted.is_none() && disk.is_none());
        let again = Loop::over(&place.serve_file());
        mounted = Some(Mounted::new(&again.0, fs.clone()));
        disk = Some(again);
        pg.start();
        pg.check();
        let after = pg
            .ok(
                "psql",
                &[
                    "-X",
                    "-A",
                    "-t",
                    "-c",
                    "select count(*) from pgbench_history",
                ],
            )
            .parse::<u64>()
            .expect("a number");
        println!("kill {kill}: {before} transactions seen before, {after} after");
        assert!(
            before > 0 && after >= before,
            "committed transactions are gone: {before} before, {after} after"
        );
    }
    pg.ok("pgbench", &["-n", "-c", "2", "-T", "1"]);
    pg.check();
    pg.ok("pg_ctl", &["-D", &pg.data(), "-m", "fast", "-w", "stop"]);
    pg.ok("pg_checksums", &["--check", "-D", &pg.data()]);
    let device = disk.as_ref().expect("attached").0.clone();
    mounted.take().expect("mounted").unmount();
    let fsck = output(Command::new("fsck.ext4").args(["-f", "-n", &device]));
    assert!(
        fsck.status.success(),
        "fsck: {}",
        String::from_utf8_lossy(&fsck.stdout)
    );
    drop(disk);
    place.stop();
    place.check();
}
