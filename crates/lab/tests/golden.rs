//! Hit-only counts of the plain caches on real traces, kept as a table. A commit that changes a number explains it.
//!
//! `ISOTHERM_GOLDEN=write cargo test -p isotherm-lab --test golden` writes the table anew; rows of traces that are missing (set
//! `ISOTHERM_TRACES`) stay unchanged.

mod common;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/hit-only.txt");
const HEAD: &str = "# trace policy fast% : accesses hits fetches evictions writebacks\n";

const TRACES: [&str; 9] = [
    // Traces in the tree.
    "linux-mysql.load.zst",
    "windows-shared-server.load.zst",
    "arc-OLTP-head100k.lis.zst",
    // Traces below $ISOTHERM_TRACES.
    "arc-P3.lis.zst",
    "cloudphysics-io.vscsi.zst",
    "hplajw-1week.csv.zst",
    "lirs-sprite.txt.zst",
    "linux-webserver-2.load.zst",
    "msr-web_0-head65k.csv.zst",
];
const SHARES: [u64; 2] = [1, 10];

fn row(path: &Path, policy: &str, percent: u64) -> String {
    let r = common::play_share(path, policy, percent);
    let c = r.counters;
    assert_eq!(c.refused, 0, "{policy}: nothing is asked for in vain");
    assert_eq!((c.promotions, c.demotions), (0, 0), "{policy}: homes stay");
    format!(
        "{} {} {} {} {}",
        c.accesses, c.hits, c.fetches, c.evictions, c.writebacks
    )
}

#[test]
fn counts_are_those_of_the_table() {
    let text = std::fs::read_to_string(TABLE).unwrap_or_default();
    let mut table: BTreeMap<String, String> = text
        .lines()
        .filter(|l| !l.starts_with('#'))
        .filter_map(|l| l.split_once(" : "))
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .collect();
    let write = std::env::var("ISOTHERM_GOLDEN").is_ok_and(|v| v == "write");
    let (mut compared, mut wrong) = (0, String::new());
    for name in TRACES {
        let Some(path) = common::trace(name) else {
            println!("skipped: {name} is not in fixtures/ nor in $ISOTHERM_TRACES");
            continue;
        };
        for policy in common::PLAIN {
            for percent in SHARES {
                let key = format!("{name} {policy} {percent}");
                let now = row(&path, policy, percent);
                if write {
                    table.insert(key, now);
                    continue;
                }
                compared += 1;
                if table.get(&key) != Some(&now) {
                    let _ = writeln!(wrong, "{key} : {now}, not {:?}", table.get(&key));
                }
            }
        }
    }
    if write {
        let rows = table.iter().fold(String::from(HEAD), |mut all, (k, v)| {
            let _ = writeln!(all, "{k} : {v}");
            all
        });
        std::fs::write(TABLE, rows).expect("the table is written");
        return;
    }
    assert!(compared >= 3 * common::PLAIN.len() * SHARES.len());
    assert!(wrong.is_empty(), "\n{wrong}");
}
