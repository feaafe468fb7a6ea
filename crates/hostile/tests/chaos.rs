//! Runs scenarios of the chaos policy in the hostile world, with many seeds. `ISOTHERM_SEEDS=N` runs more seeds, `ISOTHERM_SEED=X` repeats
//! one.
//!
//! Without these variables, each scenario has a number of seeds and at most `SECONDS` of time. On a slow machine it runs fewer of its
//! seeds, but at least a quarter, and prints the number.

use std::time::{Duration, Instant};

use isotherm_core::policy::Uses;
use isotherm_hostile::run::{Counts, Scenario, Shape, run};
use isotherm_hostile::world::Faults;

/// Seconds after which a scenario begins no further seed, unless a number of seeds was requested.
const SECONDS: u64 = 12;

/// Asserts that something occurred in a suite. A single seed need not contain everything.
macro_rules! met {
    ($what:expr) => {
        assert!(
            $what || var("ISOTHERM_SEED").is_some(),
            "{} is not met",
            stringify!($what)
        );
    };
}

fn var(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|v| v.parse().ok())
}

fn seeds(default: u64) -> Vec<u64> {
    match (var("ISOTHERM_SEED"), var("ISOTHERM_SEEDS")) {
        (Some(s), _) => vec![s],
        (None, n) => {
            // Soak runs use other seeds; CI always uses the same ones.
            let base = var("ISOTHERM_SEED_BASE").unwrap_or(0);
            (base..base + n.unwrap_or(default)).collect()
        }
    }
}

/// Runs a scenario for every seed, in two threads; the first failure is printed with its seed.
fn all(name: &str, default: u64, make: impl Fn(u64) -> Scenario + Sync) -> Counts {
    let list = seeds(default);
    let asked = var("ISOTHERM_SEED").or(var("ISOTHERM_SEEDS")).is_some();
    let end = (!asked).then(|| Instant::now() + Duration::from_secs(SECONDS));
    let make = &make;
    let results: Vec<Result<Counts, String>> = std::thread::scope(|s| {
        let halves = list.chunks(list.len().div_ceil(2)).map(|part| {
            s.spawn(move || {
                part.iter()
                    .enumerate()
                    .take_while(|(i, _)| {
                        i * 4 < part.len() || end.is_none_or(|t| Instant::now() < t)
                    })
                    .map(|(_, &seed)| {
                        run(make(seed)).map_err(|e| format!("{name}: ISOTHERM_SEED={seed}: {e}"))
                    })
                    .collect::<Vec<_>>()
            })
        });
        halves
            .collect::<Vec<_>>()
            .into_iter()
            .flat_map(|h| h.join().expect("a scenario panicked; see its seed above"))
            .collect()
    });
    let (mut sum, ran) = (Counts::default(), results.len());
    for r in results {
        sum.add(&r.unwrap_or_else(|e| panic!("{e}")));
    }
    println!("{name}: {ran} of {} seeds, {sum:?}", list.len());
    sum
}

#[test]
fn crashes_lose_nothing_that_was_flushed() {
    let counts = all("crashes", 3000, Scenario::new);
    met!(
        counts.moves > 0
            && counts.fetches > 0
            && counts.evictions > 0
            && counts.writebacks > 0
            && counts.stale > 0
            && counts.checkpoints > 0
            && counts.edges > 0
            && counts.from_ram > 0
            && counts.crashes > 0
            && counts.batches > 0
            && counts.worn > 0
            && counts.asleep > 0
            && counts.filled > 0
            && counts.kept > 0
            && counts.restored > 0
            && counts.ahead > 0
            && counts.gathered > 0
            && counts.joined > 0
            && counts.waited > 0
            && counts.killed > 0
            && counts.cut > 0
    );
}

#[test]
fn copies_lose_nothing_that_was_flushed() {
    let faults = Faults {
        data_errors: 25,
        short: 12,
        meta_errors: 0,
    };
    let counts = all("copies", 2000, |seed| Scenario {
        copies: true,
        faults: if seed % 4 == 3 {
            faults
        } else {
            Faults::default()
        },
        shape: [
            Shape::Small,
            Shape::ThreeTiers,
            Shape::TwoFast,
            Shape::Small,
        ][seed as usize % 4],
        lose_fast: seed % 5 == 0,
        ..Scenario::new(seed)
    });
    met!(counts.fetches > 0 && counts.evictions > 0 && counts.writebacks > 0 && counts.moves == 0);
}

#[test]
fn failing_devices_never_serve_wrong_bytes() {
    let faults = Faults {
        data_errors: 25,
        short: 12,
        meta_errors: 0,
    };
    let counts = all("data errors", 1000, |seed| Scenario {
        faults,
        ..Scenario::new(seed)
    });
    met!(counts.repeated > 0);
}

#[test]
fn a_failed_flush_is_never_forgotten() {
    let faults = Faults {
        data_errors: 0,
        short: 15,
        meta_errors: 60,
    };
    all("flush errors", 1000, |seed| Scenario {
        faults,
        ..Scenario::new(seed)
    });
}

#[test]
fn losing_the_fast_member_shows_no_foreign_bytes() {
    all("lost fast", 1000, |seed| Scenario {
        lose_fast: true,
        ..Scenario::new(seed)
    });
}

#[test]
fn other_shapes_are_as_safe() {
    for shape in [Shape::TwoFast, Shape::ThreeTiers] {
        all("shapes", 600, |seed| Scenario {
            shape,
            lose_fast: seed % 2 == 0,
            ..Scenario::new(seed)
        });
    }
    let counts = all("large", 120, |seed| Scenario {
        shape: Shape::Large,
        lose_fast: seed % 4 == 0,
        ..Scenario::new(seed)
    });
    met!(counts.moves > 0 && counts.checkpoints > 0);
}

const CACHES: [Shape; 3] = [Shape::Cache, Shape::CacheOfFour, Shape::CacheOfThree];

/// Cache volumes: homes have fixed places, and what was never written reads as the disk holds it.
#[test]
fn a_cache_volume_is_as_safe() {
    let faults = Faults {
        data_errors: 25,
        short: 12,
        meta_errors: 0,
    };
    let counts = all("cache volume", 3000, |seed| Scenario {
        cache: (seed % 3 != 0).then_some(seed % 3 == 1),
        shape: CACHES[seed as usize % 3],
        faults: if seed % 4 == 3 {
            faults
        } else {
            Faults::default()
        },
        lose_fast: seed % 5 == 0,
        lose_cache: seed % 5 == 1,
        ..Scenario::new(seed)
    });
    println!("{counts:?}");
    assert!(counts.fetches > 0 && counts.evictions > 0 && counts.writebacks > 0);
    assert!(counts.moves == 0 && counts.filled == 0 && counts.checkpoints > 0);
    // Most claims outlive a crash; those of the last round may not, and lives are short here.
    let [had, found] = counts.claimed;
    assert!(had > 500 && found * 10 >= had * 7, "{found} of {had}");
    assert!(counts.losses > 0 && counts.accepted > 0);
}

/// The members of a cache volume change between its lives: a lost cache gets a successor, a member is copied, disk and flash grow.
#[test]
fn members_of_a_cache_volume_change() {
    let counts = all("cache volume changes", 1500, |seed| Scenario {
        cache: Some(seed % 2 == 0),
        copies: true,
        shape: CACHES[seed as usize % 3],
        lose_cache: seed % 3 == 0,
        replace: true,
        grow: seed % 3 != 0,
        lives: 6,
        end_well: (seed % 4) as u32,
        ..Scenario::new(seed)
    });
    println!("{counts:?}");
    assert!(counts.replaced > 0 && counts.grown > 0 && counts.losses > 0);
    assert!(counts.moved > 0 && counts.steps_first > 0);
}

#[test]
fn presets_are_as_safe_as_chaos() {
    for policy in isotherm_core::policy::PRESETS.iter().map(|p| p.name) {
        all(policy, 60, |seed| Scenario {
            policy: Some(policy),
            ..Scenario::new(seed)
        });
    }
}

#[test]
fn a_change_of_policy_loses_nothing() {
    let counts = all("switches", 1000, |seed| Scenario {
        switch: true,
        shape: if seed % 4 == 0 {
            Shape::ThreeTiers
        } else {
            Shape::Roomy
        },
        lose_fast: seed % 3 == 0,
        ..Scenario::new(seed)
    });
    met!(counts.switches > 0 && counts.writebacks > 0 && counts.moves > 0);
}

#[test]
fn caching_presets_are_as_safe_as_chaos() {
    let mut busy = 0;
    for preset in isotherm_core::policy::PRESETS {
        if preset.is_caching() {
            let counts = all(preset.name, 200, |seed| Scenario {
                policy: Some(preset.name),
                shape: if preset.uses() == Uses::Copies {
                    CACHES[seed as usize / 3 % 3]
                } else {
                    Shape::Roomy
                },
                lose_fast: seed % 3 == 0,
                lose_cache: seed % 3 == 1,
                ..Scenario::new(seed)
            });
            // Such short lives rarely contain a plan with a period of seconds, or reach a threshold. But the plain caches must do
            // something.
            let plain = ["arc", "fifo", "lfu", "lru", "s3-fifo", "sieve"].contains(&preset.name);
            assert!(!plain || (counts.fetches > 0 && counts.evictions > 0));
            busy += u32::from(counts.fetches > 0 && counts.evictions > 0);
        }
    }
    assert!(busy > 10, "{busy} caching presets fetched and evicted");
}

/// `create --capacity all`: there are homes and copies on the fast tier, and the volume is larger than the slow tier.
#[test]
fn a_volume_as_large_as_both_tiers_is_as_safe() {
    let counts = all("benefit,homes=1", 600, |seed| Scenario {
        policy: Some("benefit"),
        params: &[("homes", 1.0)],
        shape: [Shape::Small, Shape::TwoFast, Shape::Roomy][seed as usize % 3],
        lose_fast: seed % 5 == 0,
        ..Scenario::new(seed)
    });
    println!("{counts:?}");
    met!(counts.moves > 0 && counts.fetches > 0 && counts.evictions > 0);
}

#[test]
fn a_clean_cache_may_be_lost() {
    let counts = all("clean cache lost", 1500, |seed| Scenario {
        cache: Some(true),
        lose_cache: true,
        lives: 5,
        shape: CACHES[seed as usize % 3],
        ..Scenario::new(seed)
    });
    // (Consent is needed only if a disk was to sleep, because its mark then names everything.)
    met!(counts.losses > counts.accepted && counts.fetches > 0);
}

#[test]
fn a_dirty_cache_is_lost_only_with_consent() {
    let counts = all("dirty cache lost", 1500, |seed| Scenario {
        cache: Some(false),
        lose_cache: true,
        lives: 5,
        shape: CACHES[seed as usize % 3],
        ..Scenario::new(seed)
    });
    met!(
        counts.losses > counts.accepted
            && counts.accepted > 0
            && counts.listed > 0
            && counts.refused > counts.accepted
    );
}

#[test]
fn a_cache_ends_while_it_is_used() {
    let counts = all("the end of a cache", 1500, |seed| Scenario {
        cache: Some(seed.is_multiple_of(4)),
        end_cache: true,
        lives: 3,
        shape: Shape::Cache,
        ..Scenario::new(seed)
    });
    met!(counts.losses > 0 && counts.fetches > 0);
}

#[test]
fn a_cache_ends_and_takes_data_with_it() {
    let counts = all("the end of a dirty cache", 1500, |seed| Scenario {
        cache: Some(false),
        end_cache: true,
        lose_dirty: true,
        lives: 4,
        shape: Shape::Cache,
        ..Scenario::new(seed)
    });
    met!(counts.listed > 0 && counts.losses > counts.listed);
}

#[test]
fn a_mirror_that_may_lag_is_not_trusted() {
    // Policies that move homes, or that change while the volume runs.
    let counts = all("lazy mirror", 1500, |seed| Scenario {
        copies: seed % 2 == 0,
        switch: seed % 2 == 1,
        lose_cache: true,
        lives: 5,
        shape: Shape::Roomy,
        ..Scenario::new(seed)
    });
    met!(counts.losses > 0 && counts.refused > counts.losses);
}

#[test]
fn failing_devices_without_a_cache() {
    let faults = Faults {
        data_errors: 25,
        short: 12,
        meta_errors: 0,
    };
    let counts = all("faults and no cache", 600, |seed| Scenario {
        cache: Some(seed.is_multiple_of(2)),
        lose_cache: true,
        lives: 4,
        shape: CACHES[seed as usize % 3],
        faults,
        ..Scenario::new(seed)
    });
    met!(counts.losses > 0);
}

#[test]
fn a_lost_cache_is_replaced() {
    let counts = all("lost cache replaced", 1500, |seed| Scenario {
        cache: Some(seed % 2 == 0),
        lose_cache: true,
        replace: true,
        lives: 6,
        shape: CACHES[seed as usize % 3],
        ..Scenario::new(seed)
    });
    println!("{counts:?}");
    met!(counts.losses > 0 && counts.accepted > 0 && counts.replaced > 0);
}

#[test]
fn a_member_is_replaced_with_its_data() {
    let counts = all("member replaced", 1500, |seed| Scenario {
        copies: seed % 2 == 0,
        switch: seed % 3 == 0,
        replace: true,
        lives: 6,
        end_well: (seed % 4) as u32,
        shape: [
            Shape::TwoSlow,
            Shape::Roomy,
            Shape::TwoFast,
            Shape::ThreeTiers,
            Shape::Large,
        ][seed as usize % 5],
        ..Scenario::new(seed)
    });
    println!("{counts:?}");
    met!(counts.replaced > 0 && counts.fetches > 0 && counts.moves > 0);
}

#[test]
fn a_volume_that_grows_loses_nothing() {
    let counts = all("growth", 1500, |seed| Scenario {
        copies: seed % 2 == 0,
        cache: (seed % 8 == 5).then_some(false),
        replace: seed % 3 == 0,
        grow: true,
        lives: 6,
        end_well: (seed % 4) as u32,
        shape: [
            Shape::Roomy,
            Shape::Small,
            Shape::TwoSlow,
            Shape::ThreeTiers,
            Shape::Large,
        ][seed as usize % 5],
        ..Scenario::new(seed)
    });
    met!(counts.grown > counts.moved && counts.moved > 0 && counts.replaced > 0);
    met!(counts.steps_first > 0);
}

#[test]
fn an_older_copy_of_a_member_is_refused() {
    let counts = all("older copies", 1000, |seed| Scenario {
        rollback: true,
        ring: Some(64),
        shape: [
            Shape::Small,
            Shape::ThreeTiers,
            Shape::TwoFast,
            Shape::Roomy,
            Shape::Cache,
        ][seed as usize % 5],
        copies: seed % 8 == 3,
        ..Scenario::new(seed)
    });
    met!(counts.rolled_back > 0 && counts.old_accepted > 0);
}

#[test]
fn power_lost_at_every_step() {
    // Each of these seeds needs several hundred runs.
    let list = seeds(12);
    for &seed in list.iter().take((list.len() / 200).max(12)) {
        let quiet = Scenario {
            copies: seed % 2 == 1,
            shape: if seed % 4 == 3 {
                Shape::Cache
            } else {
                Shape::Small
            },
            lives: 2,
            requests: 110,
            ..Scenario::new(seed)
        };
        // The first life is the same up to the step at which it ends.
        let steps = run(Scenario {
            crash_at: Some(u64::MAX),
            ..quiet
        })
        .unwrap_or_else(|e| panic!("ISOTHERM_SEED={seed}: {e}"))
        .steps;
        assert!(steps > 50, "seed {seed} did only {steps} steps");
        for k in 0..steps {
            run(Scenario {
                crash_at: Some(k),
                ..quiet
            })
            .unwrap_or_else(|e| panic!("ISOTHERM_SEED={seed} at step {k}: {e}"));
        }
    }
}

#[test]
fn same_seed_same_run() {
    for seed in 0..20 {
        assert_eq!(run(Scenario::new(seed)), run(Scenario::new(seed)));
    }
}
