//! Mutation tests: the suite in `chaos.rs` must notice the removal of every safety rule.
//!
//! A mutant counts as caught when one of that suite's scenarios fails (or a release assertion of the engine fires). A rule whose removal is
//! not noticed is either not needed or not tested. Both are defects. `ISOTHERM_MUTANT=Name` tries only one.
//!
//! `mutants.known` says where each was caught, which is tried first. A mutant that is not caught there any more is searched for in the scenes
//! and then seed by seed; that takes minutes for all of them, so write the file anew after a change of the engine or of the world:
//! `ISOTHERM_BLESS=1 cargo test -p isotherm-hostile --test mutants`.

use isotherm_core::engine::{IMPLIED, MUTANTS, Mutant};
use isotherm_hostile::damage::{Damage, damage, lost_tail, older_checkpoint};
use isotherm_hostile::directed::{SCENES, first_failure};
use isotherm_hostile::run::{Scenario, Shape, run};
use isotherm_hostile::world::Faults;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

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

/// One attempt to notice a mutant.
#[derive(Clone, Copy)]
enum Attempt {
    /// A scene, by its place in [`SCENES`].
    Scene(usize),
    /// A seed, and what is done with its volume: the harms to its metadata come first, then the scenarios.
    Seed { seed: u64, what: usize },
}

type Harm = fn(u64, Option<Mutant>) -> Result<Damage, String>;
const HARMS: [Harm; 3] = [damage, lost_tail, older_checkpoint];

/// Without scenes one sees what random scenarios alone notice.
fn has_scenes() -> bool {
    std::env::var_os("ISOTHERM_NO_SCENES").is_none()
}

impl Attempt {
    fn all() -> impl Iterator<Item = Attempt> {
        let scenes = if has_scenes() { SCENES.len() } else { 0 };
        let seeds = (0..SEEDS).flat_map(Attempt::of_seed);
        (0..scenes).map(Attempt::Scene).chain(seeds)
    }

    /// Some faults are found only on damaged volumes, each of which takes ten times as long as one with a crash. The first scenarios use all
    /// seeds, the slower ones a third of them.
    fn of_seed(seed: u64) -> impl Iterator<Item = Attempt> {
        let harms = seed < 8 || seed.is_multiple_of(8);
        let slower = seed < SEEDS / 3;
        let is_wanted = move |what: &usize| match what.checked_sub(HARMS.len()) {
            None => harms,
            Some(scenario) => slower || scenario <= 2,
        };
        let what = 0..HARMS.len() + scenarios(seed).len();
        (what.filter(is_wanted)).map(move |what| Attempt::Seed { seed, what })
    }

    /// The fault that it finds.
    fn finds(self, mutant: Mutant) -> Option<String> {
        let outcome = std::panic::catch_unwind(|| match self {
            Attempt::Scene(at) => SCENES[at].1(Some(mutant)),
            Attempt::Seed { seed, what } if what < HARMS.len() => {
                HARMS[what](seed, Some(mutant)).map(|_| ())
            }
            Attempt::Seed { seed, what } => {
                let plain = scenarios(seed)[what - HARMS.len()];
                let s = Scenario {
                    mutant: Some(mutant),
                    ..plain
                };
                run(s).map(|_| ())
            }
        });
        outcome.map_or_else(|_| Some("an assertion of the engine".into()), Result::err)
    }

    /// As in the file of [`KNOWN`].
    fn parse(text: &str) -> Option<Attempt> {
        if let Some(name) = text.strip_prefix("scene ") {
            let at = SCENES.iter().position(|(n, _)| *n == name);
            return at.map(Attempt::Scene);
        }
        let (seed, what) = text.strip_prefix("seed ")?.split_once(", ")?;
        let (seed, what) = (seed.parse().ok()?, what.parse().ok()?);
        Some(Attempt::Seed { seed, what }).filter(|_| what < HARMS.len() + scenarios(seed).len())
    }
}

impl std::fmt::Display for Attempt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Attempt::Scene(at) => write!(f, "scene {}", SCENES[at].0),
            Attempt::Seed { seed, what } => write!(f, "seed {seed}, {what}"),
        }
    }
}

/// Lines `MUTANT: ATTEMPT`: where each was caught when the file was written. Only the time of the search depends on it.
const KNOWN: &str = include_str!("mutants.known");

/// The attempt that catches a mutant, and the fault that it finds.
fn caught(mutant: Mutant) -> Option<(Attempt, String)> {
    let of_mutant = format!("{mutant:?}: ");
    let known = KNOWN.lines().find_map(|l| l.strip_prefix(&of_mutant));
    let known = (known.and_then(Attempt::parse))
        .filter(|k| has_scenes() || !matches!(k, Attempt::Scene(_)));
    let by = |attempt: Attempt| Some((attempt, attempt.finds(mutant)?));
    known.into_iter().chain(Attempt::all()).find_map(by)
}

#[test]
fn every_mutant_is_caught() {
    std::panic::set_hook(Box::new(|_| {}));
    let all = asked(&MUTANTS);
    let next = AtomicUsize::new(0);
    let work = || {
        let mut found = Vec::new();
        while let Some(&m) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
            let begun = Instant::now();
            found.push((m, caught(m), begun.elapsed()));
        }
        found
    };
    let mut found: Vec<_> = std::thread::scope(|s| {
        let threads = [s.spawn(work), s.spawn(work)];
        let ended = threads.map(|t| t.join().expect("the mutant runner itself panicked"));
        ended.into_iter().flatten().collect()
    });
    found.sort_by_key(|(m, ..)| all.iter().position(|a| a == m));
    let _ = std::panic::take_hook();
    let (mut survivors, mut lines) = (Vec::new(), Vec::new());
    for (m, how, took) in found {
        let Some((attempt, why)) = how else {
            survivors.push(m);
            continue;
        };
        let (why, took): (String, _) = (why.chars().take(140).collect(), took.as_secs_f64());
        println!("{m:?}: caught by {attempt} in {took:.1} s: {why}");
        lines.push(format!("{m:?}: {attempt}\n"));
    }
    assert!(
        survivors.is_empty(),
        "nobody noticed the absence of {survivors:?}"
    );
    if std::env::var_os("ISOTHERM_BLESS").is_some() && all.len() == MUTANTS.len() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mutants.known");
        std::fs::write(file, lines.concat()).expect("written");
    }
}

#[test]
fn all_scenes_end_well_with_all_rules() {
    for (name, scene) in SCENES {
        if let Err(why) = scene(None) {
            panic!("{name}: {why}");
        }
    }
}

/// A rule that is listed as implied by others must not also be listed as noticed. (docs/proofs.md gives the reasons.)
#[test]
fn implied_rules_are_no_mutants() {
    assert!(IMPLIED.iter().all(|m| !MUTANTS.contains(m)));
    for m in IMPLIED {
        assert_eq!(first_failure(Some(m)), None, "{m:?} is noticed after all");
    }
}
