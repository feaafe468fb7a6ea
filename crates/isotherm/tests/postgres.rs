//! PostgreSQL on ext4 on the block file: pgbench, kill -9 of the server during the work, recovery, and a check of every page and every
//! balance. The same on a tiering file system whose mover moves every file at random (`postgres/files.rs`).
//! `ISOTHERM_PG_SECONDS=N` runs longer, `ISOTHERM_KILLS=N` kills more often.

#[path = "postgres/files.rs"]
mod files;
mod proof;
#[path = "postgres/server.rs"]
mod server;

use proof::{Loop, Mounted, Place, Shape, able, output, seed};
use server::{PORT, Postgres, kill_postmaster, programs};
use std::process::Command;
use std::time::Duration;

/// A number from the environment.
fn var(name: &str, default: u64) -> u64 {
    let set = std::env::var(name).ok();
    set.and_then(|v| v.parse().ok()).unwrap_or(default)
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
    pg.fill();
    classes_are_those_of_the_catalogue(&place, &pg);
    for kill in 0..kills {
        let mut bench = pg.load();
        std::thread::sleep(Duration::from_secs(seconds));
        // Transactions that were committed before this moment must be durable.
        let before = pg.committed();
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
        let after = pg.committed();
        println!("kill {kill}: {before} transactions seen before, {after} after");
        assert!(
            before > 0 && after >= before,
            "committed transactions are gone: {before} before, {after} after"
        );
    }
    pg.ok("pgbench", &["-n", "-c", "2", "-T", "1"]);
    pg.check();
    pg.stop();
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
