//! Events files: every call that a live engine received, every decision that it made, and the state from which it started.
//!
//! ```text
//! engine's thread                         another thread                      the lab
//! call + effects ─► Encoder ─ 64 KiB ─►   Writer (zstd, checksums) ─► file ─► Reader ─► the same calls ─► compare
//! ```
//! The bytes are described in `docs/events-format.md`.
//!
//! Guarantee: an events file that reads without an error holds every call from the first to the last that it counts, in order. If calls
//! were lost, the file ends before the first lost one.
#![forbid(unsafe_code)]

mod block;
mod code;
mod decode;
mod numbers;
mod origin;
mod read;
mod tables;
mod warm;
mod write;

pub use block::{pack, unpack};
pub use code::{CLEAN, Call, Decision, Encoder, meta_hash};
pub use origin::{Image, Origin};
pub use read::{Event, Reader, Summary, is_events, summary};
pub use warm::{WARM, warm_calls, warm_ranges};
pub use write::Writer;

use isotherm_core::Nanos;
use std::fmt;

/// Version of the format that this program writes, and the newest that it reads.
pub const VERSION: u32 = 2;
/// The first bytes of an events file.
pub const MAGIC: &[u8; 8] = b"isoEvnt\n";

/// Why a recording ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// A user asked for the end of the recording.
    Asked,
    /// The volume was closed. The last events are those of the closing.
    Closed,
    /// The writer fell behind the engine. The recording is exact up to its end.
    FellBehind,
    /// The engine was changed in a way that a recording cannot hold (a test removed a safety rule).
    Untold,
}

const ENDINGS: [Ending; 4] = [
    Ending::Asked,
    Ending::Closed,
    Ending::FellBehind,
    Ending::Untold,
];

impl Ending {
    fn code(self) -> u8 {
        ENDINGS.iter().position(|e| *e == self).unwrap_or(0) as u8
    }

    fn of(code: u8) -> Option<Ending> {
        ENDINGS.get(usize::from(code)).copied()
    }

    /// One word for tables and JSON: `asked`, `closed`, `fell-behind`, `untold`.
    pub fn name(self) -> &'static str {
        match self {
            Ending::Asked => "asked",
            Ending::Closed => "closed",
            Ending::FellBehind => "fell-behind",
            Ending::Untold => "untold",
        }
    }
}

/// The last block of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// Why.
    pub ending: Ending,
    /// Calls recorded.
    pub events: u64,
    /// Requests among them.
    pub requests: u64,
    /// The state of the engine after the last call. It is absent if the engine's thread could not end the recording itself.
    pub standing: Option<Standing>,
}

/// The part of an engine's state that is visible besides its effects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The time at which the engine wants to be woken.
    pub next_wake: Option<Nanos>,
    /// All counters, as `Debug` prints them.
    pub counters: String,
}

impl Standing {
    /// The state of this engine now.
    pub fn of(engine: &isotherm_core::Engine) -> Standing {
        Standing {
            next_wake: engine.next_wake(),
            counters: format!("{:?}", engine.counters()),
        }
    }
}

/// Why an events file cannot be read.
#[derive(Debug)]
pub enum EventsError {
    /// The system's reason.
    Io(std::io::Error),
    /// The file does not begin with the magic bytes.
    NotEvents,
    /// Written by a newer program.
    Newer(u32),
    /// The file ends before its last block.
    Cut {
        /// Whole blocks before the cut.
        blocks: u32,
    },
    /// A block differs from the one that was written.
    Damaged {
        /// Number of the block, from 0.
        block: u32,
        /// The fault in it.
        what: &'static str,
    },
}

impl fmt::Display for EventsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EventsError::Io(e) => write!(f, "cannot be read: {e}"),
            EventsError::NotEvents => f.write_str(
                "is no events file: record one with `isotherm record VOLUME --events --out FILE`",
            ),
            EventsError::Newer(v) => write!(
                f,
                "is an events file of format version {v}, this program reads up to {VERSION}: use a newer isotherm"
            ),
            EventsError::Cut { blocks } => write!(
                f,
                "is cut short after {blocks} whole blocks: the recording broke off, or the copy is not complete"
            ),
            EventsError::Damaged { block, what } => {
                write!(
                    f,
                    "block {block} is damaged ({what}): copy the file again, or record again"
                )
            }
        }
    }
}

impl std::error::Error for EventsError {}

impl From<std::io::Error> for EventsError {
    fn from(e: std::io::Error) -> EventsError {
        EventsError::Io(e)
    }
}
