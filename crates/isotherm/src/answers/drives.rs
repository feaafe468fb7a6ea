//! A drive under a member, by its own account.

use isotherm_answers::Drive;
use isotherm_words::printable::printable;

use crate::human::ago;

/// Model, wear and temperature, as far as the drive states them.
pub(crate) fn figures(drive: &Drive) -> Vec<String> {
    let used = drive
        .used_percent
        .map(|n| format!("{n} % of the write endurance used"));
    let warm = drive.temperature_c.map(|t| format!("{t} °C"));
    // A drive may state anything as its model.
    let model = drive.model.as_deref().map(printable);
    [model, used, warm].into_iter().flatten().collect()
}

/// The line of `status`; `None` if the drive has said nothing.
pub(super) fn row(drive: &Drive) -> Option<String> {
    let mut parts = figures(drive);
    parts.extend(drive.complaints());
    parts.extend(drive.asleep.then(|| "asleep".to_owned()));
    let age = drive
        .age_s
        .filter(|_| drive.asleep || drive.not_known.is_some());
    parts.extend(age.map(|s| format!("as of {}", ago(s))));
    (!parts.is_empty()).then(|| {
        super::line(
            "  drive",
            &format!("{}, {}", drive.device, parts.join(", ")),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drive_has_a_line_if_it_has_said_something() {
        let mut drive = Drive {
            device: "/dev/sda".into(),
            not_known: Some("permission denied".into()),
            ..Drive::default()
        };
        assert_eq!(row(&drive), None);
        drive.model = Some("A\nB".into());
        (drive.used_percent, drive.pending_sectors, drive.age_s) = (Some(7), Some(2), Some(60.0));
        let said = row(&drive).expect("a line");
        assert!(
            said.contains("7 % of the write endurance used, 2 sectors that cannot be read, as of"),
            "{said}"
        );
        assert_eq!(said.lines().count(), 1);
        drive.not_known = None;
        assert!(!row(&drive).expect("a line").contains("as of"));
    }
}
