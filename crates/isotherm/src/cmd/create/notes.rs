//! What `create` says about a description that is right and perhaps not what was meant.

use isotherm_live::VolumeConfig;
use isotherm_live::config::MemberConfig;
use isotherm_models::START_STOP_YEARS;

/// The speed of a kind of device, as far as its kind tells: smaller is faster. Named as in the note.
type Kind = (u8, &'static str);

/// The kind of a member, by its data sheet, else by what the system says about the device; `None` if neither is known.
fn kind(m: &MemberConfig, rotates: impl Fn(&MemberConfig) -> Option<bool>) -> Option<Kind> {
    if let Ok(Some(sheet)) = m.data_sheet() {
        return Some(match sheet.kind() {
            "ssd" => (0, "flash by its data sheet"),
            "remote" => (2, "remote by its data sheet"),
            _ => (1, "a rotating disk by its data sheet"),
        });
    }
    Some(if rotates(m)? {
        (1, "a rotating disk")
    } else {
        (0, "not a rotating disk")
    })
}

/// A note if a member of the fastest tier is of a slower kind than one of the slowest tier. `rotates`: what the system says about a device.
pub(super) fn swapped(
    config: &VolumeConfig,
    rotates: impl Fn(&MemberConfig) -> Option<bool>,
) -> Option<String> {
    let slowest = config.members.iter().map(|m| m.tier).max()?;
    let of = |tier| {
        let members = config.members.iter().filter(move |m| m.tier == tier);
        members.filter_map(|m| Some((kind(m, &rotates)?, m)))
    };
    let (fast, first) = of(0).max_by_key(|(kind, _)| kind.0)?;
    let (slow, last) = of(slowest).min_by_key(|(kind, _)| kind.0)?;
    (fast.0 > slow.0).then(|| {
        format!(
            "{} of the fastest tier is {}, and {} of the slowest tier is {}: were they swapped? A volume is as fast as its fastest tier: create it anew (--force) if this was not meant",
            first.path.display(),
            fast.1,
            last.path.display(),
            slow.1
        )
    })
}

/// The wear of a disk by standby: the number of wake-ups per day that its start-stop limit allows, and whether they are limited to that.
pub(super) fn start_stops(config: &VolumeConfig) -> Option<String> {
    let limits = crate::figures::Limits::of(config).start_stops;
    let sleepers = config
        .members
        .iter()
        .zip(&limits)
        .filter(|(m, _)| m.standby_s.is_some());
    let least = |a: f64, l: &Option<f64>| a.min(l.unwrap_or(crate::figures::START_STOPS));
    let budget = sleepers.clone().map(|(_, l)| l).fold(f64::INFINITY, least);
    if !budget.is_finite() {
        return None;
    }
    let starts = format!("  a disk that may be stopped and started {budget} times lasts");
    if let Some(set) = config.io.sleep_starts_per_day.filter(|n| *n > 0.0) {
        let years = budget / set / 365.25;
        return Some(format!(
            "{starts} {years:.1} years at {set} wake-ups a day; `isotherm status` counts them, and it is not started more often (sleep_starts_per_day)"
        ));
    }
    let years = config.io.start_stop_years.unwrap_or(START_STOP_YEARS);
    let a_day = budget / (years * 365.25);
    let kept = if sleepers.clone().all(|(_, l)| l.is_some()) {
        "it is not started more often (`start_stop_years` in the description sets another number of years)".to_owned()
    } else {
        format!(
            "`isotherm set {} sleep_starts_per_day={a_day:.0}` limits it to that",
            config.name
        )
    };
    Some(format!(
        "{starts} {years} years at {a_day:.0} wake-ups a day; `isotherm status` counts them, and {kept}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_live::config::{IoConfig, Size};

    fn config(fast: (&str, Option<&str>), slow: (&str, Option<&str>)) -> VolumeConfig {
        let member = |tier, (path, sheet): (&str, Option<&str>)| MemberConfig {
            path: path.into(),
            tier,
            sheet: sheet.map(Into::into),
            ..MemberConfig::default()
        };
        VolumeConfig {
            name: "v".into(),
            uuid: None,
            extent: Size(65536),
            policy: "benefit".into(),
            qos: Vec::new(),
            io: IoConfig::default(),
            members: vec![member(0, fast), member(1, slow)],
        }
    }

    #[test]
    fn tiers_that_were_swapped_are_noticed() {
        let rotates = |m: &MemberConfig| match m.path.to_str() {
            Some("/dev/sda") => Some(true),
            Some("/dev/nvme0n1") => Some(false),
            _ => None,
        };
        let note = |fast, slow| swapped(&config(fast, slow), rotates);
        let (disk, flash, file) = ("/dev/sda", "/dev/nvme0n1", "a.img");
        let wrong = note((disk, None), (flash, None)).expect("a note");
        assert!(
            wrong.starts_with("/dev/sda of the fastest tier is a rotating disk, and /dev/nvme0n1 of the slowest tier is not"),
            "{wrong}"
        );
        assert_eq!(note((flash, None), (disk, None)), None);
        assert_eq!(note((disk, None), (disk, None)), None);
        // Nothing is known about files.
        assert_eq!(note((disk, None), (file, None)), None);
        assert_eq!(note((file, None), (flash, None)), None);
        // A data sheet says more than the system.
        let (hdd, ssd) = (Some("exos-18tb"), Some("nvme-tlc"));
        assert!(note((file, hdd), (file, ssd)).is_some());
        assert!(note((flash, hdd), (flash, None)).is_some());
        assert_eq!(note((disk, ssd), (flash, None)), None);
        assert_eq!(note((file, ssd), (file, hdd)), None);
    }

    #[test]
    fn the_years_of_the_description_are_those_of_the_note() {
        let note = |sheet, years: Option<f64>, starts: Option<f64>| {
            let mut c = config(("f", None), ("s", sheet));
            c.members[1].standby_s = Some(600.0);
            (c.io.start_stop_years, c.io.sleep_starts_per_day) = (years, starts);
            start_stops(&c).expect("a note")
        };
        let hdd = Some("wd5000aaks");
        let five = note(hdd, None, None);
        assert!(
            five.contains("50000 times lasts 5 years at 27 wake-ups a day")
                && five.contains("start_stop_years"),
            "{five}"
        );
        let ten = note(hdd, Some(10.0), None);
        assert!(ten.contains("lasts 10 years at 14 wake-ups a day"), "{ten}");
        let set = note(None, None, Some(100.0));
        assert!(
            set.contains("lasts 1.4 years at 100 wake-ups a day"),
            "{set}"
        );
        let free = note(None, None, None);
        assert!(
            free.contains("set v sleep_starts_per_day=27` limits"),
            "{free}"
        );
        let mut awake = config(("f", None), ("s", None));
        awake.io.start_stop_years = Some(3.0);
        assert_eq!(start_stops(&awake), None);
    }
}
