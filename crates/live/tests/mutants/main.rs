//! Rules below the engine and in front ends, removed one at a time: a scene must notice each removal.
//!
//! A rule is removed for a whole process, so each scene runs in a process of its own: this program runs itself, and the environment names
//! the scene. Some rules need a power loss, two servers or a device that refuses; their scenes are in the tests of the command line
//! (`power_loss`, `worst_days`).
#![cfg(feature = "mutants")]

mod block_file;
#[path = "../common/mod.rs"]
mod common;
mod nbd;
mod volume;

use block_file::{file_dsync, file_fsync, file_pieces, successor};
use isotherm_core::RequestOp;
use isotherm_live::mutants::LiveMutant;
use isotherm_live::nbd::testing::MemPort;
use isotherm_live::port::{Completion, IoRequest, Layer, Port};
use nbd::{
    nbd_failed, nbd_flush, nbd_fua, nbd_half_payload, nbd_kept_zeroes, nbd_lost, nbd_read_only,
    nbd_skipped_payload,
};
use std::process::Command;
use std::sync::{Arc, Mutex};
use volume::{
    cut_member, failed_is_not_clean, failed_is_not_reopened, long_zeroes, old_tail, twins,
    unaligned_writes, written_while_copied,
};

type Scene = fn() -> Result<(), String>;

/// Each mutant with the scene that notices it.
const SCENES: [(LiveMutant, Scene); 21] = [
    (LiveMutant::DropNbdFua, nbd_fua),
    (LiveMutant::AnswerNbdFlush, nbd_flush),
    (LiveMutant::LostNbdSucceeds, nbd_lost),
    (LiveMutant::FailedNbdSucceeds, nbd_failed),
    (LiveMutant::WriteHalfPayload, nbd_half_payload),
    (LiveMutant::FreeKeptZeroes, nbd_kept_zeroes),
    (LiveMutant::WriteReadOnlyNbd, nbd_read_only),
    (LiveMutant::ForgetSkip, nbd_skipped_payload),
    (LiveMutant::AnswerFsync, file_fsync),
    (LiveMutant::DropDsyncFlag, file_dsync),
    (LiveMutant::LastPieceCounts, file_pieces),
    (LiveMutant::ZeroFirstPiece, long_zeroes),
    (LiveMutant::PatchHeadOnly, unaligned_writes),
    (LiveMutant::ReadOverPayload, unaligned_writes),
    (LiveMutant::ServeCut, cut_member),
    (LiveMutant::TrustAnySuccessor, successor),
    (LiveMutant::CleanAfterFailure, failed_is_not_clean),
    (LiveMutant::ReopenAfterFailure, failed_is_not_reopened),
    (LiveMutant::TakeEitherTwin, twins),
    (LiveMutant::TrustOldTail, old_tail),
    (LiveMutant::NoteNoWrites, written_while_copied),
];

/// Runs a scene in a process of its own; returns the fault that it found, if any.
fn play(i: usize, mutant: Option<LiveMutant>) -> Result<(), String> {
    let me = std::env::current_exe().map_err(|e| e.to_string())?;
    let mut child = Command::new("timeout");
    child
        .arg("60")
        .arg(me)
        .args(["--exact", "one_scene", "--nocapture"]);
    child.env("ISOTHERM_SCENE", i.to_string());
    match mutant {
        Some(m) => child.env("ISOTHERM_LIVE_MUTANT", format!("{m:?}")),
        None => child.env_remove("ISOTHERM_LIVE_MUTANT"),
    };
    let out = child.output().map_err(|e| e.to_string())?;
    let said = String::from_utf8_lossy(&out.stderr);
    if out.status.success() {
        Ok(())
    } else {
        // The fault that the scene found, not the reason why it could not run.
        Err(said.into_owned())
    }
}

#[test]
fn one_scene() {
    let Ok(i) = std::env::var("ISOTHERM_SCENE") else {
        return;
    };
    let (_, scene) = SCENES[i.parse::<usize>().expect("a number")];
    if let Err(why) = scene() {
        eprintln!("noticed: {why}");
        std::process::exit(3);
    }
}

#[test]
fn each_rule_that_is_taken_out_is_noticed() {
    let wrong: Vec<String> = std::thread::scope(|s| {
        let half = |parity: usize| {
            s.spawn(move || {
                let all = SCENES.iter().enumerate().filter(|(i, _)| i % 2 == parity);
                all.filter_map(|(i, (mutant, _))| {
                    if let Err(why) = play(i, None) {
                        return Some(format!("{mutant:?}: its scene fails with all rules: {why}"));
                    }
                    match play(i, Some(*mutant)) {
                        Ok(()) => Some(format!("{mutant:?} survives")),
                        Err(why) if why.contains("noticed: ") => None,
                        Err(why) => Some(format!("{mutant:?}: its scene breaks down: {why}")),
                    }
                })
                .collect::<Vec<_>>()
            })
        };
        let halves = [half(0), half(1)];
        halves
            .into_iter()
            .flat_map(|h| h.join().expect("scenes are played"))
            .collect()
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn check(ok: bool, what: &str) -> Result<(), String> {
    if ok { Ok(()) } else { Err(what.to_owned()) }
}

/// A volume in memory that records its requests.
struct RecordingPort {
    memory: MemPort,
    ops: Mutex<Vec<(RequestOp, bool)>>,
    /// Requests at this offset are lost: they are never answered.
    lost: Option<u64>,
}

impl RecordingPort {
    fn over(memory: MemPort, lost: Option<u64>) -> Arc<RecordingPort> {
        Arc::new(RecordingPort {
            memory,
            ops: Mutex::default(),
            lost,
        })
    }
    fn received(&self, op: RequestOp, fua: bool) -> bool {
        let ops = self.ops.lock().expect("nobody panics with it");
        ops.contains(&(op, fua))
    }
}

impl Layer for RecordingPort {
    fn below(&self) -> &dyn Port {
        &self.memory
    }

    fn submit(&self, request: IoRequest, done: Completion) {
        self.ops
            .lock()
            .expect("nobody panics with it")
            .push((request.op, request.fua));
        if self.lost != Some(request.offset) || request.op == RequestOp::Read {
            self.memory.submit(request, done);
        }
    }
}
