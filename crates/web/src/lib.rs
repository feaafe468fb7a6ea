//! A served volume in a browser.
//!
//! ```text
//!  volume ◄─ Source::look, once a second ─ follower (a thread a volume) ─► history ─► event streams ─┐
//!         ◄─ Source::ask, when a page wants a map or an explanation ──────────────────────────────── ├─ pages
//!                                                             assets, embedded in the program ───────┘
//! ```
//! This crate knows HTTP, who may ask, and how to draw; what the figures mean is known by whoever implements [`Source`]. It
//! runs on a thread of its own. However many pages are open, a volume is looked at once a second; with none open, every five
//! seconds, for the history.
//!
//! | file | answers |
//! |---|---|
//! | `settings.rs`, `token.rs` | where to listen, who may read and who may change; what is refused |
//! | `listen.rs` | connections: limits, TLS, the end |
//! | `guard.rs` | which requests are answered at all; headers of every answer |
//! | `routes.rs`, `events.rs` | what each path answers; the stream of events |
//! | `follow.rs` | looks at volumes, and remembers a curve of each |
//! | `assets/` | the page: no library, no request to anywhere else |

#![forbid(unsafe_code)]

mod events;
mod follow;
mod guard;
mod listen;
mod routes;
mod settings;
mod token;

pub use listen::WebServer;
pub use settings::{Address, Settings};
pub use token::token;

use serde_json::Value;

/// A volume that there is to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// What requests call it; unique.
    pub id: String,
    /// What people call it.
    pub name: String,
    /// One word, such as `serving`.
    pub state: String,
    /// What is to be said of it beside.
    pub note: Option<String>,
    /// It can be looked at: somebody serves it.
    pub served: bool,
}

/// What pages ask beside the figures that they are sent.
#[derive(Clone, Debug, PartialEq)]
pub enum Question {
    /// What lies where: extents `from..to`, in `bins` cells at most.
    Map {
        /// First extent.
        from: u64,
        /// The one behind the last.
        to: u64,
        /// Cells, at most [`BINS_MAX`].
        bins: u32,
    },
    /// Moves that ended lately and those under way, and what the policy says of their extents.
    Moves,
    /// Where the extent at a byte is, and why.
    Why {
        /// Byte of the volume.
        offset: u64,
    },
    /// The policy, its parameters now, and what each means.
    Policy,
    /// Set parameters and knobs, all or none; values are numbers or names.
    Set(Vec<(String, Value)>),
    /// Let another policy take over: `NAME,KEY=VALUE,…`.
    Switch(String),
}

/// Cells of a map at most.
pub const BINS_MAX: u32 = 131_072;

/// Where the figures come from. Its methods may block, each for a few seconds at most; they are never called on the thread that
/// serves HTTP.
pub trait Source: Send + Sync + 'static {
    /// All volumes.
    fn volumes(&self) -> Vec<Listed>;
    /// The figures of a moment, as the page draws them. `point` in it is an array of numbers, time first: what is kept for the
    /// curves.
    ///
    /// # Errors
    /// One line: why there are none.
    fn look(&self, volume: &str) -> Result<Value, String>;
    /// An answer.
    ///
    /// # Errors
    /// One line: what is wrong with the question, or with the volume.
    fn ask(&self, volume: &str, question: Question) -> Result<Value, String>;
}
