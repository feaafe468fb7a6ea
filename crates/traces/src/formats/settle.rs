//! The units that the columns of a text leave open, inferred from its numbers.

use super::calendar::nanoseconds;
use super::column_map::{ColumnMap, OPEN, Role};
use super::custom::{Custom, whole};
use super::hint::{number, stated_time};
use crate::error::TraceError;
use crate::input::Input;
use crate::time_unit::{LOOK, TimeUnit, Times};
use crate::units::{Row, Units, name, weigh};

/// What was inferred: the assumptions and the doubts, in sentences.
#[derive(Default)]
pub(crate) struct Said {
    pub(crate) assumed: Vec<String>,
    pub(crate) doubts: Vec<String>,
}

/// The numbers of the columns whose units are open.
#[derive(Default)]
struct Numbers {
    times: Times,
    /// Whether times are dates or times of day, which have a unit.
    calendar: bool,
    values: Vec<f64>,
    rows: Vec<Row>,
}

impl ColumnMap {
    /// The map with a unit for each column. Times have the unit `time` if it is given.
    pub(crate) fn settle(
        mut self,
        input: Input,
        time: Option<TimeUnit>,
    ) -> Result<(ColumnMap, Said), TraceError> {
        let mut said = Said::default();
        if !self.is_open() {
            return Ok((self, said));
        }
        let (title, numbers) = self.look(input)?;
        let known = |r: &Role| match *r {
            Role::Length(unit) if unit != OPEN => Some(unit),
            _ => None,
        };
        let size = self.roles.iter().flatten().find_map(known);
        let at = self.roles.iter().flatten().find_map(|r| match *r {
            Role::Offset(unit) if unit != OPEN => Some(unit),
            _ => None,
        });
        let open_place = at.is_none() || size.is_none();
        let units = if open_place {
            place(&numbers.rows, size, &mut said)
        } else {
            Units::BYTES
        };
        let mut unit_of_time = || time_unit(&title, &numbers, time, &mut said);
        for role in self.roles.iter_mut().flatten() {
            *role = match *role {
                Role::Time(OPEN) => Role::Time(unit_of_time()),
                Role::Offset(OPEN) => Role::Offset(units.at),
                Role::Length(OPEN) => Role::Length(units.size),
                other => other,
            };
        }
        Ok((self, said))
    }

    /// The title of the column of times, and the numbers at the start of the text.
    fn look(&self, mut input: Input) -> Result<(String, Numbers), TraceError> {
        let (mut parser, mut numbers) = (Custom::new(self.clone()), Numbers::default());
        let mut title = String::new();
        while numbers.rows.len() < LOOK
            && let Some(line) = input.line()?
        {
            let Some(fields) = parser.look(line) else {
                continue;
            };
            let roles = parser.roles();
            let of = |is: fn(&Role) -> bool| {
                let at = roles.iter().position(|r| r.as_ref().is_some_and(is));
                at.and_then(|at| fields.get(at))
                    .copied()
                    .unwrap_or_default()
            };
            let time = of(|r| matches!(r, Role::Time(_)));
            let at = whole(of(|r| matches!(r, Role::Offset(_))), "");
            let size = whole(of(|r| matches!(r, Role::Length(_))), "");
            let (Ok(at), Ok(size)) = (at, size) else {
                // The line of names, or one that the reader will refuse.
                if numbers.rows.is_empty() {
                    title = String::from_utf8_lossy(time).into_owned();
                }
                continue;
            };
            numbers.times.add(time);
            numbers.calendar = nanoseconds(time).is_some();
            numbers.values.extend(number(time));
            numbers.rows.push(Row {
                device: 0,
                at,
                size,
            });
        }
        Ok((title, numbers))
    }
}

/// The units of offset and length.
fn place(rows: &[Row], size: Option<u64>, said: &mut Said) -> Units {
    if let Some((units, why)) = weigh(rows, size) {
        said.assumed.push(format!(
            "Offsets are read as {} and lengths as {}: {why}.",
            name(units.at),
            name(units.size)
        ));
        return units;
    }
    let units = Units {
        size: size.unwrap_or(Units::SECTORS.size),
        ..Units::SECTORS
    };
    said.doubts.push(format!(
        "Offsets are read as {} and lengths as {}, but nothing shows their units: state them (--columns offset_sectors, offset_bytes, offset_4k, length_…).",
        name(units.at),
        name(units.size)
    ));
    units
}

/// The unit of time in nanoseconds.
fn time_unit(title: &str, numbers: &Numbers, stated: Option<TimeUnit>, said: &mut Said) -> u64 {
    if let Some(unit) = stated {
        return unit.ns();
    }
    if numbers.calendar {
        return 1;
    }
    let of_role = |role: &'static str| match role.parse::<Role>() {
        Ok(Role::Time(unit)) => Some((unit, role)),
        _ => None,
    };
    if let Some((unit, role)) = stated_time(title, &numbers.values).and_then(of_role) {
        let role = role.trim_start_matches("time_");
        said.assumed.push(format!(
            "Times are read in {role}, as their title or their digits say."
        ));
        return unit;
    }
    let found = numbers.times.infer(TimeUnit::Seconds);
    let what = format!(
        "Times are read as {}: {}; --time-unit says otherwise.",
        found.unit.name(),
        found.why
    );
    if found.open {
        said.doubts
            .push(format!("Nothing shows the unit of time. {what}"));
    } else {
        said.assumed.push(what);
    }
    found.unit.ns()
}
