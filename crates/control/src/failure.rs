//! How a command fails: one line and an exit code.

use std::fmt;
use std::path::Path;

/// Why a command did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Called wrongly: exit code 2.
    Usage(String),
    /// Anything else: exit code 1.
    Failed(String),
    /// The command did its work and the answer is bad (a damaged volume): exit code 1, and what was to be said is said.
    Bad,
}

impl Failure {
    /// A wrong call.
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

    /// What cannot be done with a file, and the system's reason.
    pub fn file(path: &Path, what: &str, error: &std::io::Error) -> Failure {
        Failure::Failed(format!(
            "{}: cannot {what}: {}",
            path.display(),
            reason(error)
        ))
    }
}

/// The system's reason without the number that Rust appends.
pub fn reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    match text.split_once(" (os error") {
        Some((words, _)) => words.to_lowercase(),
        None => text,
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // One line, whatever a library put into its message.
            Failure::Usage(text) | Failure::Failed(text) => {
                for (i, line) in text
                    .lines()
                    .map(str::trim)
                    .filter(|l| !l.is_empty())
                    .enumerate()
                {
                    if i > 0 {
                        f.write_str("; ")?;
                    }
                    f.write_str(line)?;
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
    }

    #[test]
    fn reasons_carry_no_number() {
        let e = std::io::Error::from_raw_os_error(13);
        assert_eq!(reason(&e), "permission denied");
    }
}
