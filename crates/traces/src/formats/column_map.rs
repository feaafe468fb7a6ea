//! Text whose columns the user names: `--columns time_us,device,op,offset_sectors,length_bytes`.
//!
//! Columns are identified by position, with `-` for a column to ignore, or by the names in the first line of the file:
//! `time_s=Timestamp,offset_bytes=Start,length_bytes=Bytes`. The separator is whichever of `,`, `;`, `|`
//! and tab occurs most often in the first line, or white space if none of them occurs or the fields would be too few.
//! `op=W` states the direction of all requests where no column does. `time`, `offset` and `length` without a unit leave it open; it is
//! then inferred from the numbers.

use std::fmt;
use std::str::FromStr;

use super::custom::direction;
use crate::field::SECTOR;
use crate::record::Op;
use crate::units::PAGE;

/// A unit that is inferred from the numbers.
pub(super) const OPEN: u64 = 0;

/// The meaning of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Time of arrival, in units of this many nanoseconds.
    Time(u64),
    /// A second part of the time of arrival, which is added to the first, in units of this many nanoseconds.
    Plus(u64),
    /// Time of completion, in units of this many nanoseconds.
    Done(u64),
    /// Name or number of the device.
    Device,
    /// Direction as a word: `R`, `Write`, `WS`…
    Letters,
    /// Direction as a number. This number means a read, and any other a write.
    Reads(u64),
    /// First byte, in units of this many bytes.
    Offset(u64),
    /// Length, in units of this many bytes.
    Length(u64),
    /// Service time, in units of this many nanoseconds.
    Latency(u64),
    /// Class of the request.
    Class,
}

/// Every role by name.
const ROLES: [(&str, Role); 33] = [
    ("time", Role::Time(OPEN)),
    ("time_ns", Role::Time(1)),
    ("time_100ns", Role::Time(100)),
    ("time_us", Role::Time(1_000)),
    ("time_ms", Role::Time(1_000_000)),
    ("time_s", Role::Time(1_000_000_000)),
    ("plus_ns", Role::Plus(1)),
    ("plus_us", Role::Plus(1_000)),
    ("plus_ms", Role::Plus(1_000_000)),
    ("plus_s", Role::Plus(1_000_000_000)),
    ("done_ns", Role::Done(1)),
    ("done_100ns", Role::Done(100)),
    ("done_us", Role::Done(1_000)),
    ("done_ms", Role::Done(1_000_000)),
    ("done_s", Role::Done(1_000_000_000)),
    ("device", Role::Device),
    ("op", Role::Letters),
    ("op_read0", Role::Reads(0)),
    ("op_read1", Role::Reads(1)),
    ("offset", Role::Offset(OPEN)),
    ("offset_bytes", Role::Offset(1)),
    ("offset_sectors", Role::Offset(SECTOR)),
    ("offset_4k", Role::Offset(PAGE)),
    ("length", Role::Length(OPEN)),
    ("length_bytes", Role::Length(1)),
    ("length_sectors", Role::Length(SECTOR)),
    ("length_4k", Role::Length(PAGE)),
    ("latency_ns", Role::Latency(1)),
    ("latency_100ns", Role::Latency(100)),
    ("latency_us", Role::Latency(1_000)),
    ("latency_ms", Role::Latency(1_000_000)),
    ("latency_s", Role::Latency(1_000_000_000)),
    ("class", Role::Class),
];

impl Role {
    pub(super) fn name(self) -> &'static str {
        // The table holds every role, because roles are made from it only.
        ROLES
            .iter()
            .find(|(_, role)| *role == self)
            .map_or("", |(name, _)| name)
    }
}

impl FromStr for Role {
    type Err = BadColumns;

    fn from_str(role: &str) -> Result<Role, BadColumns> {
        let found = ROLES.iter().find(|(name, _)| *name == role);
        found.map(|(_, role)| *role).ok_or_else(|| {
            BadColumns(format!(
                "no column is called \"{role}\"; there are: -, {}",
                ROLES.map(|(name, _)| name).join(", ")
            ))
        })
    }
}

/// The columns of a text, by position or by the names in its first line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnMap {
    /// The content of each column; `None` for a column to ignore.
    pub(super) roles: Vec<Option<Role>>,
    /// The names in the first line of the file, if columns are identified by name.
    pub(super) names: Option<Vec<String>>,
    /// The direction of all requests, if no column states it.
    pub(super) op: Option<Op>,
    /// The separator of columns; found in the first line if absent. `b' '` means any white space.
    pub(super) separator: Option<u8>,
    /// Lines before the first one, which hold neither names nor requests.
    pub(super) skip: usize,
}

impl ColumnMap {
    /// Sets the separator of the columns instead of finding it in the first line; a blank means any white space.
    #[must_use]
    pub fn separated_by(mut self, separator: u8) -> ColumnMap {
        self.separator = Some(separator);
        self
    }

    /// Whether nothing states the direction of requests.
    pub(crate) fn lacks_op(&self) -> bool {
        let states = |r: &Role| matches!(r, Role::Letters | Role::Reads(_));
        self.op.is_none() && !self.roles.iter().flatten().any(states)
    }

    /// Whether requests are identified by their completion.
    pub(crate) fn by_completion(&self) -> bool {
        let done = |r: &Role| matches!(r, Role::Done(_));
        self.roles.iter().flatten().any(done)
    }

    /// Whether requests have times.
    pub(crate) fn timed(&self) -> bool {
        let time = |r: &Role| matches!(r, Role::Time(_) | Role::Done(_));
        self.roles.iter().flatten().any(time)
    }

    /// Whether a unit is to be inferred.
    pub(crate) fn is_open(&self) -> bool {
        let open = |r: &Role| {
            matches!(
                r,
                Role::Time(OPEN) | Role::Offset(OPEN) | Role::Length(OPEN)
            )
        };
        self.roles.iter().flatten().any(open)
    }
}

/// The error for a list of columns that cannot describe a trace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadColumns(String);

impl FromStr for ColumnMap {
    type Err = BadColumns;

    fn from_str(text: &str) -> Result<ColumnMap, BadColumns> {
        let (mut items, mut op) = (Vec::new(), None);
        for item in text.split(',') {
            match item
                .split_once('=')
                .map(|(role, name)| (role.trim(), name.trim()))
            {
                Some(("op", word)) if direction(word.as_bytes()).is_ok() => {
                    op = direction(word.as_bytes()).ok();
                }
                Some((role, name)) => items.push((role, Some(name))),
                None => items.push((item.trim(), None)),
            }
        }
        let named = items.iter().filter(|(_, name)| name.is_some()).count();
        if named > 0 && named < items.len() {
            return Err(BadColumns(
                "name either all columns by place or all as ROLE=NAME of the first line".into(),
            ));
        }
        let roles = items
            .iter()
            .map(|&(role, _)| match role {
                "-" => Ok(None),
                _ => role.parse().map(Some),
            })
            .collect::<Result<Vec<_>, _>>()?;
        complete(&roles, op)?;
        for (i, role) in roles.iter().enumerate() {
            let twice = |other: &Option<Role>| {
                role.zip(*other).is_some_and(|(a, b)| {
                    let kind = |r: Role| r.name().split('_').next().unwrap_or_default();
                    kind(a) == kind(b)
                })
            };
            if roles[..i].iter().any(twice) {
                return Err(BadColumns(format!(
                    "\"{}\" says again what another column says",
                    items[i].0
                )));
            }
        }
        let names = (named > 0).then(|| {
            let names = items.iter().filter_map(|(_, name)| *name);
            names.map(str::to_owned).collect()
        });
        Ok(ColumnMap {
            roles,
            names,
            op,
            separator: None,
            skip: 0,
        })
    }
}

/// Checks that the columns describe requests.
fn complete(roles: &[Option<Role>], op: Option<Op>) -> Result<(), BadColumns> {
    let has = |is: fn(&Role) -> bool| roles.iter().flatten().any(is);
    for (what, there) in [
        ("offset", has(|r| matches!(r, Role::Offset(_)))),
        ("length", has(|r| matches!(r, Role::Length(_)))),
    ] {
        if !there {
            return Err(BadColumns(format!(
                "a column {what}_… is missing (in bytes, sectors or 4k)"
            )));
        }
    }
    if has(|r| matches!(r, Role::Plus(_))) && !has(|r| matches!(r, Role::Time(_))) {
        return Err(BadColumns(
            "plus_… needs a column time_… to be added to".into(),
        ));
    }
    if op.is_some() && has(|r| matches!(r, Role::Letters | Role::Reads(_))) {
        return Err(BadColumns(
            "op=… says again what another column says".into(),
        ));
    }
    Ok(())
}

impl fmt::Display for ColumnMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, role) in self.roles.iter().enumerate() {
            let comma = if i > 0 { "," } else { "" };
            write!(f, "{comma}{}", role.map_or("-", Role::name))?;
            if let Some(name) = self.names.as_ref().and_then(|names| names.get(i)) {
                write!(f, "={name}")?;
            }
        }
        match self.op {
            Some(op) => write!(f, ",op={op}"),
            None => Ok(()),
        }
    }
}
