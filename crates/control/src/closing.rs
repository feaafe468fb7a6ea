//! What a volume waits for while it is being closed. A member that hangs can make this last for ever, so it is said.

use std::sync::{PoisonError, mpsc};
use std::time::SystemTime;

use isotherm_answers::{IsStopped, Stopped};
use isotherm_live::vitals::{Unanswered, Vital};
use isotherm_words::printable::printable;

use crate::health::{calendar, count, date};
use crate::live::{End, Live};

/// The operations that a member has not answered, with their numbers.
pub(crate) fn unanswered(u: &Unanswered) -> String {
    let of = [
        (u.reads, "read", "reads"),
        (u.writes, "write", "writes"),
        (u.flushes, "flush", "flushes"),
    ];
    let all: Vec<String> = (of.into_iter().filter(|o| o.0 > 0))
        .map(|(n, one, many)| count(n.into(), one, many))
        .collect();
    all.join(", ")
}

impl Live {
    /// Serving ends from now on: everything is written down, and nothing else is answered.
    pub fn begin_closing(&self) {
        // If it has begun already, the first time counts.
        let _ = self.closing.set(SystemTime::now());
    }

    /// One sentence about the end: since when, and which members it waits for. Does not ask the engine's thread.
    pub fn closing_words(&self) -> String {
        let Some(since) = self.closing.get() else {
            return "the volume is closing".to_owned();
        };
        let since = date(*since);
        let (config, vitals) = (self.config(), self.handle.vitals());
        let silent = |(i, m): (usize, &Vital)| {
            let u = m.unanswered?;
            let path = config.members.get(i).map(|m| m.path.display().to_string());
            Some(format!(
                "{} (member {i}), which has not answered since {} ({})",
                path.unwrap_or_default(),
                date(calendar(u.since)),
                unanswered(&u)
            ))
        };
        let silent: Vec<String> = (vitals.members.iter().enumerate())
            .filter_map(silent)
            .collect();
        if silent.is_empty() {
            return format!("the volume is closing since {since}: it writes everything down");
        }
        // A path may hold anything, and this is one line.
        printable(&format!(
            "the volume is closing since {since}; it waits for {}, and ends when that answers; `kill -KILL {}` ends it without what it still has to write",
            silent.join(", and for "),
            std::process::id()
        ))
    }

    /// Ends serving, and waits for the outcome.
    pub(crate) fn stop(&self) -> Result<Stopped, String> {
        let (outcome, wait) = mpsc::channel();
        let ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        let gone = "the volume is closing already";
        let asked = ends.clone().send(End::Asked(outcome));
        drop(ends);
        asked.map_err(|_| gone.to_owned())?;
        wait.recv().map_err(|_| gone.to_owned())??;
        Ok(Stopped {
            volume: self.volume.to_string_lossy().into_owned(),
            state: IsStopped::Stopped,
        })
    }

    /// Refuses what needs a volume that is served.
    pub(crate) fn refuse_if_closing(&self) -> Result<(), String> {
        match self.closing.get() {
            Some(_) => Err(self.closing_words()),
            None => Ok(()),
        }
    }
}
