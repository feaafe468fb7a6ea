//! A PostgreSQL server of a test's own: started, ended in any way, every page and every balance checked.

use crate::proof::output;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

pub(crate) const PORT: &str = "54329";

/// The programs of the newest installed PostgreSQL.
pub(crate) fn programs() -> Option<PathBuf> {
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

/// A database server, its data below `fs`, its log and its socket elsewhere.
pub(crate) struct Postgres {
    pub(crate) bin: PathBuf,
    pub(crate) fs: PathBuf,
    pub(crate) log: PathBuf,
}

impl Postgres {
    /// A program that runs as the user `postgres`, because the server refuses root.
    pub(crate) fn command(&self, program: &str, args: &[&str]) -> Command {
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
    pub(crate) fn ok(&self, program: &str, args: &[&str]) -> String {
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
    pub(crate) fn data(&self) -> String {
        self.fs.join("pg").display().to_string()
    }
    pub(crate) fn start(&self) {
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
    /// A database with page checksums, loaded for pgbench; the server runs.
    pub(crate) fn fill(&self) {
        self.ok(
            "initdb",
            &[
                "-D",
                &self.data(),
                "--data-checksums",
                "-A",
                "trust",
                "-U",
                "postgres",
            ],
        );
        self.start();
        self.ok("pgbench", &["-i", "-q", "-s", "2"]);
    }
    /// Number of transactions that are committed.
    pub(crate) fn committed(&self) -> u64 {
        let count = "select count(*) from pgbench_history";
        let said = self.ok("psql", &["-X", "-A", "-t", "-c", count]);
        said.parse().expect("a number")
    }
    /// Starts four clients that go on until the server dies.
    pub(crate) fn load(&self) -> Child {
        let pid = std::fs::read_to_string(self.fs.join("pg/postmaster.pid")).expect("running");
        let pid = pid.lines().next().expect("a process id");
        std::fs::write(self.log.with_extension("pid"), pid).expect("written");
        let log = self.log.with_extension("committed");
        self.command(
            "pgbench",
            &["-n", "-c", "4", "-j", "1", "-T", "600", "-P", "1"],
        )
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(log).expect("made"))
        .spawn()
        .expect("pgbench starts")
    }
    /// Ends the server in order, and checks the checksum of every page.
    pub(crate) fn stop(&self) {
        self.ok("pg_ctl", &["-D", &self.data(), "-m", "fast", "-w", "stop"]);
        self.ok("pg_checksums", &["--check", "-D", &self.data()]);
    }
    pub(crate) fn check(&self) {
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
pub(crate) fn kill_postmaster(log: &Path) {
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
