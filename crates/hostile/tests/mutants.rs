//! Mutation tests: the suite in `chaos.rs` must notice the removal of every safety rule.
//!
//! A mutant counts as caught when one of that suite's scenarios fails (or a release assertion of the engine fires). A rule whose removal is
//! not noticed is either not needed or not tested. Both are defects. `ISOTHERM_MUTANT=Name` tries only one.

use isotherm_core::engine::{IMPLIED, MUTANTS, Mutant};
use isotherm_hostile::damage::{damage, lost_tail, older_checkpoint};
use isotherm_hostile::directed::{SCENES, first_failure};
use isotherm_hostile::run::{Scenario, Shape, run};
use isotherm_hostile::world::Faults;

/// Largest number of seeds for one mutant. The unchanged engine passes all of them (`chaos.rs`).
const SEEDS: u64 = 3000;

#[expect(clippy::too_many_lines, reason = "a list")]
fn scenarios(seed: u64) -> [Scenario; 14] {
    let plain = Scenario::new(seed);
    [
        plain,
        Scenario {
            copies: true,
            ..plain
        },
        Scenario {
            cache: seed.is_multiple_of(2).then_some(false),
            shape: [Shape::Cache, Shape::CacheOfFour][seed as usize / 2 % 2],
            ..plain
        },
        // Copies on members to which no round writes metadata.
        Scenario {
            copies: true,
            shape: if seed.is_multiple_of(2) {
                Shape::TwoFast
            } else {
                Shape::ThreeTiers
            },
            ..plain
        },
        Scenario {
            cache: Some(seed.is_multiple_of(2)),
            lose_cache: true,
            shape: [Shape::Cache, Shape::CacheOfFour][seed as usize / 2 % 2],
            ..plain
        },
        Scenario {
            cache: Some(false),
            end_cache: true,
            lose_dirty: true,
            shape: Shape::Cache,
            ..plain
        },
        Scenario {
            copies: true,
            lose_cache: true,
            shape: Shape::Roomy,
            ..plain
        },
        Scenario {
            cache: Some(seed.is_multiple_of(2)),
            lose_cache: true,
            replace: true,
            lives: 6,
            shape: [Shape::Cache, Shape::CacheOfFour][seed as usize / 2 % 2],
            ..plain
        },
        Scenario {
            copies: true,
            grow: true,
            end_well: (seed % 4) as u32,
            lives: 5,
            shape: Shape::Roomy,
            ..plain
        },
        Scenario {
            copies: seed.is_multiple_of(2),
            replace: true,
            lives: 6,
            ..plain
        },
        Scenario {
            rollback: true,
            ring: Some(64),
            ..plain
        },
        Scenario {
            lose_fast: true,
            ..plain
        },
        Scenario {
            faults: Faults {
                data_errors: 25,
                short: 12,
                meta_errors: 0,
            },
            ..plain
        },
        Scenario {
            faults: Faults {
                data_errors: 0,
                short: 15,
                meta_errors: 60,
            },
            ..plain
        },
    ]
}

/// The mutants of `list` that `ISOTHERM_MUTANT` selects.
fn asked(list: &[Mutant]) -> Vec<Mutant> {
    let one = std::env::var("ISOTHERM_MUTANT").ok();
    let wanted = |m: &Mutant| one.as_ref().is_none_or(|o| *o == format!("{m:?}"));
    list.iter().copied().filter(wanted).collect()
}

/// The scenario that caught a mutant, and the fault that it found.
fn caught(mutant: Mutant) -> Option<(String, String)> {
    if std::env::var_os("ISOTHERM_NO_SCENES").is_none()
        && let Some((scene, why)) = first_failure(Some(mutant))
    {
        return Some((format!("in {scene:?}"), why));
    }
    for seed in 0..SEEDS {
        // Some faults are found only on damaged volumes. (Each of these runs takes ten times as long as one with a crash.)
        let harms = [damage, lost_tail, older_checkpoint];
        for harm in harms
            .into_iter()
            .filter(|_| seed < 8 || seed.is_multiple_of(8))
        {
            match std::panic::catch_unwind(|| harm(seed, Some(mutant))) {
                Ok(Ok(_)) => {}
                Ok(Err(why)) => {
                    return Some((format!("at seed {seed}"), format!("damaged: {why}")));
                }
                Err(_) => {
                    return Some((
                        format!("at seed {seed}"),
                        String::from("an assertion of the engine"),
                    ));
                }
            }
        }
        for (i, s) in scenarios(seed).into_iter().enumerate() {
            // The first scenarios use all seeds, the slower ones a third of them.
            if i > 2 && seed >= SEEDS / 3 {
                continue;
            }
            let s = Scenario {
                mutant: Some(mutant),
                ..s
            };
            match std::panic::catch_unwind(|| run(s)) {
                Ok(Ok(_)) => {}
                Ok(Err(why)) => return Some((format!("at seed {seed}"), why)),
                Err(_) => {
                    return Some((
                        format!("at seed {seed}"),
                        String::from("an assertion of the engine"),
                    ));
                }
            }
        }
    }
    None
}

#[test]
fn every_mutant_is_caught() {
    std::panic::set_hook(Box::new(|_| {}));
    let (even, odd): (Vec<_>, Vec<_>) = asked(&MUTANTS)
        .into_iter()
        .enumerate()
        .partition(|(i, _)| i % 2 == 0);
    let found: Vec<(Mutant, Option<(String, String)>)> = std::thread::scope(|s| {
        let threads = [even, odd].map(|list| {
            s.spawn(move || {
                list.into_iter()
                    .map(|(_, m)| (m, caught(m)))
                    .collect::<Vec<_>>()
            })
        });
        threads
            .into_iter()
            .flat_map(|t| t.join().expect("the mutant runner itself panicked"))
            .collect()
    });
    let _ = std::panic::take_hook();
    let mut survivors = Vec::new();
    for (m, how) in found {
        match how {
            Some((place, why)) => println!(
                "{m:?}: caught {place}: {}",
                why.chars().take(140).collect::<String>()
            ),
            None => survivors.push(m),
        }
    }
    assert!(
        survivors.is_empty(),
        "nobody noticed the absence of {survivors:?}"
    );
}

#[test]
fn all_scenes_end_well_with_all_rules() {
    for (name, scene) in SCENES {
        if let Err(why) = scene(None) {
            panic!("{name}: {why}");
        }
    }
}

/// A rule that is listed as implied by others must not also be listed as noticed. (docs/on-disk-format.md, section 8 gives the reasons.)
#[test]
fn implied_rules_are_no_mutants() {
    assert!(IMPLIED.iter().all(|m| !MUTANTS.contains(m)));
    for m in IMPLIED {
        assert_eq!(first_failure(Some(m)), None, "{m:?} is noticed after all");
    }
}
