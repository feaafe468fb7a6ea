//! Hot random off-loading (Lin and others): sections II to IV.
//!
//! | file | content |
//! |---|---|
//! | `bench.rs` | the three weeks as workloads; HDD, HOT and HRO under them |
//! | `files.rs` | whole files on the SSD, as the paper places them |
//! | `recorded.rs` | the same systems under recordings of real mounts |
//! | others | one experiment each |

pub(super) mod bandwidth;
mod bench;
pub(super) mod entry;
mod files;
pub(super) mod latency;
pub(super) mod motive;
pub mod on_recordings;
mod recorded;
pub(super) mod seeks;
pub(super) mod uses;

/// Default scale: 0.25, 1.2 and 0.7 GB of files, and one of two hundred operations.
pub(super) const SCALE: f64 = 0.005;

#[cfg(test)]
mod tests {
    use super::super::{Ctx, EXPERIMENTS, Outcome, Verdict};

    #[test]
    fn every_experiment_runs_small_and_its_figures_fit_each_other() {
        let quiet = |_: &str| ();
        let ctx = Ctx {
            scale: Some(0.0005),
            ..Ctx::new(&quiet)
        };
        let ours = EXPERIMENTS.iter().filter(|e| e.id.starts_with("hro-"));
        let outs: Vec<Outcome> = ours.map(|e| e.run(&ctx).unwrap()).collect();
        assert_eq!(outs.len(), 6);
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
                assert!(
                    !c.exact || c.verdict == Verdict::Holds,
                    "{}: {}",
                    c.key,
                    c.why
                );
            }
        }
        // The flash takes accesses from the arm: under both placements the disk gets fewer requests.
        let seeks = outs.iter().find(|o| o.id == "hro-7").unwrap();
        let requests = |row: usize| {
            let cells = &seeks.tables[0].rows[row].cells;
            cells
                .iter()
                .find(|c| c.name == "requests of the disk")
                .unwrap()
                .ours
                .unwrap()
        };
        assert!(requests(1) < requests(0) && requests(2) < requests(0));
    }
}
