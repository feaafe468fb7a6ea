//! Gauges of the drives under the members, by their own account.

use std::fmt;

use isotherm_answers::{Drive, MemberFigures, Stats};

use super::{Labels, Writer, flag, label};

/// A gauge: its name, its help text, and its figure; a drive that does not state it has no sample.
type Figure = (&'static str, &'static str, fn(&Drive) -> Option<f64>);

const ALL: &[Figure] = &[
    ("drive_failing", "1: the drive says that it fails", |d| {
        d.passed.or(d.critical_warning.map(|_| true))?;
        Some(flag(d.fails()))
    }),
    (
        "drive_wear_percent",
        "Share of the drive's write endurance that is used, by its own account",
        |d| d.used_percent.map(|n| n as f64),
    ),
    (
        "drive_pending_sectors",
        "Sectors that could not be read and wait for a write",
        |d| d.pending_sectors.map(|n| n as f64),
    ),
    (
        "drive_reallocated_sectors",
        "Sectors that the drive has replaced",
        |d| d.reallocated_sectors.map(|n| n as f64),
    ),
    (
        "drive_media_errors",
        "Errors of the drive's medium that were not corrected",
        |d| d.media_errors.map(|n| n as f64),
    ),
    (
        "drive_temperature_celsius",
        "The drive's temperature",
        |d| d.temperature_c.map(|n| n as f64),
    ),
    (
        "drive_asked_seconds",
        "Age of the drive's figures; it is not asked while it sleeps",
        |d| d.age_s,
    ),
];

pub(super) fn encode(stats: &Stats, w: &mut Writer<'_>) -> fmt::Result {
    let members = stats.members.iter().enumerate();
    let of = |(i, m): (usize, &MemberFigures)| {
        let all = m.drives.clone().unwrap_or_default().into_iter();
        let tier = m.tier;
        all.map(move |d| -> (Labels, Drive) {
            (
                vec![
                    label("member", &i),
                    label("tier", &tier),
                    label("device", &d.device),
                ],
                d,
            )
        })
    };
    let drives: Vec<(Labels, Drive)> = members.flat_map(of).collect();
    ALL.iter().try_for_each(|(name, help, figure)| {
        w.gauge(
            name,
            help,
            drives
                .iter()
                .filter_map(|(l, d)| Some((l.clone(), figure(d)?))),
        )
    })
}
