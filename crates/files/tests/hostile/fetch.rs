//! Copies of files on the fast tier. Whenever the file is written while the copy is made, a copy that is used equals the file. Whenever the
//! power fails, the file is whole at home and no copy is left.

use crate::world::*;
use isotherm_files::fetch::Fetch;
use isotherm_files::intent::recover;
use isotherm_files::mover::{Answer, Call, Outcome, Step, Why, carry_out};
use isotherm_files::mutants::{Mutant, choose};
use isotherm_files::tree::{COPIES, Id, parent};

const PATH: &[u8] = b"a/f";
const MOVED: &[u8] = b"a/g";

#[derive(Clone, Copy, Debug, PartialEq)]
enum Who {
    /// Through the mount, which counts changes.
    User,
    /// Directly on the tier: only the change time reveals it.
    Underneath,
    /// Through the mount: the name changes.
    Rename,
}

struct Played {
    world: World,
    expected: Vec<u8>,
    outcome: Option<Outcome>,
}

/// Compares the copy with the bytes that it should hold. A head has the size of the file, as one with a hole at its end.
fn compare(w: &mut World, head: Option<u64>, expected: &[u8]) -> Result<(), String> {
    let d = w.disk(0);
    let copy = d.now.keys().find(|p| parent(p) == COPIES).cloned();
    let number = copy.and_then(|p| d.file(&p)).ok_or("no copy")?;
    let data = &d.inodes[&number].now.data;
    let held = head.unwrap_or(u64::MAX).min(expected.len() as u64) as usize;
    let same = data.len() == expected.len() && data[..held] == expected[..held];
    if !same || data[held..].iter().any(|b| *b != 0) {
        return Err("the copy is another".into());
    }
    Ok(())
}

/// Makes a copy, whole or of the first `head` bytes; before call `at`, a user changes the file in the given way, unless the file is frozen
/// at that moment.
fn play(
    head: Option<u64>,
    who: Who,
    at: u32,
    left: Option<u32>,
    error: bool,
) -> Result<Played, String> {
    let mut w = World::new();
    let mut expected = b"what it was at first".to_vec();
    w.user_file(1, PATH, &expected);
    w.clock += 10;
    let mut name = PATH.to_vec();
    let id = Id {
        ino: w.disk(1).file(PATH).ok_or("made")?,
        born: 0,
    };
    (w.left, w.error) = (left, error);
    let mut fetch = Fetch::new(1, id, name.clone(), 1).head(head.unwrap_or(u64::MAX));
    let (mut changes, mut seen, mut frozen, mut calls) = (0, 0, false, 0);
    let mut step = fetch.start();
    let outcome = loop {
        if w.dead {
            break None;
        }
        if calls == at && !frozen {
            calls += 1;
            match who {
                Who::Rename => {
                    let entry = w.disk(1).now[&name];
                    let change = vec![(name.clone(), None), (MOVED.to_vec(), Some(entry))];
                    w.disk(1).change(Change(change));
                    w.sync_entries(1, b"a");
                    name = MOVED.to_vec();
                }
                who => {
                    expected = b"what they wrote since".to_vec();
                    w.user_writes(1, &name, &expected);
                    changes += u32::from(who == Who::User);
                    if who == Who::Underneath {
                        let clock = w.clock;
                        w.disk(1).inodes.get_mut(&id.ino).ok_or("there")?.ctime = clock;
                    }
                }
            }
        }
        let answer = match step {
            Step::Call(call) => {
                calls += 1;
                frozen &= !matches!(call, Call::Unlink(_));
                if matches!(call, Call::Create(..)) {
                    seen = changes;
                }
                carry_out(&mut w, &call)
            }
            Step::Freeze => {
                frozen = true;
                Ok(Answer::Frozen(vec![name.clone()], changes != seen))
            }
            Step::Swap(_) => {
                compare(&mut w, head, &expected)
                    .map_err(|e| format!("{who:?} before call {at}: {e}"))?;
                Ok(Answer::Done)
            }
            Step::Thaw => Ok(Answer::Done),
            Step::End(outcome) => break Some(outcome),
        };
        step = fetch.next(answer);
    };
    Ok(Played {
        world: w,
        expected,
        outcome,
    })
}

/// Checks the state after a loss of power and a recovery that is itself cut off after each of its calls.
fn recovered(played: &Played, mode: u64) -> Result<(), String> {
    let mut w = played.world.clone();
    w.power_comes_back(mode);
    for cut in 0..60 {
        let mut again = w.clone();
        again.left = Some(cut);
        let whole = recover(&mut again).is_ok();
        if !whole {
            again.power_comes_back(1);
            recover(&mut again).map_err(|e| format!("recovery fails: {e}"))?;
        }
        let file = again.disks[1]
            .file(PATH)
            .or_else(|| again.disks[1].file(MOVED));
        let inode = &again.disks[1].inodes[&file.ok_or("the file is gone")?];
        if inode.now.data != played.expected || inode.now.attributes != 7 {
            return Err("the file is another".into());
        }
        let left = |d: &Disk| d.now.keys().any(|p| parent(p) == COPIES);
        if again.disks.iter().any(left) {
            return Err("a copy is left".into());
        }
        if whole {
            return Ok(());
        }
    }
    Err("recovery does not end".into())
}

fn all() -> Result<u32, String> {
    // Bytes of a head: less than the first piece that the world copies, a part of the second one, and more than the file.
    let heads = [None, Some(5), Some(12), Some(100)];
    heads.into_iter().map(all_of).sum()
}

fn all_of(head: Option<u64>) -> Result<u32, String> {
    let mut runs = 0;
    for who in [Who::User, Who::Underneath, Who::Rename] {
        for at in 0..12 {
            let whole = play(head, who, at, None, false)?;
            let gone = Some(Outcome::Refused(Why::Gone));
            let renamed = who == Who::Rename && whole.outcome == gone;
            if whole.outcome != Some(Outcome::Done) && !renamed {
                return Err(format!("{who:?} before call {at}: {:?}", whole.outcome));
            }
            for (left, error) in (0..40).flat_map(|l| [(l, false), (l, true)]) {
                let played = play(head, who, at, Some(left), error)?;
                for mode in 0..4 {
                    recovered(&played, mode).map_err(|e| {
                        format!("{who:?} before call {at}, cut at {left}, way {mode}: {e}")
                    })?;
                    runs += 1;
                }
            }
        }
    }
    Ok(runs)
}

#[test]
fn a_copy_is_the_file_and_none_is_left() {
    assert!(all().unwrap() > 1000);
}

#[test]
fn every_rule_of_copies_is_needed() {
    for mutant in [Mutant::TrustOldFetch, Mutant::KeepCopies] {
        choose(Some(mutant));
        let caught = all().is_err();
        choose(None);
        assert!(caught, "not noticed: {mutant:?}");
    }
}
