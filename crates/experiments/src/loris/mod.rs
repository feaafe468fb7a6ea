//! Loris (Appuswamy, van Moolenbroek, Tanenbaum): Table I and figures 2 to 14.
//!
//! | file | content |
//! |---|---|
//! | `load.rs` | the five workloads, split at the end of the preparation |
//! | `grid.rs` | policies at several sizes of the fast tier, and the judgement of directions |
//! | `table.rs` | Table I |
//! | `recorded.rs` | the same policies under recordings of real mounts |
//! | `hot.rs`, `cold.rs`, `caching.rs`, `mixed.rs` | figures 2–5, 6–9, 10–13, 14 |

pub(super) mod caching;
pub(super) mod cold;
mod grid;
pub(super) mod hot;
mod load;
pub(super) mod mixed;
pub mod on_recordings;
mod recorded;
pub(super) mod table;

/// Default scale of all workloads.
pub(super) const SCALE: f64 = 0.25;

#[cfg(test)]
mod tests {
    use crate::{Ctx, Experiment, Verdict};

    #[test]
    fn every_claim_is_judged_by_figures_of_the_run() {
        let quiet = |_: &str| {};
        let ctx = Ctx {
            scale: Some(0.01),
            ..Ctx::new(&quiet)
        };
        for (id, tables, rows) in [
            ("loris-t1", 1, 3),
            ("loris-2-5", 4, 1 + 9),
            ("loris-6-9", 6, 1 + 9),
            ("loris-10-13", 4, 1 + 21),
            ("loris-14", 1, 1 + 12),
        ] {
            let out = Experiment::find(id).unwrap().run(&ctx).unwrap();
            assert_eq!(out.tables.len(), tables, "{id}");
            assert_eq!(out.tables[0].rows.len(), rows, "{id}");
            for row in out.tables.iter().flat_map(|t| &t.rows) {
                let first = row.cells[0].ours.unwrap();
                assert!(first > 0.0, "{id} {}", row.label);
            }
            assert!(!out.claims.is_empty(), "{id}");
            for c in &out.claims {
                assert!(!c.why.contains("did not come to it"), "{id} {}", c.key);
                let cannot = c.verdict == Verdict::CannotBeJudged;
                assert_eq!(cannot, c.key == "append-reads-off", "{id} {}", c.key);
                assert!(!c.why.contains("NaN"), "{id} {}: {}", c.key, c.why);
            }
        }
    }
}
