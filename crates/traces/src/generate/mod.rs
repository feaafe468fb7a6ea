//! Workload generators: what the papers ran, as streams of requests.
//!
//! ```text
//!  gen:postmark,files=4000,seed=7 ─► Spec ─► Generate ─► Reader ─► Record, Record, …
//! ```
//!
//! Each module cites its paper's section beside the parameters it takes from there and says what it assumes where the paper is
//! silent. Equal specifications make equal records. Memory is bounded by files, directories and cached pages, never by requests.

mod block;
mod db;
mod decode;
mod dist;
mod dss;
mod filebench;
mod fileset;
mod hro;
mod iozone;
mod param;
mod postmark;
mod registry;
mod run;
mod spec;
mod tpcc;
mod tpch;

pub use dss::{Mix, Server, Transaction};
pub use hro::{Campus, FileUse, Week};
pub use param::{Param, Unit};
pub use registry::{Generator, generators};
pub use spec::{BadSpec, PREFIX, Spec};

pub(crate) use decode::Generated;
