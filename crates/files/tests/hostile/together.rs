//! Two moves at the same time, in the same directories: their intents are there together when power is lost.

use crate::world::World;
use crate::{STORIES, Story, verify};
use isotherm_core::random::SplitMix64;
use isotherm_files::intent::recover;
use isotherm_files::mover::{Answer, Move, Outcome, Step, carry_out};
use isotherm_files::tree::Id;

const BYTES: [&[u8]; 2] = [b"the first file", b"the second file"];

fn stories() -> [Story; 2] {
    let of = |names, from| Story {
        names,
        from,
        ..STORIES[0]
    };
    [of(&["a/b/f"], 0), of(&["a/b/g"], 1)]
}

/// Moves both, one call of either in turn, at random, until power is lost after `left` calls. Returns whether both moves ended.
fn play(left: u32, seed: u64) -> (World, [u64; 2], bool) {
    let mut w = World::new();
    let mut random = SplitMix64::new(seed);
    let mut moves = Vec::new();
    let mut numbers = [0; 2];
    for (n, (story, bytes)) in stories().into_iter().zip(BYTES).enumerate() {
        numbers[n] = w.user_file(story.from, story.names[0].as_bytes(), bytes);
    }
    w.clock += 10;
    for (n, story) in stories().into_iter().enumerate() {
        let name = story.names[0].as_bytes().to_vec();
        let ino = w.disk(story.from).file(&name).unwrap();
        let id = Id { ino, born: 0 };
        let to = 1 - story.from;
        let mut m =
            Move::new(n as u64 + 1, id, vec![name.clone()], story.from, to).numbered(numbers[n]);
        let step = m.start();
        moves.push((m, Some(step), name));
    }
    w.left = Some(left);
    while !w.dead {
        let open = moves.iter_mut().filter(|m| m.1.is_some());
        let mut open: Vec<_> = open.collect();
        if open.is_empty() {
            return (w, numbers, true);
        }
        let at = random.below(open.len() as u64) as usize;
        let (m, step, name) = &mut *open[at];
        let answer = match step.take() {
            Some(Step::Call(call)) => carry_out(&mut w, &call),
            Some(Step::Freeze) => Ok(Answer::Frozen(vec![name.clone()], false)),
            Some(Step::End(outcome)) => {
                assert_eq!(outcome, Outcome::Done);
                continue;
            }
            _ => Ok(Answer::Done),
        };
        *step = Some(m.next(answer));
    }
    (w, numbers, false)
}

#[test]
fn two_moves_at_once_survive_a_loss_of_power() {
    let seed = std::env::var("ISOTHERM_SEED").ok();
    let seed = seed.and_then(|s| s.parse().ok()).unwrap_or(14);
    let mut both = 0;
    for way in 0..8 {
        for left in 0..400 {
            let (mut w, numbers, ended) = play(left, seed + way);
            let intents = w.disks[0].now.keys();
            both += u32::from(
                intents
                    .filter(|p| p.starts_with(b".isotherm/intents/"))
                    .count()
                    == 2,
            );
            w.random = SplitMix64::new(seed * 31 + u64::from(left));
            w.power_comes_back(way);
            // Recovery is cut off once, too.
            w.left = Some(left % 29);
            if recover(&mut w).is_err() {
                w.power_comes_back(way);
            }
            w.left = None;
            recover(&mut w).unwrap_or_else(|e| panic!("seed {seed}, {way}, {left}: {e}"));
            w.power_comes_back(1);
            for (n, (story, bytes)) in stories().into_iter().zip(BYTES).enumerate() {
                verify(&w, story, bytes, numbers[n])
                    .unwrap_or_else(|e| panic!("seed {seed}, {way}, {left}: {e}"));
            }
            if ended {
                break;
            }
        }
    }
    assert!(both > 20, "only {both} crashes with two intents");
}
