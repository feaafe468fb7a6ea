//! The line of `status` about checks of the data.

use isotherm_answers::DataCheck;

use crate::human::{ago, bytes};

/// Bytes that are read, or the outcome of the last check; `now` is in seconds since 1970. `None`: the data was never checked.
pub(super) fn checked(checks: &DataCheck, now: u64) -> Option<String> {
    if let Some(running) = &checks.running {
        return Some(format!(
            "all data is being read: {} of {}",
            bytes(running.read_bytes),
            bytes(running.total_bytes)
        ));
    }
    let last = checks.last.as_ref()?;
    let age = ago(now.saturating_sub(last.time_unix_s) as f64);
    let outcome = if last.ok {
        "no damage found"
    } else {
        "DAMAGED: `isotherm check --data` names the places"
    };
    Some(format!("all data was read {age}, {outcome}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_answers::{Checking, LastCheck};

    #[test]
    fn checks_in_words() {
        let mut c = DataCheck {
            running: None,
            last: None,
        };
        assert_eq!(checked(&c, 1000), None);
        let mut last = LastCheck {
            ok: true,
            time_unix_s: 400,
            read_bytes: 0,
            lost_bytes: 0,
            differing_bytes: 0,
            not_compared_bytes: 0,
            bad_places: 0,
        };
        c.last = Some(last.clone());
        let text = "all data was read 10 min ago, no damage found";
        assert_eq!(checked(&c, 1000).as_deref(), Some(text));
        let text = "all data was read just now, no damage found";
        assert_eq!(checked(&c, 400).as_deref(), Some(text));
        // The clock was set back.
        assert!(checked(&c, 100).is_some_and(|t| t.contains("no damage")));
        last.ok = false;
        c.last = Some(last);
        assert!(checked(&c, 1000).is_some_and(|t| t.contains("DAMAGED")));
        c.running = Some(Checking {
            read_bytes: 1024,
            total_bytes: 4096,
            waits_for: None,
            stalled: None,
        });
        let text = "all data is being read: 1.00 KiB of 4.00 KiB";
        assert_eq!(checked(&c, 1000).as_deref(), Some(text));
    }
}
