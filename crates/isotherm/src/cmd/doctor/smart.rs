//! What the drives under a member report of their own health and wear.

use isotherm_answers::Drive;

use super::{Finding, Level};
use crate::answers::drives::figures;
use crate::smart::{Asked, Smartctl};

/// Endurance that is used up to this percentage is no risk yet.
const WORN: u64 = 80;

/// What a drive reports. `todo` mends what is wrong with it, `forecast` is what the volume itself knows of its wear.
///
/// # Errors
/// Why nothing is known.
pub(super) fn findings(
    smartctl: &Smartctl,
    device: &str,
    (name, todo): (&str, &str),
    forecast: Option<&str>,
) -> Result<Vec<Finding>, String> {
    match smartctl.ask(device) {
        Asked::Known(drive) => Ok(judged(&drive, (name, todo), forecast)),
        Asked::Asleep => Err(format!("{device} sleeps, and is not woken for this")),
        Asked::Unknown(why) => Err(format!("{device}: {why}")),
        Asked::Stuck(_) => Err(format!("{device} hangs: smartctl cannot be ended")),
    }
}

fn judged(drive: &Drive, (name, todo): (&str, &str), forecast: Option<&str>) -> Vec<Finding> {
    let worn = drive.used_percent.filter(|n| *n >= WORN);
    let worn = worn.map(|n| format!("{n} % of its write endurance are used"));
    let all = drive.complaints().into_iter().chain(worn);
    let level = if drive.fails() {
        Level::Wrong
    } else {
        Level::Risk
    };
    let mut found: Vec<Finding> = all
        .map(|what| Finding::new(level, name, format!("{}: {what}", drive.device), todo))
        .collect();
    let mut figures = figures(drive);
    if !figures.is_empty() {
        figures.extend(forecast.map(str::to_owned));
        let what = format!("{}: {}", drive.device, figures.join(", "));
        found.push(Finding::new(Level::Note, name, what, ""));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::smart::tests::{FAILS, NVME, SATA, STANDBY, program};

    fn said(text: &str, code: i32) -> Result<String, String> {
        let (_dir, at) = program(&format!("cat <<'END'\n{text}\nEND\nexit {code}"));
        let smartctl = Smartctl::at(&[&at]).expect("taken");
        let found = findings(&smartctl, "/dev/x", ("m", "T"), Some("lasts 3 years"))?;
        Ok(super::super::tests::words(&found))
    }

    #[test]
    fn a_drive_is_judged_by_what_it_says() {
        let note =
            "note: /dev/x: Example 980, 7 % of the write endurance used, 41 °C, lasts 3 years";
        assert_eq!(said(NVME, 0).as_deref(), Ok(note));
        let worn = said(&NVME.replace(":7,", ":80,"), 0).expect("known");
        assert!(
            worn.starts_with("risk: /dev/x: 80 % of its write endurance are used\n"),
            "{worn}"
        );
        let warned = said(
            &NVME.replace("\"critical_warning\":0", "\"critical_warning\":4"),
            0,
        )
        .expect("known");
        assert!(
            warned.starts_with("wrong: /dev/x: critical warning 4\n"),
            "{warned}"
        );
        // It is too warm, which passes.
        let warm = said(
            &NVME.replace("\"critical_warning\":0", "\"critical_warning\":2"),
            0,
        )
        .expect("known");
        assert!(
            warm.starts_with("risk: /dev/x: critical warning 2\n"),
            "{warm}"
        );
        let sectors = said(SATA, 64).expect("known");
        assert!(
            sectors.starts_with(
                "risk: /dev/x: 8 sectors that cannot be read\nrisk: /dev/x: 3 sectors replaced\n"
            ),
            "{sectors}"
        );
        let fails = said(FAILS, 8).expect("known");
        assert!(
            fails.starts_with("wrong: /dev/x: says that it fails\n"),
            "{fails}"
        );
        assert_eq!(
            said(STANDBY, 2),
            Err("/dev/x sleeps, and is not woken for this".into())
        );
    }
}
