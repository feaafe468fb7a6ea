//! The control plane of a served volume: the questions that it answers while it serves, and the socket for them.
//!
//! ```text
//!  command, web, metrics ─► client ══ p/v.sock ══► server ─► live ─► engine's thread (one call per question)
//!                                                              ├──► figures, classes: answers
//!                                                              ├──► health: how the volume is, without the engine's thread
//!                                                              ├──► settings: values that hold after the next start
//!                                                              ├──► data_check: a thread that reads all data
//!                                                              ├──► what_if: shadows of the volume, on a thread of their own
//!                                                              └──► tap: every request, for `record` and the shadows
//! ```
//!
//! Each side sends lines of JSON: a [`Request`], then an [`Answer`]. Lines are bounded and connections are few. The worst that a peer can
//! cause is an error answer. After its answer, `record` continues with [`entry::Entry`]s, and `events` with the bytes of an events file. `check`
//! has several answers.
#![forbid(unsafe_code)]

pub mod atlas;
pub mod change;
pub mod classes;
pub mod classes_kept;
pub mod client;
pub mod closing;
pub mod data_check;
pub mod drives;
pub mod entry;
pub mod failure;
pub mod figures;
pub mod flash;
pub mod fronts;
pub mod health;
pub mod live;
pub mod metrics;
pub mod place;
pub mod replace;
pub mod server;
pub mod settings;
pub mod shadow;
pub mod spare;
pub mod store;
pub mod tap;
pub mod warm;
pub mod what_if;
mod why;

/// Name and version of the serving program.
pub const PROGRAM: &str = concat!("isotherm ", env!("CARGO_PKG_VERSION"));

pub use failure::Failure;
pub use place::socket_path;

use std::io::{self, BufRead, Read};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use warm::WarmAsk;

/// Longest line in bytes that either side accepts.
pub const LINE_MAX: u64 = 1 << 20;

/// A request to a served volume.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "cmd", rename_all = "lowercase", deny_unknown_fields)]
pub enum Request {
    /// Its description and state.
    Status,
    /// All figures.
    Stats,
    /// The place of the extent at a byte, and the reason.
    Why {
        /// Offset in the volume.
        offset: u64,
    },
    /// What other flash or another policy would do.
    WhatIf {
        /// A size of flash to answer for, besides the table.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fast: Option<what_if::FastAsk>,
        /// A policy to answer for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        policy: Option<String>,
    },
    /// `stats` and `status` together, without figures that need a walk over the fastest tier; for callers that ask every second.
    Look,
    /// The placement of extents: see `atlas.rs`.
    Map {
        /// First extent.
        from: u64,
        /// The extent after the last one.
        to: u64,
        /// Most cells.
        cells: u32,
    },
    /// Recent moves and moves in progress.
    Moves,
    /// Changes parameters.
    Set {
        /// Names and values; either all are set or none.
        values: Vec<(String, f64)>,
        /// The same for parameters whose values are names. A parameter that is given several times gets all of the values.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        words: Vec<(String, String)>,
    },
    /// Replaces the policy.
    Policy {
        /// `NAME,KEY=VALUE,…`
        policy: String,
    },
    /// Asks about or changes the classes of data on the volume.
    Classes {
        /// The operation.
        what: ClassesAsk,
    },
    /// Lets the volume grow to the present size of its devices. Requests wait meanwhile.
    Grow,
    /// Replaces a member by another device. A member that holds data is copied first; the answer comes when all of this is done.
    Replace(ReplaceAsk),
    /// Gives up the copy of a member that is being replaced.
    CancelReplace,
    /// Begins to write home what is dirty; `stats` tells how much is left.
    Clean,
    /// Begins to copy data to flash, or ends that; `stats` tells how far it is.
    Warm {
        /// Which data.
        what: WarmAsk,
    },
    /// Writes home what is dirty, and goes on without flash. The answer comes when this is done.
    RemoveFlash,
    /// Gives a volume that has flash one more device. Requests wait meanwhile.
    AddFlash(AddFlashAsk),
    /// Writes home what is dirty, and goes on without this flash device, one of several. The answer comes when this is done.
    RemoveOneFlash {
        /// Its place in the list of members.
        place: usize,
    },
    /// Uses flash in the size that it has now. Requests wait meanwhile.
    ResizeFlash,
    /// A device is to take the place of flash that fails.
    SetSpare {
        /// Its absolute path; without it, none is any more.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        spare: Option<PathBuf>,
    },
    /// Drains, writes a checkpoint and ends. The answer comes when this is done.
    Stop,
    /// Reads all data of the volume. Sends the progress, then the result; it ends if the client leaves.
    Check {
        /// Bytes per second, whether the volume is in use or not. `None`: as fast as the devices allow while they have no other work.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rate: Option<u64>,
        /// Whether to read from sleeping disks.
        #[serde(default)]
        wake: bool,
    },
    /// Sends every request from now on.
    Record,
    /// Sends an events file from now on. The client ends it by closing its writing side, and reads to the end.
    Events {
        /// The recording ends by itself after this many bytes.
        limit: u64,
    },
}

/// A device that becomes flash.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AddFlashAsk {
    /// The device or file, as an absolute path.
    pub new: PathBuf,
    /// Bytes of a file that does not exist yet, or of the part of the device to use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Whether to overwrite data on the device.
    #[serde(default)]
    pub force: bool,
}

/// A member to be replaced.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReplaceAsk {
    /// The new device or file, as an absolute path.
    pub new: PathBuf,
    /// The place of the member in the list of members, or its absolute path; without it, the one that is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
    /// Bytes of a file that does not exist yet, or of the part of the device to use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Whether to begin with an empty device although the member is present.
    #[serde(default)]
    pub empty: bool,
    /// Whether to overwrite data on the new device.
    #[serde(default)]
    pub force: bool,
    /// Only if the member is missing or was removed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub only_free: bool,
    /// Bytes of a member to copy per second, whether the volume is in use or not. `None`: as fast as the devices allow while they have no
    /// other work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<u64>,
}

/// An operation on a volume's classes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum ClassesAsk {
    /// All figures.
    Show,
    /// Registers the classes of ranges on behalf of a source.
    Say {
        /// The source: `ranges`, `database`, `files`.
        source: String,
        /// Whether to forget the ranges that the source registered before.
        anew: bool,
        /// First byte, bytes, class. Only whole blocks of 4 KiB count.
        ranges: Vec<(u64, u64, u8)>,
    },
    /// Switches a source on or off: `front-end` and the sources above, and `layout`.
    Switch {
        /// The source.
        source: String,
        /// Whether it is asked.
        on: bool,
    },
    /// Promises bandwidth, latency or a share to classes.
    Promise {
        /// `CLASSES+KEY=VALUE…` and `depth=N`.
        rows: Vec<String>,
        /// Whether to forget earlier promises.
        anew: bool,
    },
    /// Reads the file systems on the volume again.
    Again,
    /// The ranges of one class in order, without class 0: as many as fit into an answer.
    Ranges {
        /// The byte from which to list.
        from: u64,
    },
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    /// The result.
    Ok(Value),
    /// One line that says what is wrong.
    Error(String),
}

/// The answer before a stream of data.
#[derive(Serialize)]
struct Begins {
    stream: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    entry_bytes: Option<usize>,
}

/// See [`Begins`].
fn begins(stream: &'static str, entry_bytes: Option<usize>) -> Answer {
    Answer::Ok(isotherm_answers::json(&Begins {
        stream,
        entry_bytes,
    }))
}

/// `p/v` with a suffix. A name like `v.1` keeps its dot.
pub fn beside(volume: &Path, suffix: &str) -> PathBuf {
    let mut name = volume.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Reads one line without its line feed; `None` at the end of the stream.
///
/// # Errors
/// The line is longer than [`LINE_MAX`], or the stream fails or ends within it.
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

/// Longest path that fits into a socket address, including the terminating zero.
const SUN_PATH_MAX: usize = 107;

/// Calls `f` with a name for `path` that fits into a socket address. If the path is too long, the name goes through the descriptor of the
/// directory.
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
        let check = Request::Check {
            rate: None,
            wake: false,
        };
        assert_eq!(text(&check), r#"{"cmd":"check","wake":false}"#);
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
        assert_eq!(text(&Request::Grow), r#"{"cmd":"grow"}"#);
        let short = r#"{"cmd":"replace","new":"/dev/x"}"#;
        let replace = serde_json::from_str::<Request>(short).expect("the rest has defaults");
        assert_eq!(
            text(&replace),
            r#"{"cmd":"replace","new":"/dev/x","empty":false,"force":false}"#
        );
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
