//! The class of each file of a PostgreSQL cluster: the seven classes of DSS Table 6.
//!
//! | class | files |
//! |---|---|
//! | 19 | `pg_wal` |
//! | 20 | tables and indexes of `pg_catalog` and `information_schema`, all of `global`, commit status (`pg_xact` …) |
//! | 21 | forks `_fsm` and `_vm` |
//! | 22 | temporary tables, `pgsql_tmp` |
//! | 23, 24 | other tables: read at random or sequentially, whichever the statistics show for most rows so far |
//! | 25 | indexes |
//!
//! The catalogue is queried through `psql`, which supports every form of DSN, passwords, sockets and services, as the administrator's own
//! programs do. (The crate `postgres` would add an asynchronous runtime for one query.)

use crate::classes;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One row per relation with storage: path, kind, persistence, whether it belongs to the system, and the rows read sequentially and by
/// index.
const QUERY: &str = "SELECT pg_relation_filepath(c.oid), c.relkind, c.relpersistence, \
    (n.nspname IN ('pg_catalog','information_schema') OR c.oid < 16384), \
    COALESCE(s.seq_tup_read,0), COALESCE(s.idx_tup_fetch,0) \
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
    LEFT JOIN pg_class o ON o.reltoastrelid = c.oid \
    LEFT JOIN pg_stat_all_tables s ON s.relid = COALESCE(o.oid, c.oid) \
    WHERE pg_relation_filepath(c.oid) IS NOT NULL";

/// The result of the query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Catalogue {
    /// The data directory.
    pub data: PathBuf,
    /// Relations: path below the data directory, and class.
    pub relations: Vec<(PathBuf, u8)>,
}

fn ask(dsn: &str, sql: &str) -> io::Result<String> {
    let out = Command::new("psql")
        .args([
            "--no-psqlrc",
            "--no-password",
            "--tuples-only",
            "--no-align",
        ])
        .args([
            "--field-separator=\t",
            "--set=ON_ERROR_STOP=1",
            "--command",
            sql,
        ])
        .arg(format!("--dbname={dsn}"))
        .output()
        .map_err(|e| io::Error::other(format!("psql: {e}: install PostgreSQL's client")))?;
    if !out.status.success() {
        let why = String::from_utf8_lossy(&out.stderr);
        return Err(io::Error::other(format!("psql: {}", why.trim())));
    }
    String::from_utf8(out.stdout).map_err(|_| io::Error::other("psql: answers no text"))
}

/// Queries the database that `dsn` names.
///
/// # Errors
/// There is no psql, no connection, or no permission to see the location of the data.
pub fn catalogue(dsn: &str) -> io::Result<Catalogue> {
    let data = ask(dsn, "SHOW data_directory")?;
    let rows = ask(dsn, QUERY)?;
    let relations = rows.lines().filter(|l| !l.is_empty()).map(|l| {
        relation(l).ok_or_else(|| io::Error::other(format!("psql: not understood: `{l}`")))
    });
    Ok(Catalogue {
        data: PathBuf::from(data.trim()),
        relations: relations.collect::<io::Result<_>>()?,
    })
}

/// Parses a row of [`QUERY`].
fn relation(line: &str) -> Option<(PathBuf, u8)> {
    let f: Vec<&str> = line.split('\t').collect();
    let [path, kind, persistence, system, scanned, fetched] = f[..] else {
        return None;
    };
    let (scanned, fetched): (i64, i64) = (scanned.parse().ok()?, fetched.parse().ok()?);
    let class = match (kind, persistence, system) {
        (_, "t", _) => classes::DB_TEMPORARY,
        (_, _, "t") => classes::DB_SYSTEM,
        ("i", ..) => classes::DB_INDEX,
        _ if scanned > fetched => classes::DB_SEQUENTIAL,
        _ => classes::DB_RANDOM,
    };
    Some((PathBuf::from(path), class))
}

/// The existing files of the cluster with their classes: segments and forks of relations, the log, and other classified files of the data
/// directory. Files that have been removed since the query are omitted.
pub fn files(c: &Catalogue) -> Vec<(PathBuf, u8)> {
    let mut all = Vec::new();
    for (path, class) in &c.relations {
        let whole = c.data.join(path);
        for (suffix, class) in [
            ("", *class),
            ("_fsm", classes::DB_FREE_SPACE),
            ("_vm", classes::DB_FREE_SPACE),
            ("_init", *class),
        ] {
            let mut name = whole.clone().into_os_string();
            name.push(suffix);
            // Segments of 1 GiB are called name, name.1, name.2 …
            for n in 0u32.. {
                let mut segment = name.clone();
                if n > 0 {
                    segment.push(format!(".{n}"));
                }
                if !Path::new(&segment).is_file() {
                    break;
                }
                all.push((PathBuf::from(segment), class));
            }
        }
    }
    for (dir, class) in [
        ("pg_wal", classes::DB_LOG),
        ("global", classes::DB_SYSTEM),
        ("pg_xact", classes::DB_SYSTEM),
        ("pg_multixact", classes::DB_SYSTEM),
        ("pg_subtrans", classes::DB_SYSTEM),
        ("base/pgsql_tmp", classes::DB_TEMPORARY),
    ] {
        let below = walkdir::WalkDir::new(c.data.join(dir)).follow_root_links(true);
        let found = below.into_iter().flatten();
        all.extend(
            found
                .filter(|e| e.file_type().is_file())
                .map(|e| (e.into_path(), class)),
        );
    }
    // A relation in `global` is in the list with its own class, which is the same.
    all.sort();
    all.dedup_by(|a, b| a.0 == b.0);
    all
}

/// The ranges of these files, on the device of a file system at `offset`.
pub fn ranges(files: &[(PathBuf, u8)], offset: u64) -> (crate::files::Ranges, u64) {
    let (mut all, mut failed) = (Vec::new(), 0);
    for (path, class) in files {
        match fs::File::open(path).and_then(|f| crate::files::extents(&f)) {
            Ok(pieces) => all.extend(pieces.into_iter().map(|(at, n)| (offset + at, n, *class))),
            Err(_) => failed += 1,
        }
    }
    all.sort_unstable();
    (all, failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_become_classes() {
        let class = |row: &str| relation(row).map(|r| r.1);
        for (row, want) in [
            ("base/5/1259\tr\tp\tt\t10\t2", 20),
            ("base/5/2662\ti\tp\tt\t0\t0", 20),
            ("base/5/16400\tr\tp\tf\t1000\t2", 24),
            ("base/5/16401\tr\tp\tf\t10\t20", 23),
            ("base/5/16402\ti\tp\tf\t0\t0", 25),
            ("base/5/t3_16403\tr\tt\tf\t0\t0", 22),
            ("base/5/16404\tt\tp\tf\t9\t0", 24),
        ] {
            assert_eq!(class(row), Some(want), "{row}");
        }
        assert_eq!(class("nonsense"), None);
        assert_eq!(class("a\tr\tp\tf\tx\t0"), None);
    }
}
