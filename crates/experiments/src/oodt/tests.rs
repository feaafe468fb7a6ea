//! Runs the experiments at a tiny scale: every claim gets a verdict, and the figures come from the run.

use crate::{Ctx, Experiment, Outcome, Verdict};

fn run(ctx: &Ctx<'_>, id: &str) -> Outcome {
    let found = Experiment::find(id).unwrap_or_else(|e| panic!("{e}"));
    found.run(ctx).unwrap_or_else(|e| panic!("{id}: {e}"))
}

/// The figures called `name`, in the order of the rows.
fn figures(out: &Outcome, table: usize, name: &str) -> Vec<f64> {
    let rows = out.tables[table].rows.iter();
    let cell = |r: &crate::Row| {
        let c = r.cells.iter().find(|c| c.name == name);
        c.and_then(|c| c.ours)
            .unwrap_or_else(|| panic!("{}: {}: {name}", out.id, r.label))
    };
    rows.map(cell).collect()
}

#[test]
fn every_figure_is_computed_and_every_claim_judged() {
    let quiet = |_: &str| ();
    let mut ctx = Ctx::new(&quiet);
    ctx.scale = Some(0.004);
    let ids = [
        "oodt-2", "oodt-4a", "oodt-5b", "oodt-8a", "oodt-5a", "oodt-7c", "oodt-6a", "oodt-7b",
        "oodt-8c", "oodt-5.1", "oodt-9c", "oodt-10b",
    ];
    for id in ids {
        let out = run(&ctx, id);
        assert!(!out.tables.is_empty() && !out.inputs.is_empty(), "{id}");
        for t in &out.tables {
            let first = t.rows[0].cells.len();
            for r in &t.rows {
                assert_eq!(r.cells.len(), first, "{id}: {}", r.label);
                let missing = r.cells.iter().find(|c| c.ours.is_none());
                assert!(missing.is_none(), "{id}: {}: {missing:?}", r.label);
            }
        }
        for c in &out.claims {
            assert!(!c.at.is_empty(), "{id}: {} is not in the data", c.key);
            assert!(!c.why.contains("did not come to it"), "{id}: {}", c.key);
            let bad = c.exact && c.verdict != Verdict::Holds;
            assert!(!bad, "{id}: {}: {}", c.key, c.why);
        }
    }
}

#[test]
fn more_flash_means_more_hits_and_flash_alone_is_fastest() {
    let quiet = |_: &str| ();
    let mut ctx = Ctx::new(&quiet);
    ctx.scale = Some(0.01);
    let out = run(&ctx, "oodt-6a");
    let hits = figures(&out, 0, "OODT's hits on flash");
    assert!(hits.windows(2).all(|w| w[1] >= w[0]), "{hits:?}");
    assert!(hits[3] > hits[0] && hits[0] > 0.0, "{hits:?}");
    let alone = figures(&out, 1, "time");
    assert!(alone[1] < alone[0], "{alone:?}");
    // Another seed gives another workload; the same seed gives the same figures.
    let again = run(
        &Ctx {
            scale: ctx.scale,
            ..Ctx::new(&quiet)
        },
        "oodt-6a",
    );
    assert_eq!(figures(&again, 0, "OODT"), figures(&out, 0, "OODT"));
    let mut other = Ctx::new(&quiet);
    (other.scale, other.seed) = (ctx.scale, 2);
    let other = run(&other, "oodt-6a");
    assert_ne!(figures(&other, 0, "OODT"), figures(&out, 0, "OODT"));
}

#[test]
fn the_queue_makes_larger_requests_and_larger_blocks_fewer_pieces() {
    let quiet = |_: &str| ();
    let mut ctx = Ctx::new(&quiet);
    ctx.scale = Some(0.004);
    let out = run(&ctx, "oodt-4b");
    let mean = figures(&out, 0, "mean");
    let pairs: Vec<&[f64]> = mean.chunks(2).collect();
    assert!(pairs.iter().all(|p| p[1] >= p[0]), "{mean:?}");
    let out = run(&ctx, "oodt-5c");
    let (small, large) = (figures(&out, 1, "4 KiB"), figures(&out, 1, "32 KiB"));
    assert!(
        small.iter().zip(&large).all(|(s, l)| s > l),
        "{small:?} {large:?}"
    );
}
