//! What volumes, mounted trees ([`files`]) and the commands about them answer, as types. Servers and commands fill them, commands and the web
//! view read them, and the schemas in `docs/json` are made from them, so a key has one name in one place.
//!
//! A reader takes what it knows and leaves out the rest, so a server may send more keys than the reader has. A key that a reader needs and
//! does not get is an error that names it ([`read`]). So a key that is added later is an `Option` with a default, and a command that needs
//! few keys reads only those ([`Brief`]): it works with servers of other versions.
#![forbid(unsafe_code)]

mod atlas;
mod brief;
mod changes;
mod check;
mod classes;
mod copies;
mod disks;
mod drives;
mod file_copies;
pub mod files;
mod health;
mod machine;
#[cfg(feature = "schema")]
pub mod schema;
mod stats;
mod status;
mod what_if;
mod why;

pub use atlas::{Cells, EndedMove, MoveList, MoveUnderWay};
pub use brief::Brief;
pub use changes::{
    Adopted, Cache, CacheDid, CancelledReplace, Changed, ChangedFlash, CleanBegun, Cleaned,
    Created, CreatedMember, EventsEnding, Grown, GrownMember, IsStopped, Noted, OfVolume, Param,
    Params, RecordedEvents, Released, ReleasedDisk, RemovedFlash, Replaced, ResizedFlash, Set,
    Stopped, Warmed,
};
pub use check::{
    CheckResult, CheckSays, Checked, CheckedArea, CheckedCheckpoint, CheckedData, CheckedMetadata,
};
pub use classes::{
    ClassLayout, ClassRanges, ClassRow, Classes, FileSystemKind, FoundFileSystem, RegisteredClasses,
};
pub use copies::{CleaningTimeBy, Copies, Draining, Warm, WarmEnd};
pub use drives::Drive;
pub use health::{Cause, CauseKind, Failure, Health, Level};
pub use machine::{
    AssembledState, AssembledVolume, Device, Diagnosis, Finding, FindingLevel, FoundDescription,
    FoundMember, FoundVolume, ListedState, ListedVolume, PolicyInfo, PolicyKind, PolicyParam,
};
pub use stats::{
    ClassFigures, ClassSources, Commit, FrontEnd, Latencies, Latency, MemberFigures, Memory,
    MoveCounts, Moves, PowerBudget, SourceFigures, SourceOfClass, Stats, Tier, WearBudget, Work,
};
pub use status::{
    Checking, DataCheck, KeptAwakeBy, LastCheck, LastWake, Look, Lost, Member, Promise, Range,
    Recovery, Replacing, ReplacingWaits, Served, Sleep, Stalled, Starts, State, Status, Store,
    WaitsFor, WokenBy,
};
pub use what_if::{Between, Prediction, WhatIf};
pub use why::{Copy, Why, WhyFile, WhyPart};

use serde_json::Value;

/// An answer as its type; for `status` see [`read_status`].
///
/// # Errors
/// A key is absent or has another form: its name, as serde says it.
pub fn read<T: serde::de::DeserializeOwned>(answer: &Value) -> Result<T, String> {
    T::deserialize(answer).map_err(|e| format!("the answer is not understood: {e}"))
}

/// The answer of `status` as its type. (A part of an answer that may be absent as a whole hides what is wrong inside; this does not.)
///
/// # Errors
/// As for [`read`].
pub fn read_status(answer: &Value) -> Result<Status, String> {
    let mut status: Status = read(answer)?;
    if status.state != State::Stopped {
        status.served = Some(read(answer)?);
    }
    Ok(status)
}

/// The two answers in that of `look`.
///
/// # Errors
/// As for [`read`].
pub fn read_look(answer: &Value) -> Result<Look, String> {
    #[derive(serde::Deserialize)]
    struct Both {
        stats: Stats,
        status: Value,
    }
    let both: Both = read(answer)?;
    Ok(Look {
        stats: both.stats,
        status: read_status(&both.status)?,
    })
}

/// The word of a kind or state in answers, for pages.
pub fn word<T: serde::Serialize>(kind: T) -> String {
    match json(&kind) {
        Value::String(word) => word,
        other => other.to_string(),
    }
}

/// A value as JSON. All types of this crate have text keys, so this cannot fail for them; null stands for a value of which it does.
pub fn json<T: serde::Serialize>(value: &T) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(text: &str) -> Value {
        serde_json::from_str(text).expect("JSON")
    }

    #[test]
    fn answers_of_a_server_are_read_whole() {
        let status = sample(include_str!("../samples/status.json"));
        assert_eq!(json(&read_status(&status).expect("a status")), status);
        let stats = sample(include_str!("../samples/stats.json"));
        assert_eq!(json(&read::<Stats>(&stats).expect("figures")), stats);
    }

    #[test]
    fn an_absent_key_is_named_and_one_more_is_left_out() {
        let mut status = sample(include_str!("../samples/status.json"));
        status["of a later version"] = Value::from(1);
        assert!(read_status(&status).is_ok());
        let served = ["copies", "recovery", "pid"];
        for key in served.into_iter().chain(["members", "lost"]) {
            let mut less = status.clone();
            less.as_object_mut().expect("an object").remove(key);
            let said = read_status(&less).expect_err("refused");
            assert!(said.contains(key), "{said}");
        }
    }
}
