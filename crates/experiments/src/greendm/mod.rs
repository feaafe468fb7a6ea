//! GreenDM (Li): chapters 2, 4, 6, 7, 8 and 9.

pub(super) mod caching;
pub(super) mod compress;
pub(super) mod cost;
pub(super) mod files;
pub(super) mod judge;
pub(super) mod lba;
pub(super) mod measure;
pub(super) mod online;
pub(super) mod search;
pub(super) mod share;
pub(super) mod tables;
pub(super) mod unflushed;

/// Default scale of the web search runs: the paper's.
pub(super) const SEARCH_SCALE: f64 = 1.0;
/// Default scale of the FIU online runs: 2 GB in place of 8.
pub(super) const ONLINE_SCALE: f64 = 0.25;
/// Default scale of the file server runs: 2 GB in place of 8.
pub(super) const FILES_SCALE: f64 = 0.25;
/// Default scale of the access frequencies: the paper's.
pub(super) const LBA_SCALE: f64 = 1.0;
