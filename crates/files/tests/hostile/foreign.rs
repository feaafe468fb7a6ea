//! Somebody else puts files on the tiers while a file moves, or after a crash: none of them is overwritten or removed, and the file is whole
//! at one place. Intents wait for tiers that are absent.

use crate::world::{Change, Entry, World};
use isotherm_files::intent::{Op, encode, recover};
use isotherm_files::mover::{Answer, Call, Move, Outcome, Step, Why, carry_out};
use isotherm_files::mutants::{Mutant, choose};
use isotherm_files::tree::{At, INTENTS, Id, TEMPS, Tier, Tree, join, parent};
use rustix::io::Errno;

const NAMES: [&[u8]; 4] = [b"a/f", b"a/g", b"b/c/h", b"i"];
const OURS: &[u8] = b"the file that moves";
const THEIRS: &[u8] = b"another file";

/// A file that somebody puts at a name, at a time.
#[derive(Clone, Copy, Debug)]
struct Put {
    before: u32,
    tier: Tier,
    name: usize,
}

fn begin(names: usize) -> (World, Move) {
    let mut w = World::new();
    // Without them, a file that gets the inode number of a removed one cannot be told from it.
    w.births = true;
    w.user_file(0, NAMES[0], OURS);
    let e = w.disk(0).now[NAMES[0]];
    for name in &NAMES[1..names] {
        w.make_dirs(0, name);
        w.disk(0).change(Change(vec![(name.to_vec(), Some(e))]));
        w.user_syncs_dirs(0, name);
    }
    w.clock += 10;
    let ino = w.disk(0).file(NAMES[0]).unwrap();
    let born = w.disk(0).inodes[&ino].born;
    let all = NAMES[..names].iter().map(|n| n.to_vec()).collect();
    (w, Move::new(1, Id { ino, born }, all, 0, 1))
}

/// Puts the file there, in place of what has the name. Returns whether that was our file.
fn put(w: &mut World, put: Put) -> bool {
    let name = NAMES[put.name];
    let ours = w.disk(put.tier).file(name).is_some();
    w.user_file(put.tier, name, THEIRS);
    ours
}

fn data(w: &World, tier: Tier, name: &[u8]) -> Option<Vec<u8>> {
    let d = &w.disks[usize::from(tier)];
    Some(d.inodes[&d.file(name)?].now.data.clone())
}

#[derive(Default)]
struct Played {
    steps: u32,
    outcome: Option<Outcome>,
    /// Our file lost a name.
    lost: bool,
    /// An intent was written.
    decided: bool,
}

/// Moves the file until power is lost or the move ends.
fn play(w: &mut World, mut m: Move, names: usize, at: Option<Put>) -> Played {
    let all: Vec<Vec<u8>> = NAMES[..names].iter().map(|n| n.to_vec()).collect();
    let (mut step, mut played) = (m.start(), Played::default());
    while !w.dead {
        if let Some(put_now) = at.filter(|p| p.before == played.steps) {
            let left = w.left.take();
            played.lost = put(w, put_now);
            w.left = left;
        }
        played.steps += 1;
        let answer = match step {
            Step::Call(call) => {
                played.decided |= matches!(call, Call::Write(..));
                carry_out(w, &call)
            }
            Step::Freeze => Ok(Answer::Frozen(all.clone(), false)),
            Step::Thaw | Step::Swap(_) => Ok(Answer::Done),
            Step::End(outcome) => {
                played.outcome = Some(outcome);
                return played;
            }
        };
        step = m.next(answer);
    }
    played
}

fn whole(w: &World, names: usize, tier: Tier) -> bool {
    let ours = |n: &&[u8]| data(w, tier, n).as_deref() == Some(OURS);
    NAMES[..names].iter().all(ours)
}

fn left_over(w: &World) -> bool {
    let hidden = |p: &Vec<u8>| [TEMPS, INTENTS].contains(&parent(p));
    w.disks.iter().any(|d| d.now.keys().any(hidden))
}

/// A file is put at each name of each tier before each step.
fn at_every_step() -> Result<[u32; 2], String> {
    let (mut done, mut clashes) = (0, 0);
    for names in 1..=NAMES.len() {
        for tier in [0, 1] {
            for (name, taken) in NAMES[..names].iter().enumerate() {
                for before in 0.. {
                    let at = Put { before, tier, name };
                    let (mut w, m) = begin(names);
                    let played = play(&mut w, m, names, Some(at));
                    let (outcome, lost) = (played.outcome, played.lost);
                    if before >= played.steps {
                        break;
                    }
                    let shown = format!("{names} names, {at:?}: {outcome:?}");
                    if data(&w, tier, taken).as_deref() != Some(THEIRS) {
                        return Err(format!("{shown}: the other file is gone"));
                    }
                    if !lost && !whole(&w, names, 0) && !whole(&w, names, 1) {
                        return Err(format!("{shown}: the file is not whole"));
                    }
                    // What is there before the move begins is found before anything is decided.
                    if before == 0 && played.decided {
                        return Err(format!("{shown}: it was decided"));
                    }
                    if left_over(&w) {
                        return Err(format!("{shown}: something is left over"));
                    }
                    done += u32::from(outcome == Some(Outcome::Done));
                    clashes += u32::from(outcome == Some(Outcome::Refused(Why::Clash)));
                }
            }
        }
    }
    Ok([done, clashes])
}

/// Power is lost at each call. Then a file is put at each name that is free, and recovery runs. It may refuse.
fn after_every_crash() -> Result<(), String> {
    for names in [1, 3] {
        for left in 0.. {
            let (mut w, m) = begin(names);
            w.left = Some(left);
            if play(&mut w, m, names, None).outcome.is_some() {
                break;
            }
            for mode in 0..4 {
                for (tier, name) in (0..names).flat_map(|n| [(0, n), (1, n)]) {
                    let mut w = w.clone();
                    w.power_comes_back(mode);
                    if w.disk(tier).file(NAMES[name]).is_some() {
                        continue;
                    }
                    put(
                        &mut w,
                        Put {
                            before: 0,
                            tier,
                            name,
                        },
                    );
                    let recovered = recover(&mut w);
                    let shown = format!(
                        "{names} names, call {left}, way {mode}, {name} on {tier}: {recovered:?}"
                    );
                    if data(&w, tier, NAMES[name]).as_deref() != Some(THEIRS) {
                        return Err(format!("{shown}: the other file is gone"));
                    }
                    let d = &w.disks;
                    let ours = |t: usize| {
                        let files = d[t].now.values();
                        let mut inodes = files.filter_map(|e| match e {
                            Entry::File(n) => Some(&d[t].inodes[n]),
                            Entry::Dir => None,
                        });
                        inodes.any(|i| i.now.data == OURS)
                    };
                    if !ours(0) && !ours(1) {
                        return Err(format!("{shown}: the file is lost"));
                    }
                }
            }
        }
    }
    Ok(())
}

#[test]
fn files_of_others_stay_at_every_step() {
    let [done, clashes] = at_every_step().unwrap();
    assert!(done > 50 && clashes > 50, "{done}, {clashes}");
}

#[test]
fn files_of_others_stay_after_every_crash() {
    after_every_crash().unwrap();
}

#[test]
fn the_rules_about_files_of_others_are_needed() {
    let mut missed = Vec::new();
    for mutant in [
        Mutant::OneClash,
        Mutant::RemoveUnseen,
        Mutant::ReplaceForeign,
    ] {
        choose(Some(mutant));
        let found = std::panic::catch_unwind(at_every_step).is_ok_and(|r| r.is_ok());
        choose(None);
        if found {
            missed.push(mutant);
        }
    }
    choose(Some(Mutant::ReplaceForeign));
    if after_every_crash().is_ok() {
        missed.push(Mutant::ReplaceForeign);
    }
    choose(None);
    assert!(missed.is_empty(), "not noticed: {missed:?}");
}

/// A directory that is on some of three tiers is renamed, and power is lost before the first step. With each set of absent tiers, recovery
/// either does all of it or changes nothing.
#[test]
fn an_intent_waits_for_each_tier_that_it_names() {
    for on in 1..8u8 {
        for absent in [0, 2, 4, 6u8] {
            let mut w = World::of(3);
            let mut ops = Vec::new();
            for tier in (0..3).filter(|t| on & (1 << t) != 0) {
                w.user_file(tier, b"f", OURS);
                let ino = w.disk(tier).file(b"f").unwrap();
                ops.push(Op::Rename(
                    Id { ino, born: 0 },
                    At::new(tier, "f"),
                    b"g".to_vec(),
                ));
            }
            w.write(&At::new(0, join(INTENTS, b"n1")), &encode(&ops))
                .unwrap();
            w.absent = absent;
            let before: Vec<_> = w.disks.iter().map(|d| d.now.clone()).collect();
            let recovered = recover(&mut w).map(|r| (r.finished, r.dropped));
            let now: Vec<_> = w.disks.iter().map(|d| d.now.clone()).collect();
            if on & absent != 0 {
                assert_eq!(recovered, Err(Errno::NODEV), "{on} without {absent}");
                assert_eq!(now, before);
                w.absent = 0;
                recover(&mut w).unwrap();
            } else {
                assert_eq!(recovered, Ok((1, 0)), "{on} without {absent}");
            }
            for tier in 0..3 {
                let there = on & (1 << tier) != 0;
                assert_eq!(data(&w, tier, b"g").is_some(), there);
                assert!(data(&w, tier, b"f").is_none());
            }
        }
    }
}
