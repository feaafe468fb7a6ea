//! The control plane of a served volume: what can be asked of it while it serves, and over which socket.
//!
//! ```text
//!  command, web, metrics ─► client ══ p/v.sock ══► server ─► live ─► engine's thread (one visit a question)
//!                                                              ├──► figures, classes: answers
//!                                                              ├──► settings: what holds after the next start
//!                                                              └──► tap: every request, for `record`
//! ```
//!
//! Each side sends lines of JSON: a [`Request`], then an [`Answer`]. Lines are bounded, connections are few, and nothing that
//! a peer sends can do more than get an error back. `record` goes on after its answer with [`entry::Entry`]s, `events`
//! with the bytes of an events file.
#![forbid(unsafe_code)]

pub mod atlas;
pub mod classes;
pub mod classes_kept;
pub mod client;
pub mod entry;
pub mod failure;
pub mod figures;
pub mod fronts;
pub mod live;
pub mod metrics;
pub mod place;
pub mod server;
pub mod settings;
pub mod tap;

/// Which program serves.
pub const PROGRAM: &str = concat!("isotherm ", env!("CARGO_PKG_VERSION"));

pub use failure::Failure;
pub use place::socket_path;

use std::io::{self, BufRead, Read};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Longest line either side accepts, bytes.
pub const LINE_MAX: u64 = 1 << 20;

/// What can be asked of a served volume.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "cmd", rename_all = "lowercase", deny_unknown_fields)]
pub enum Request {
    /// What it is and how it does.
    Status,
    /// All figures.
    Stats,
    /// Where the extent at a byte is, and why.
    Why {
        /// Byte of the volume.
        offset: u64,
    },
    /// `stats` and `status` together, without what takes a walk over the fastest tier: for whoever asks every second.
    Look,
    /// What lies where: see `atlas.rs`.
    Map {
        /// First extent.
        from: u64,
        /// The one behind the last.
        to: u64,
        /// Cells at most.
        cells: u32,
    },
    /// Moves that ended lately and those under way.
    Moves,
    /// Change parameters.
    Set {
        /// Names and values; all or none are set.
        values: Vec<(String, f64)>,
        /// The same for parameters whose values are names; one that is there several times has all of them.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        words: Vec<(String, String)>,
    },
    /// Let another policy take over.
    Policy {
        /// `NAME,KEY=VALUE,…`
        policy: String,
    },
    /// What kind of data the volume holds.
    Classes {
        /// What to do.
        what: ClassesAsk,
    },
    /// Drain, checkpoint, end; answered when done.
    Stop,
    /// Send every request from now on.
    Record,
    /// Send an events file from now on. The asker ends it by closing its writing side, and reads on to the end.
    Events {
        /// Bytes after which it ends by itself.
        limit: u64,
    },
}

/// What can be asked of a volume's classes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum ClassesAsk {
    /// All figures.
    Show,
    /// A source says what ranges are.
    Say {
        /// Which: `ranges`, `database`, `files`.
        source: String,
        /// Forget what it said before.
        anew: bool,
        /// First byte, bytes, class; whole blocks of 4 KiB count.
        ranges: Vec<(u64, u64, u8)>,
    },
    /// Ask a source, or do not: `front-end` and those above, and `layout`.
    Switch {
        /// Which.
        source: String,
        /// Ask it.
        on: bool,
    },
    /// Promise classes bandwidth, latency or a share.
    Promise {
        /// `CLASSES+KEY=VALUE…` and `depth=N`.
        rows: Vec<String>,
        /// Forget what was promised before.
        anew: bool,
    },
    /// Look at the file systems on the volume anew.
    Again,
    /// Ranges of one class, in order, classes 0 left out: as many as fit an answer.
    Ranges {
        /// From this byte on.
        from: u64,
    },
}

/// What comes back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    /// The result.
    Ok(Value),
    /// One line: what is wrong.
    Error(String),
}

/// `p/v` with something behind its name; `v.1` keeps its dot.
pub fn beside(volume: &Path, suffix: &str) -> PathBuf {
    let mut name = volume.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// One line without its end; `None` at the end of the stream.
///
/// # Errors
/// The line is longer than [`LINE_MAX`], or the stream fails or ends inside it.
pub fn read_line(from: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    from.take(LINE_MAX).read_until(b'\n', &mut line)?;
    match line.pop() {
        None => Ok(None),
        Some(b'\n') => Ok(Some(line)),
        Some(_) if line.len() as u64 + 1 >= LINE_MAX => {
            Err(io::Error::new(io::ErrorKind::InvalidData, "line too long"))
        }
        Some(_) => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Longest path that fits a socket address, with the closing zero.
const SUN_PATH_MAX: usize = 107;

/// Call `f` with a name for `path` that fits a socket address: through the directory's descriptor if the path is too long.
fn with_short_path<T>(path: &Path, f: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    if path.as_os_str().len() <= SUN_PATH_MAX {
        return f(path);
    }
    let dir = std::fs::File::open(path.parent().unwrap_or(Path::new("/")))?;
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    f(&Path::new("/proc/self/fd")
        .join(dir.as_raw_fd().to_string())
        .join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_answers_are_what_the_documents_say() {
        let text = |r: &Request| serde_json::to_string(r).expect("serialises");
        assert_eq!(text(&Request::Stats), r#"{"cmd":"stats"}"#);
        assert_eq!(
            text(&Request::Why { offset: 5 }),
            r#"{"cmd":"why","offset":5}"#
        );
        let set = Request::Set {
            values: vec![("PT".into(), 2.0)],
            words: vec![],
        };
        assert_eq!(text(&set), r#"{"cmd":"set","values":[["PT",2.0]]}"#);
        assert_eq!(serde_json::from_str::<Request>(&text(&set)).ok(), Some(set));
        let set = Request::Set {
            values: vec![],
            words: vec![("write-mode".into(), "write-around".into())],
        };
        assert_eq!(
            text(&set),
            r#"{"cmd":"set","values":[],"words":[["write-mode","write-around"]]}"#
        );
        assert_eq!(serde_json::from_str::<Request>(&text(&set)).ok(), Some(set));
        for hostile in [
            "",
            "{}",
            r#"{"cmd":"rm"}"#,
            r#"{"cmd":"why"}"#,
            r#"{"cmd":"why","offset":-1}"#,
        ] {
            assert!(
                serde_json::from_str::<Request>(hostile).is_err(),
                "{hostile}"
            );
        }
    }

    #[test]
    fn lines_are_bounded() {
        let mut long = io::BufReader::new(io::repeat(b'x').take(LINE_MAX * 4));
        assert_eq!(
            read_line(&mut long).expect_err("too long").kind(),
            io::ErrorKind::InvalidData
        );
        let mut cut = &b"{\"cmd\""[..];
        assert_eq!(
            read_line(&mut cut).expect_err("cut").kind(),
            io::ErrorKind::UnexpectedEof
        );
        let mut two = &b"a\n\n"[..];
        let mut next = || read_line(&mut two).ok().flatten();
        assert_eq!(
            [next(), next(), next()],
            [Some(b"a".to_vec()), Some(vec![]), None]
        );
    }

    #[test]
    fn names_beside_a_volume_keep_its_dots() {
        assert_eq!(socket_path(Path::new("p/v.1")), Path::new("p/v.1.sock"));
    }
}
