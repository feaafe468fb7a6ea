//! A progress line of moved files on standard error, if that is a terminal.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressStyle};

/// The files that a move has reached, in one line.
pub struct Progress(Option<ProgressBar>);

impl Progress {
    /// The line is shown only on a terminal.
    pub fn files() -> Progress {
        if !std::io::stderr().is_terminal() {
            return Progress(None);
        }
        let bar = ProgressBar::no_length();
        if let Ok(style) = ProgressStyle::with_template("{msg} {bar:30} {bytes}/{total_bytes}") {
            bar.set_style(style);
        }
        Progress(Some(bar))
    }
    /// Whether there is a terminal.
    pub fn is_shown(&self) -> bool {
        self.0.is_some()
    }
    /// Shows that this many bytes of a file are copied.
    pub fn file(&self, path: &str, done: u64, all: u64) {
        if let Some(bar) = &self.0 {
            bar.set_message(path.to_owned());
            bar.set_length(all);
            bar.set_position(done);
        }
    }
    /// Removes the line.
    pub fn finish(&self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
