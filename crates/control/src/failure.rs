//! How a command fails: with one line of text and an exit code.

use std::fmt;
use std::path::Path;

pub use isotherm_paths::reason;
use isotherm_paths::without_numbers;
use isotherm_words::printable::printable_lines;

/// The reason why a command failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Wrong usage: exit code 2.
    Usage(String),
    /// Anything else: exit code 1.
    Failed(String),
    /// The command did its work and found a problem (a damaged volume): exit code 1. Its output already describes it.
    Bad,
}

impl Failure {
    /// Wrong usage.
    pub fn usage(text: impl Into<String>) -> Failure {
        Failure::Usage(text.into())
    }

    /// Any other failure.
    pub fn failed(text: impl Into<String>) -> Failure {
        Failure::Failed(text.into())
    }

    /// The exit code.
    pub fn code(&self) -> u8 {
        match self {
            Failure::Usage(_) => 2,
            Failure::Failed(_) | Failure::Bad => 1,
        }
    }

    /// An operation on a file that failed, with the system's reason.
    pub fn file(path: &Path, what: &str, error: &std::io::Error) -> Failure {
        Failure::Failed(format!(
            "{}: cannot {what}: {}",
            path.display(),
            reason(error)
        ))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // The message is one line, even if a library's message has several.
            Failure::Usage(text) | Failure::Failed(text) => {
                for (i, line) in without_numbers(text)
                    .lines()
                    .map(str::trim)
                    .filter(|l| !l.is_empty())
                    .enumerate()
                {
                    if i > 0 {
                        f.write_str("; ")?;
                    }
                    f.write_str(&printable_lines(line))?;
                }
                Ok(())
            }
            Failure::Bad => Ok(()),
        }
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_one_line() {
        assert_eq!(Failure::failed("a:\n  b\n\nc").to_string(), "a:; b; c");
        let hostile = Failure::usage("`\u{1b}[2J\r`: no name").to_string();
        assert_eq!(hostile, "`\\u{1b}[2J\\r`: no name");
    }

    #[test]
    fn the_number_of_a_system_error_is_not_shown() {
        let e = std::io::Error::from_raw_os_error(13);
        let shown = Failure::failed(format!("a: {e}")).to_string();
        assert_eq!(shown, "a: Permission denied");
    }
}
