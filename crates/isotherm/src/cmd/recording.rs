//! The common parts of recordings: their end, and errors.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{self, AtomicBool};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};

use crate::Failure;

/// The conditions that end a recording.
pub(crate) struct End {
    stopped: Arc<AtomicBool>,
    limit: Option<Duration>,
    until: Option<Instant>,
}

impl End {
    /// SIGINT and SIGTERM end the recording, and so does the time limit, which counts from [`End::begin`].
    ///
    /// # Errors
    /// The system cannot watch for signals.
    pub(crate) fn after(seconds: Option<u64>) -> Result<End, Failure> {
        let stopped = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&stopped))
                .map_err(|e| Failure::failed(format!("cannot watch for signals: {e}")))?;
        }
        Ok(End {
            stopped,
            limit: seconds.map(Duration::from_secs),
            until: None,
        })
    }

    /// The recording begins now.
    pub(crate) fn begin(&mut self) {
        self.until = self.limit.map(|l| Instant::now() + l);
    }

    /// Whether the recording should end.
    pub(crate) fn is_due(&self) -> bool {
        self.stopped.load(atomic::Ordering::Relaxed)
            || self.until.is_some_and(|u| Instant::now() >= u)
    }
}

/// The error for an output file that exists.
pub(crate) fn exists(out: &Path) -> Failure {
    Failure::failed(format!(
        "{}: exists already: choose another name",
        out.display()
    ))
}
