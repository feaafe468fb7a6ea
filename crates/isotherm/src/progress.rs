//! A progress line on standard error, if that is a terminal.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use isotherm_lab::sim::Watch;

/// Runs that are shorter than this show nothing.
const SILENT: Duration = Duration::from_millis(500);
const EVERY: Duration = Duration::from_millis(100);

/// Does `work` and shows its progress.
pub fn shown<T>(label: &str, work: impl FnOnce(&Watch) -> T) -> T {
    let watch = Watch::default();
    if !std::io::stderr().is_terminal() {
        return work(&watch);
    }
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let show = scope.spawn(|| follow(label, &watch, &ended));
        let result = work(&watch);
        ended.store(true, Ordering::Release);
        show.thread().unpark();
        result
    })
}

fn follow(label: &str, watch: &Watch, ended: &AtomicBool) {
    std::thread::park_timeout(SILENT);
    if ended.load(Ordering::Acquire) {
        return;
    }
    let bar = ProgressBar::no_length().with_message(label.to_owned());
    let style = "{msg} {bar:30} {human_pos}/{human_len} requests, {per_sec}, {eta} left";
    if let Ok(style) = ProgressStyle::with_template(style) {
        bar.set_style(style);
    }
    while !ended.load(Ordering::Acquire) {
        let total = watch.total.load(Ordering::Relaxed);
        if total > 0 {
            bar.set_length(total);
        }
        bar.set_position(watch.requests.load(Ordering::Relaxed));
        std::thread::park_timeout(EVERY);
    }
    bar.finish_and_clear();
}

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
