//! Shows served volumes in a browser, and serves their metrics: all HTTP of the program.
//!
//! ```text
//!  volume ◄─ Source::look, once per second ─ follower (one thread per volume) ─► history ─► event streams ─┐
//!         ◄─ Source::ask, when a page wants a map or an explanation ────────────────────────────────────── ├─ pages
//!                                                             assets, embedded in the program ─────────────┘
//! ```
//! This crate knows HTTP, access rules and drawing. The meaning of the figures is known to the implementation of [`Source`]. The crate runs
//! on a thread of its own. However many pages are open, a volume is polled once per second, and every five seconds for the history if no
//! page is open.
//!
//! | file | content |
//! |---|---|
//! | `settings.rs`, `token.rs` | where to listen, who may read, who may change; the refused combinations |
//! | `listen.rs` | connections: limits, TLS, the end |
//! | `guard.rs` | the requests that are answered at all; headers of every answer |
//! | `routes.rs`, `events.rs` | the answer of each path; the event stream |
//! | `plain.rs` | texts for other programs, such as metrics |
//! | `follow.rs` | polls the volumes, and keeps a curve of each |
//! | `assets/` | the page, without libraries and without requests to other servers |

#![forbid(unsafe_code)]

mod events;
mod follow;
mod guard;
mod listen;
mod peers;
mod plain;
mod routes;
mod served;
mod settings;
mod socket;
mod token;

pub use listen::WebServer;
pub use plain::{Text, TextServer, Texts, local_address};
pub use settings::{Address, Settings};
pub use socket::SocketFile;
pub use token::token;

use serde_json::Value;

/// A volume in the list.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Listed {
    /// Its unique id in requests.
    pub id: String,
    /// Its name for display.
    pub name: String,
    /// One word, such as `serving`.
    pub state: String,
    /// A remark for display.
    pub note: Option<String>,
    /// Whether it is served, so that it can be polled.
    pub served: bool,
}

/// Questions of pages, in addition to the figures that are sent to them.
#[derive(Clone, Debug, PartialEq)]
pub enum Question {
    /// The placement of extents `from..to`, in at most `bins` cells.
    Map {
        /// First extent.
        from: u64,
        /// The extent after the last one.
        to: u64,
        /// Number of cells, at most [`BINS_MAX`].
        bins: u32,
    },
    /// Recent moves and moves in progress, with the policy's explanation for their extents.
    Moves,
    /// The place of the extent at a byte, and the reason.
    Why {
        /// Offset in the volume.
        offset: u64,
    },
    /// The policy, its current parameters, and the meaning of each.
    Policy,
    /// Sets parameters and knobs, all or none. Values are numbers or names.
    Set(Vec<(String, Value)>),
    /// Replaces the policy by another: `NAME,KEY=VALUE,…`.
    Switch(String),
}

/// Most cells of a map.
pub const BINS_MAX: u32 = 131_072;

/// The source of the figures. Its methods may block, each for a few seconds at most. They are never called on the thread that serves HTTP.
pub trait Source: Send + Sync + 'static {
    /// All volumes.
    fn volumes(&self) -> Vec<Listed>;
    /// The current figures in the form in which the page draws them. The field `point` is an array of numbers with the time first; it is
    /// kept for the curves.
    ///
    /// # Errors
    /// One line that says why there are no figures.
    fn look(&self, volume: &str) -> Result<Value, String>;
    /// Answers a question.
    ///
    /// # Errors
    /// One line that says what is wrong with the question or with the volume.
    fn ask(&self, volume: &str, question: Question) -> Result<Value, String>;
}
