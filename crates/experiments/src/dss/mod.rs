//! Differentiated storage services (Mesnier and others): section 5.
//!
//! | file | content |
//! |---|---|
//! | `bench.rs` | the servers and the utilities as a workload; the three configurations |
//! | `recorded.rs` | the same on recordings of live volumes |
//! | `show.rs` | rows and sums that several experiments share |
//! | others | one experiment each |

mod bench;
pub(super) mod contents;
pub(super) mod database;
pub(super) mod email;
pub(super) mod indicators;
pub(super) mod latencies;
mod recorded;
mod show;
pub(super) mod tco;
pub(super) mod utilities;

/// Default scale of the file server: 4 GB in place of 184.
pub(super) const FILE_SCALE: f64 = 0.02;
/// Default scale of the e-mail server: 4 GB in place of 204.
pub(super) const EMAIL_SCALE: f64 = 0.02;
/// Default scale of TPC-H: 0.3 GB in place of 29.
pub(super) const TPCH_SCALE: f64 = 0.01;

#[cfg(test)]
mod tests {
    use super::super::{Ctx, EXPERIMENTS, Outcome, Verdict};

    fn run(ctx: &Ctx<'_>, id: &str) -> Outcome {
        let e = EXPERIMENTS.iter().find(|e| e.id == id).unwrap();
        e.run(ctx).unwrap()
    }

    fn cell(out: &Outcome, table: usize, row: &str, name: &str) -> f64 {
        let rows = &out.tables[table].rows;
        let row = rows.iter().find(|r| r.label == row).unwrap();
        row.cells
            .iter()
            .find(|c| c.name == name)
            .unwrap()
            .ours
            .unwrap()
    }

    /// At a thousandth of the sizes, directions are not tested. The test checks that the figures are consistent.
    #[test]
    fn every_experiment_runs_small_and_its_figures_fit_each_other() {
        let quiet = |_: &str| ();
        let ctx = Ctx {
            scale: Some(0.001),
            ..Ctx::new(&quiet)
        };
        let ids = EXPERIMENTS.iter().map(|e| e.id);
        let outs: Vec<Outcome> = ids
            .filter(|id| id.starts_with("dss-"))
            .map(|id| run(&ctx, id))
            .collect();
        for out in &outs {
            assert!(
                !out.tables.is_empty() && !out.substitutes.is_empty(),
                "{}",
                out.id
            );
            for c in &out.claims {
                assert!(
                    !c.why.contains("did not come to it"),
                    "{}: {}",
                    out.id,
                    c.key
                );
            }
        }
        let find = |id: &str| outs.iter().find(|o| o.id == id).unwrap();
        let contents = find("dss-2");
        for row in &contents.tables[0].rows {
            let sum: f64 = row.cells.iter().filter_map(|c| c.ours).sum();
            assert!((sum - 100.0).abs() < 1e-6, "{}: {sum}", row.label);
        }
        let same = contents.claims.iter().find(|c| c.key == "same").unwrap();
        // True by construction, so it is not counted.
        assert_eq!(same.verdict, Verdict::Vacuous, "{}", same.why);
        let indicators = find("dss-3");
        let (read, written) = (
            cell(indicators, 0, "none", "read"),
            cell(indicators, 0, "none", "written"),
        );
        let same = cell(indicators, 0, "LRU-S", "read");
        assert!((read - same).abs() < f64::EPSILON, "{read} {same}");
        assert!(read > written && written > 0.0, "two reads to a write");
        // Without a cache there are no hits and no cleaning.
        let none = &indicators.tables[0].rows[0].cells;
        assert!(
            none.iter()
                .any(|c| c.name == "read hits" && c.ours.is_none())
        );
        assert!(cell(indicators, 0, "none", "syncer") <= 0.0);
        // fsck reads again what find has read.
        let utilities = find("dss-fs");
        assert!(cell(utilities, 2, "none", "read") > cell(utilities, 0, "none", "read"));
        assert!(
            cell(utilities, 1, "none", "written") > 0.0,
            "tar writes an archive"
        );
    }
}
