//! A progress line of a run on standard error, if that is a terminal.

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
