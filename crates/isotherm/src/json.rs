//! `--json[=FILE]`: the destination of figures.

use std::io::Write;
use std::path::{Path, PathBuf};

use isotherm_words::printable::{printable_json, printable_lines};
use serde::Serialize;

use crate::Failure;

/// Commands for which `--json OUT`, as two words, may name a file.
const TWO_WORDS: [&str; 10] = [
    "demo",
    "sim",
    "compare",
    "sweep",
    "trace",
    "record",
    "reproduce",
    "cost",
    "plan",
    "replay-events",
];

/// The option that every command with figures has.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct JsonArg {
    /// Print JSON instead of text, to standard output or to FILE
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    pub json: Option<PathBuf>,
}

impl JsonArg {
    /// Whether JSON goes to standard output.
    pub fn is_stdout(&self) -> bool {
        self.json.as_deref() == Some(Path::new("-"))
    }

    /// Prints `value` as JSON if it was requested, else `text`.
    ///
    /// # Errors
    /// The file cannot be written; an earlier file of that name is then unchanged.
    pub fn print<T: Serialize>(
        &self,
        value: &T,
        text: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        match &self.json {
            None => to_stdout(&text()),
            Some(path) => {
                let json = serde_json::to_string_pretty(value).map_err(|e| {
                    Failure::failed(format!("cannot write the result as JSON: {e}"))
                })?;
                if path.as_os_str() == "-" {
                    to_stdout(&(printable_json(&json) + "\n"))
                } else {
                    to_file(path, json + "\n")
                }
            }
        }
    }
}

/// Prints; what a terminal would obey is shown instead. A reader that has closed the pipe is not an error.
///
/// # Errors
/// Standard output cannot be written.
pub fn to_stdout(text: &str) -> Result<(), Failure> {
    is_read(text).map(|_| ())
}

/// As [`to_stdout`]. Returns false if the reader has closed the pipe, so that callers that print repeatedly can end.
///
/// # Errors
/// Standard output cannot be written.
pub fn is_read(text: &str) -> Result<bool, Failure> {
    let text = printable_lines(text);
    let mut out = std::io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    match written {
        // The reader, for example `| head`, has closed the pipe.
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        other => other
            .map(|()| true)
            .map_err(|e| Failure::file(Path::new("standard output"), "write", &e)),
    }
}

/// Writes a file completely or not at all, so that readers never see half a result.
///
/// # Errors
/// The file cannot be written; an earlier file of that name is then unchanged.
pub fn to_file(path: &Path, text: impl AsRef<[u8]>) -> Result<(), Failure> {
    let text = text.as_ref();
    let failed = |e: &std::io::Error| Failure::file(path, "write", e);
    let written = if path.metadata().is_ok_and(|m| !m.is_file() && !m.is_dir()) {
        // A device or a pipe cannot be replaced, but it can be written to.
        let opened = std::fs::File::options().write(true).open(path);
        opened.and_then(|mut f| f.write_all(text))
    } else {
        isotherm_paths::replace_behind_links(path, 0o644, |f| f.write_all(text))
    };
    written.map_err(|e| failed(&e))
}

/// `--json OUT` as two words: returns `args` with the two words joined, if that is the meaning.
///
/// The same words can also mean JSON on standard output and one more argument. So the joined form must parse (`parses`), and OUT must not
/// be a file with anything but JSON in it: a result never overwrites a trace.
pub fn join_two_words(args: &[String], parses: impl Fn(&[String]) -> bool) -> Option<Vec<String>> {
    let command = args.get(1)?;
    let at = args.iter().position(|a| a == "--json")?;
    let out = args
        .get(at + 1)
        .filter(|o| *o == "-" || !o.starts_with('-'))?;
    if !TWO_WORDS.contains(&command.as_str()) && out != "-"
        || args[..at].iter().any(|a| a == "--")
        || !may_replace(Path::new(out))
    {
        return None;
    }
    let mut joined = args.to_vec();
    joined[at] = format!("--json={out}");
    joined.remove(at + 1);
    parses(&joined).then_some(joined)
}

fn may_replace(path: &Path) -> bool {
    use std::io::Read;
    let Ok(meta) = path.metadata() else {
        return true;
    };
    if meta.is_dir() {
        return false;
    }
    if !meta.is_file() {
        return true;
    }
    let mut head = [0; 64];
    let Ok(n) = std::fs::File::open(path).and_then(|mut f| f.read(&mut head)) else {
        return false;
    };
    head[..n]
        .iter()
        .find(|b| !b.is_ascii_whitespace())
        .is_none_or(|b| matches!(b, b'{' | b'['))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn two_words_are_joined_only_where_a_file_is_meant() {
        let join = |line: &str| join_two_words(&words(line), |_| true).map(|w| w.join(" "));
        assert_eq!(
            join("isotherm sim t --json out.json"),
            Some("isotherm sim t --json=out.json".into())
        );
        assert_eq!(join("isotherm sim t --json"), None);
        assert_eq!(join("isotherm sim --json --policy lru t"), None);
        assert_eq!(join("isotherm status --json v"), None);
        assert_eq!(
            join_two_words(&words("isotherm sim --json t"), |_| false),
            None
        );
    }

    #[test]
    fn a_trace_is_never_taken_for_the_result() {
        let dir = tempfile::tempdir().expect("a directory");
        let trace = dir.path().join("t");
        std::fs::write(&trace, "0,1,2\n").expect("written");
        let args = [
            "isotherm",
            "sim",
            "a",
            "--json",
            trace.to_str().expect("text"),
        ]
        .map(str::to_owned);
        assert_eq!(join_two_words(&args, |_| true), None);
        std::fs::write(&trace, "{}\n").expect("written");
        assert!(join_two_words(&args, |_| true).is_some());
    }
}
