//! One file per format (or family): the parser, and where its layout comes from.

pub(crate) mod blkparse;
pub(crate) mod blkreplay;
pub(crate) mod blktrace;
pub(crate) mod blocklist;
mod calendar;
pub(crate) mod cloud;
pub(crate) mod column_map;
mod columns;
pub(crate) mod custom;
pub(crate) mod disksim;
pub(crate) mod etw;
pub(crate) mod events;
pub(crate) mod fio;
pub(crate) mod fiu;
pub(crate) mod hint;
pub(crate) mod msr;
pub(crate) mod oracle;
pub(crate) mod parquet;
pub(crate) mod presets;
pub(crate) mod settle;
pub(crate) mod spc;
pub(crate) mod tables;
pub(crate) mod vscsi;
