//! The log of a serving process, as structured events (`tracing`): under systemd they go to the journal with fields, else to standard error
//! as lines.
//!
//! Nothing important is only in the log: failures, absent members, errors and losses are in `status`, `stats` and the metrics as well.
//! `ISOTHERM_LOG` (`error`, `warn`, `info`, `debug`, `trace`, `off`) sets the level; the default is `info`. Each place in the program logs
//! at most 20 events per minute, then reports how many it suppressed.

use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::io::Write as _;
use std::os::fd::AsFd;
use std::str::FromStr;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use isotherm_paths::without_numbers;
use isotherm_words::printable::printable_lines;
use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Filter, Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, reload};

/// Most events of one place in the program within [`WINDOW`].
const EVENTS_MAX: u32 = 20;
const WINDOW: Duration = Duration::from_secs(60);

/// The journal's layer, to be told which volume this process serves.
static JOURNAL: OnceLock<reload::Handle<tracing_journald::Layer, Registry>> = OnceLock::new();

/// From now on events go to the journal, or to standard error.
///
/// # Errors
/// `ISOTHERM_LOG` is not a level.
pub fn start() -> Result<(), String> {
    let level = match std::env::var("ISOTHERM_LOG") {
        Ok(text) => LevelFilter::from_str(&text).map_err(|_| {
            format!("ISOTHERM_LOG={text}: write error, warn, info, debug, trace or off")
        })?,
        Err(_) => LevelFilter::INFO,
    };
    let chatter = RateLimit {
        level,
        said: Mutex::default(),
    };
    let registry = tracing_subscriber::registry();
    // A test that runs several commands in one process has already set it; this error is harmless.
    let _ = match is_journal().then(|| journal(None)) {
        Some(Ok(layer)) => {
            let (layer, handle) = reload::Layer::new(layer);
            let _ = JOURNAL.set(handle);
            registry.with(layer.with_filter(chatter)).try_init()
        }
        Some(Err(_)) | None => registry.with(Lines.with_filter(chatter)).try_init(),
    };
    Ok(())
}

/// From now on each event in the journal has the field `ISOTHERM_VOLUME`. Without a journal this does nothing.
pub fn is_about(volume: &str) {
    if let Some(handle) = JOURNAL.get()
        && let Ok(layer) = journal(Some(volume))
    {
        // Fails only if the subscriber is gone: then there is no log either.
        let _ = handle.reload(layer);
    }
}

fn journal(volume: Option<&str>) -> std::io::Result<tracing_journald::Layer> {
    Ok(tracing_journald::layer()?
        .with_syslog_identifier("isotherm".to_owned())
        .with_field_prefix(Some("ISOTHERM".to_owned()))
        .with_custom_fields(volume.map(|v| ("ISOTHERM_VOLUME", v))))
}

/// Whether standard error is connected to the journal. systemd tells the process which stream it is.
fn is_journal() -> bool {
    let Ok(said) = std::env::var("JOURNAL_STREAM") else {
        return false;
    };
    let own = rustix::fs::fstat(std::io::stderr().as_fd());
    own.is_ok_and(|s| said == format!("{}:{}", s.st_dev, s.st_ino))
}

/// The number of events of each place.
struct RateLimit {
    level: LevelFilter,
    said: Mutex<HashMap<Identifier, Window>>,
}

struct Window {
    since: Instant,
    times: u32,
}

impl RateLimit {
    /// Whether this place may log now, and the number of events that were suppressed in the previous window.
    fn may(&self, place: Identifier, now: Instant) -> (bool, u32) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let s = said.entry(place).or_insert(Window {
            since: now,
            times: 0,
        });
        let mut quiet = 0;
        if now.duration_since(s.since) >= WINDOW {
            quiet = s.times.saturating_sub(EVENTS_MAX);
            (s.since, s.times) = (now, 0);
        }
        s.times += 1;
        (s.times <= EVENTS_MAX, quiet)
    }
}

impl<S: Subscriber> Filter<S> for RateLimit {
    fn enabled(&self, meta: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        *meta.level() <= self.level
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        // What libraries say through `log` is for their developers: the FUSE library calls each end of a mount a short read. Only a build with
        // other programs hears of it at all.
        if event.metadata().target() == "log" {
            return false;
        }
        let (may, quiet) = self.may(event.metadata().callsite(), Instant::now());
        if quiet > 0 {
            line(
                Level::WARN,
                &format!("{quiet} messages like the next were left out"),
            );
        }
        may
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.level)
    }
}

/// Lines for readers: the message, as other commands print it. The fields are in the journal only.
struct Lines;

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut message = Message(String::new());
        event.record(&mut message);
        line(*event.metadata().level(), &message.0);
    }
}

/// Prints a line to standard error.
pub fn note(text: fmt::Arguments<'_>) {
    // In one call: standard output may be the same pipe, and `ready` a line of its own there.
    let line = format!("{}\n", printable_lines(&without_numbers(&text.to_string())));
    // The parent process may not read the output.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

fn line(level: Level, text: &str) {
    let mark = match level {
        Level::DEBUG => "debug: ",
        Level::TRACE => "trace: ",
        _ => "",
    };
    note(format_args!("isotherm: {mark}{text}"));
}

struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            let _ = write!(self.0, "{value:?}"); // writing to a String cannot fail
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_libraries_log_for_themselves_is_not_shown() {
        struct Count(std::sync::Arc<Mutex<u32>>);
        impl<S: Subscriber> Layer<S> for Count {
            fn on_event(&self, _: &Event<'_>, _: Context<'_, S>) {
                *self.0.lock().expect("not poisoned") += 1;
            }
        }
        let count = std::sync::Arc::new(Mutex::new(0));
        let chatter = RateLimit {
            level: LevelFilter::INFO,
            said: Mutex::default(),
        };
        let layer = Count(std::sync::Arc::clone(&count)).with_filter(chatter);
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            tracing::error!(target: "log", "Short read of FUSE request");
            tracing::error!("the disk fails");
        });
        assert_eq!(*count.lock().expect("not poisoned"), 1);
    }

    #[test]
    fn each_place_is_limited_and_reports_what_it_suppressed() {
        struct Here;
        impl tracing::callsite::Callsite for Here {
            fn set_interest(&self, _: tracing::subscriber::Interest) {}
            fn metadata(&self) -> &Metadata<'_> {
                unreachable!("never asked")
            }
        }
        static ONE: Here = Here;
        let chatter = RateLimit {
            level: LevelFilter::INFO,
            said: Mutex::default(),
        };
        let now = Instant::now();
        let place = Identifier(&ONE);
        let spoken = (0..50)
            .filter(|_| chatter.may(place.clone(), now).0)
            .count();
        assert_eq!(spoken, EVENTS_MAX as usize);
        assert_eq!(chatter.may(place.clone(), now + WINDOW), (true, 30));
        assert_eq!(chatter.may(place, now + WINDOW), (true, 0));
    }
}
