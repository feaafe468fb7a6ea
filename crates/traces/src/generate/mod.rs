//! Workload generators: the workloads of the papers, as streams of requests.
//!
//! ```text
//!  gen:postmark,files=4000,seed=7 ─► Spec ─► Generate ─► Reader ─► Record, Record, …
//! ```
//!
//! Each module cites the paper's section beside each parameter that it takes from there, and states its assumptions where the paper is
//! silent. Equal specifications produce equal records. Memory is bounded by the number of files, directories and cached pages, and does not
//! grow with the number of requests.

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
