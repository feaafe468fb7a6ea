//! The line of `status` about a member that is being replaced.

use serde_json::Value;

use crate::human::{bytes, time};
use crate::overview::int;

/// How far the copy of a member is that is being replaced.
pub fn copied(copy: &Value) -> String {
    let text = |key: &str| copy[key].as_str().unwrap_or("-");
    let left = copy["left_s"].as_f64();
    let left = left.map_or_else(String::new, |t| format!(", about {}", time(t)));
    let slow = match copy["waits_for"].as_str() {
        Some("turn") => "; requests go first",
        Some("writes") => "; as much is written to it as is copied (`--rate`)",
        Some("other change") => "; it waits for the end of a recording or another change",
        _ => "",
    };
    format!(
        "{} is copied to {}, pass {}: {} of {} left{left}{slow}",
        text("old"),
        text("new"),
        int(&copy["pass"]),
        bytes(int(&copy["left_bytes"])),
        bytes(int(&copy["total_bytes"]))
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn copies_in_words() {
        let mut c = json!({
            "old": "/dev/a", "new": "/dev/b", "pass": 1, "left_bytes": 1024, "total_bytes": 4096, "left_s": null, "waits_for": null
        });
        let text = "/dev/a is copied to /dev/b, pass 1: 1.00 KiB of 4.00 KiB left";
        assert_eq!(copied(&c), text);
        (c["left_s"], c["waits_for"]) = (json!(90.0), json!("turn"));
        let said = copied(&c);
        assert!(
            said.starts_with(text) && said.contains(", about "),
            "{said}"
        );
        assert!(said.ends_with("; requests go first"), "{said}");
        c["waits_for"] = json!("writes");
        assert!(copied(&c).contains("--rate"));
    }
}
