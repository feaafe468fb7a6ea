//! The line of `status` about a member that is being replaced.

use isotherm_answers::{Replacing, ReplacingWaits};

use crate::human::{bytes, time};

/// How far the copy of a member is that is being replaced.
pub fn copied(copy: &Replacing) -> String {
    let left = copy.left_s;
    let left = left.map_or_else(String::new, |t| format!(", about {}", time(t)));
    let slow = match copy.waits_for {
        Some(ReplacingWaits::Turn) => "; requests go first",
        Some(ReplacingWaits::Writes) => "; as much is written to it as is copied (`--rate`)",
        Some(ReplacingWaits::OtherChange) => {
            "; it waits for the end of a recording or another change"
        }
        None => "",
    };
    format!(
        "{} is copied to {}, pass {}: {} of {} left{left}{slow}",
        copy.old,
        copy.new,
        copy.pass,
        bytes(copy.left_bytes),
        bytes(copy.total_bytes)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_in_words() {
        let mut c = Replacing {
            member: 1,
            old: "/dev/a".into(),
            new: "/dev/b".into(),
            total_bytes: 4096,
            copied_bytes: 3072,
            left_bytes: 1024,
            pass: 1,
            left_s: None,
            waits_for: None,
        };
        let text = "/dev/a is copied to /dev/b, pass 1: 1.00 KiB of 4.00 KiB left";
        assert_eq!(copied(&c), text);
        (c.left_s, c.waits_for) = (Some(90.0), Some(ReplacingWaits::Turn));
        let said = copied(&c);
        assert!(
            said.starts_with(text) && said.contains(", about "),
            "{said}"
        );
        assert!(said.ends_with("; requests go first"), "{said}");
        c.waits_for = Some(ReplacingWaits::Writes);
        assert!(copied(&c).contains("--rate"));
    }
}
