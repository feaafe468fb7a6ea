//! The mover on trees that lose power after any call: changes that no sync covered are kept, lost or torn, directory by directory. After
//! recovery, which is itself cut off at any call, every file must be whole at one place with all of its names, and no hidden file may be
//! left. The same test must fail if any safety rule is removed.

mod fetch;
mod foreign;
mod together;
mod world;

use isotherm_core::random::SplitMix64;
use isotherm_files::intent::recover;
use isotherm_files::mover::{Answer, Call, Move, Outcome, Step, Why, carry_out};
use isotherm_files::mutants::{Mutant, choose};
use isotherm_files::tree::{At, COPIES, INTENTS, Id, TEMPS, Tier, Tree, join, parent};
use std::collections::BTreeSet;
use world::*;

#[derive(Clone, Copy, Debug)]
struct Story {
    names: &'static [&'static str],
    from: Tier,
    /// A user writes during the first copy.
    writes: bool,
    /// After the move, a user deletes the file and creates another one of the same name on the old tier.
    again: bool,
}

impl Story {
    /// The tier or disk to which the file moves: disks 1 and 2 are of one tier, whose intents lie on tier 0.
    fn to(&self) -> Tier {
        [1, 0, 1][usize::from(self.from)]
    }
}

const STORIES: [Story; 7] = [
    Story {
        names: &["f"],
        from: 0,
        writes: false,
        again: false,
    },
    Story {
        names: &["a/b/f"],
        from: 0,
        writes: false,
        again: true,
    },
    Story {
        names: &["a/b/f"],
        from: 1,
        writes: true,
        again: true,
    },
    Story {
        names: &["a/f", "b/g", "h"],
        from: 0,
        writes: false,
        again: false,
    },
    Story {
        names: &["a/f", "a/g"],
        from: 1,
        writes: true,
        again: false,
    },
    Story {
        names: &["a/f"],
        from: 1,
        writes: false,
        again: true,
    },
    Story {
        names: &["a/b/f", "a/g"],
        from: 2,
        writes: true,
        again: false,
    },
];

struct Played {
    world: World,
    expected: Vec<u8>,
    /// The inode number that users see of the file.
    number: u64,
    outcome: Option<Outcome>,
}

/// Plays the story until power is lost.
fn play_in(story: Story, left: Option<u32>, error: bool, locked: Option<&'static [u8]>) -> Played {
    let mut w = World::of(3);
    w.locked = locked;
    play_on(w, story, (left, error), None)
}

/// Plays the story in a world. Once the file is there, its tier becomes read-only if `read_only` says so.
#[expect(clippy::too_many_lines, reason = "one scenario")]
fn play_on(
    mut w: World,
    story: Story,
    (left, error): (Option<u32>, bool),
    read_only: Option<u8>,
) -> Played {
    let first = story.names[0].as_bytes();
    let mut number = w.user_file(story.from, first, b"what it was at first");
    for name in &story.names[1..] {
        let name = name.as_bytes();
        w.make_dirs(story.from, name);
        let e = w.disk(story.from).now[first];
        w.disk(story.from)
            .change(Change(vec![(name.to_vec(), Some(e))]));
        w.user_syncs_dirs(story.from, name);
    }
    w.clock += 10;
    let mut expected = b"what it was at first".to_vec();
    let to = story.to();
    let names: Vec<Vec<u8>> = story.names.iter().map(|n| n.as_bytes().to_vec()).collect();
    let id = Id {
        ino: w.disk(story.from).file(first).unwrap(),
        born: 0,
    };
    (w.left, w.error, w.read_only) = (left, error, read_only);
    let mut m = Move::new(1, id, names.clone(), story.from, to).numbered(number);
    let (mut changes, mut seen, mut frozen, mut home) = (0, 0, false, story.from);
    let mut step = m.start();
    let outcome = loop {
        if w.dead {
            return Played {
                world: w,
                expected,
                number,
                outcome: None,
            };
        }
        let answer = match step {
            Step::Call(call) => {
                if matches!(call, Call::Create(..)) {
                    seen = changes;
                }
                let write = story.writes
                    && matches!(&call, Call::Copy(_, _, at, _) if *at > 0)
                    && changes == 0;
                if write {
                    assert!(!frozen);
                    w.user_writes(home, first, b"what they wrote since");
                    expected = b"what they wrote since".to_vec();
                    changes += 1;
                }
                carry_out(&mut w, &call)
            }
            Step::Freeze => {
                frozen = true;
                Ok(Answer::Frozen(names.clone(), changes != seen))
            }
            Step::Thaw => {
                frozen = false;
                Ok(Answer::Done)
            }
            Step::Swap(_) => {
                (frozen, home) = (false, to);
                // Writers continue at once, and sync their data.
                w.user_writes(home, first, b"and after it had moved");
                expected = b"and after it had moved".to_vec();
                Ok(Answer::Done)
            }
            Step::End(outcome) => break outcome,
        };
        step = m.next(answer);
    };
    if !matches!(outcome, Outcome::Stuck(_)) && !w.dead {
        // Writers continue where the file is now.
        w.user_writes(home, first, b"later");
        expected = b"later".to_vec();
        if story.again && outcome == Outcome::Done {
            let n = w.disk(home).now[first];
            assert!(matches!(n, Entry::File(_)));
            w.disk(home).change(Change(vec![(first.to_vec(), None)]));
            w.user_syncs_dirs(home, first);
            number = w.user_file(story.from, first, b"another");
            expected = b"another".to_vec();
        }
    }
    Played {
        world: w,
        expected,
        number,
        outcome: Some(outcome),
    }
}

fn play(story: Story, left: Option<u32>, error: bool) -> Played {
    play_in(story, left, error, None)
}

fn verify(w: &World, story: Story, expected: &[u8], number: u64) -> Result<(), String> {
    let mut inodes = BTreeSet::new();
    for name in story.names {
        let path = name.as_bytes();
        let at: Vec<usize> = (0..w.disks.len())
            .filter(|t| w.disks[*t].file(path).is_some())
            .collect();
        let [t] = at[..] else {
            return Err(format!("{name} is on tiers {at:?}"));
        };
        let n = w.disks[t].file(path).unwrap();
        inodes.insert((t, n));
        let inode = &w.disks[t].inodes[&n];
        if inode.now.data != expected {
            let text = String::from_utf8_lossy(&inode.now.data);
            return Err(format!(
                "{name} holds {text:?} instead of {:?}",
                String::from_utf8_lossy(expected)
            ));
        }
        if inode.now.attributes != 7 {
            return Err(format!("{name} lost its attributes"));
        }
        if inode.now.number != (number, n) {
            return Err(format!("{name} lost its number"));
        }
    }
    if inodes.len() != 1 {
        return Err("hard links were parted".into());
    }
    for d in &w.disks {
        if let Some(p) = d
            .now
            .keys()
            .find(|p| [TEMPS, INTENTS, COPIES].contains(&parent(p)))
        {
            return Err(format!("left over: {}", String::from_utf8_lossy(p)));
        }
    }
    Ok(())
}

/// Runs recovery, cut off after each of its calls, and then completely.
fn recover_anyhow(played: &Played, story: Story, mode: u64) -> Result<(), String> {
    let mut w = played.world.clone();
    w.power_comes_back(mode);
    for cut in 0..200 {
        let mut again = w.clone();
        again.left = Some(cut);
        let whole = recover(&mut again).is_ok();
        let again_mode = if cut % 2 == 0 { mode } else { 1 - mode.min(1) };
        if !whole {
            again.power_comes_back(again_mode);
            recover(&mut again).map_err(|e| format!("recovery fails: {e}"))?;
        }
        again.power_comes_back(1);
        verify(&again, story, &played.expected, played.number)
            .map_err(|e| format!("recovery cut at {cut}: {e}"))?;
        if whole {
            return Ok(());
        }
    }
    Err("recovery does not end".into())
}

/// Power is lost after each call, with all kinds of loss.
fn all_crashes() -> Result<u32, String> {
    let mut runs = 0;
    for story in STORIES {
        for left in 0..400 {
            let played = play(story, Some(left), false);
            for mode in 0..8 {
                let mut played = Played {
                    world: played.world.clone(),
                    expected: played.expected.clone(),
                    number: played.number,
                    outcome: played.outcome,
                };
                played.world.random = SplitMix64::new(mode * 7919 + u64::from(left));
                recover_anyhow(&played, story, mode)
                    .map_err(|e| format!("{story:?}, crash at call {left}, way {mode}: {e}"))?;
                runs += 1;
            }
            if let Some(outcome) = played.outcome {
                if outcome != Outcome::Done {
                    return Err(format!("{story:?}: {outcome:?}"));
                }
                break;
            }
        }
    }
    Ok(runs)
}

#[test]
fn power_lost_after_every_call() {
    let runs = all_crashes().unwrap();
    assert!(runs > 500, "{runs}");
}

#[test]
fn an_error_at_every_call() {
    for story in STORIES {
        for left in 0..400 {
            let played = play(story, Some(left), true);
            for mode in 0..4 {
                let at = format!(
                    "{story:?}, error at call {left}, way {mode}, {:?}",
                    played.outcome
                );
                recover_anyhow(&played, story, mode)
                    .map_err(|e| format!("{at}: {e}"))
                    .unwrap();
            }
            if played.world.left.is_some() {
                break;
            }
        }
    }
}

#[test]
fn torn_and_void_intents_are_left_alone() {
    use isotherm_files::intent::{Op, encode};
    for cut in [0usize, 3, 30, 61] {
        let mut w = World::new();
        w.user_file(0, b"f", b"precious");
        let id = Id {
            ino: w.disk(0).file(b"f").unwrap(),
            born: 0,
        };
        let missing = Id { ino: 99, born: 0 };
        let ops = [
            Op::Rename(missing, At::new(1, join(TEMPS, b"m1")), b"f".to_vec()),
            Op::Unlink(id, At::new(0, "f")),
        ];
        let mut bytes = encode(&ops);
        if cut == 3 {
            // The length is right, the contents are not those that were written.
            bytes = encode(&ops[1..]);
            *bytes.last_mut().unwrap() ^= 1;
            w.write(&At::new(0, join(INTENTS, b"m0")), &bytes).unwrap();
            assert_eq!(recover(&mut w).unwrap().dropped, 1);
            assert_eq!(w.disk(0).file(b"f"), Some(id.ino), "spoilt");
        }
        let bytes = if cut == 0 {
            &bytes[..]
        } else {
            &bytes[..bytes.len() - cut]
        };
        w.write(&At::new(0, join(INTENTS, b"m1")), bytes).unwrap();
        assert_eq!(recover(&mut w).unwrap().dropped, 1);
        assert_eq!(w.disk(0).file(b"f"), Some(id.ino), "cut {cut}");
    }
}

/// The second name of the file is in a directory that keeps its names: nothing is moved, whenever the power fails.
fn a_locked_directory() -> Result<(), String> {
    let story = STORIES[3];
    for left in 0..400 {
        let played = play_in(story, Some(left), false, Some(b"b"));
        for mode in 0..4 {
            recover_anyhow(&played, story, mode).map_err(|e| format!("call {left}: {e}"))?;
        }
        match played.outcome {
            Some(Outcome::Refused(Why::Flags)) => return Ok(()),
            Some(other) => return Err(format!("{other:?}")),
            None => {}
        }
    }
    Err("it does not end".into())
}

/// The file system of the source is read-only, as after an error, which only a change reveals: the move ends before its decision, so
/// names of other files can still change.
fn a_source_that_is_read_only() -> Result<(), String> {
    for story in STORIES {
        let mut played = play_on(World::of(3), story, (None, false), Some(story.from));
        if played.outcome != Some(Outcome::Failed(rustix::io::Errno::ROFS)) {
            return Err(format!("{story:?}: {:?}", played.outcome));
        }
        played.world.read_only = None;
        for mode in 0..4 {
            recover_anyhow(&played, story, mode).map_err(|e| format!("{story:?}: {e}"))?;
        }
    }
    Ok(())
}

#[test]
fn a_file_of_a_read_only_tier_stays_there() {
    a_source_that_is_read_only().unwrap();
}

#[test]
fn names_that_cannot_be_removed_are_not_moved() {
    a_locked_directory().unwrap();
}

#[test]
fn every_rule_is_needed() {
    use Mutant::*;
    let mut missed = Vec::new();
    for mutant in [
        SkipCopySync,
        SkipTempDirSync,
        SkipIntentSync,
        SkipIntent,
        TrustOldCopy,
        MoveOneName,
        ForgetTargetSync,
        SkipAncestors,
        ForgetAttributes,
        ForgetNumber,
        UnlinkFirst,
    ] {
        choose(Some(mutant));
        let caught = std::panic::catch_unwind(|| all_crashes().is_err()).unwrap_or(true);
        choose(None);
        if !caught {
            missed.push(mutant);
        }
    }
    for mutant in [TrustTornIntent, TrustVoidIntent] {
        choose(Some(mutant));
        let caught = std::panic::catch_unwind(torn_and_void_intents_are_left_alone).is_err();
        choose(None);
        if !caught {
            missed.push(mutant);
        }
    }
    choose(Some(IgnoreFlags));
    if a_locked_directory().is_ok() {
        missed.push(IgnoreFlags);
    }
    choose(Some(TrustSource));
    if a_source_that_is_read_only().is_ok() {
        missed.push(TrustSource);
    }
    choose(None);
    assert!(missed.is_empty(), "not noticed: {missed:?}");
}
