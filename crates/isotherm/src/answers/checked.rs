//! The line of `status` about checks of the data.

use serde_json::Value;

use crate::human::{ago, bytes};
use crate::overview::int;

/// Bytes that are read, or the outcome of the last check; `now` is in seconds since 1970. `None`: the data was never checked.
pub(super) fn checked(checks: &Value, now: u64) -> Option<String> {
    let running = &checks["running"];
    if running.is_object() {
        return Some(format!(
            "all data is being read: {} of {}",
            bytes(int(&running["read_bytes"])),
            bytes(int(&running["total_bytes"]))
        ));
    }
    let last = &checks["last"];
    let then = last["time_unix_s"].as_u64()?;
    let age = ago(now.saturating_sub(then) as f64);
    let outcome = if last["ok"].as_bool() == Some(true) {
        "no damage found"
    } else {
        "DAMAGED: `isotherm check --data` names the places"
    };
    Some(format!("all data was read {age}, {outcome}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn checks_in_words() {
        let mut c = json!({"running": null, "last": null});
        assert_eq!(checked(&c, 1000), None);
        assert_eq!(checked(&Value::Null, 1000), None);
        c["last"] = json!({"ok": true, "time_unix_s": 400});
        let text = "all data was read 10 min ago, no damage found";
        assert_eq!(checked(&c, 1000).as_deref(), Some(text));
        let text = "all data was read just now, no damage found";
        assert_eq!(checked(&c, 400).as_deref(), Some(text));
        // The clock was set back.
        assert!(checked(&c, 100).is_some_and(|t| t.contains("no damage")));
        c["last"]["ok"] = json!(false);
        assert!(checked(&c, 1000).is_some_and(|t| t.contains("DAMAGED")));
        c["running"] = json!({"read_bytes": 1024, "total_bytes": 4096});
        let text = "all data is being read: 1.00 KiB of 4.00 KiB";
        assert_eq!(checked(&c, 1000).as_deref(), Some(text));
    }
}
