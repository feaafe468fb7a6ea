//! Readers and writers of storage I/O traces.
//!
//! ```text
//!  file ─► Input ──────► Lines<P> or Fixed<P> ─► Reader ─► Record, Record, …  ─► SideBySide ─► one address space
//!          .zst .gz      one parser per format   relative, rising time
//!          one buffer    no allocation a record  no empty requests
//! ```
//!
//! Generators, [`generate`], run under the same reader as files: `gen:NAME,key=value` ([`Source`]).
//!
//! A trace of any length is read in bounded memory, and no input makes a reader panic.
#![forbid(unsafe_code)]

mod copy;
mod decode;
mod devices;
mod error;
mod field;
mod foreign;
mod format;
mod formats;
pub mod generate;
mod heat;
mod info;
mod input;
pub mod layout;
mod map;
mod merge;
mod notes;
mod open;
mod reader;
mod record;
mod repeats;
mod reuse;
mod sniff;
mod sort;
mod source;
mod stats;
mod time_unit;
mod units;
mod write;

/// Events files, which are traces as well: see [`Format::Events`].
pub use isotherm_events as events;

pub use copy::{Pick, convert, copy};
pub use error::{Bad, Place, TraceError};
pub use format::{Format, UnknownFormat};
pub use formats::column_map::{BadColumns, ColumnMap};
pub use heat::{HEAT_CELLS, Heat, Heats};
pub use info::{Info, RequestBytes, info, info_and_heat, info_reader};
pub use map::{DeviceSpan, SideBySide, scan, scan_reader};
pub use notes::Notes;
pub use open::{open, open_from_zero, open_merged};
pub use reader::{Options, Reader};
pub use record::{Flags, Op, Record};
pub use reuse::Reuse;
pub use sniff::{SNIFF_BYTES, sniff};
pub use source::{Source, TRACES_VAR, find};
pub use stats::{Stats, Sure};
pub use time_unit::TimeUnit;
pub use write::{WriteOptions, Writer, Written, is_stream};
