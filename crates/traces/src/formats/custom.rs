//! Text whose columns the user names: `--columns time_us,device,op,offset_sectors,length_bytes`.
//!
//! Columns are identified by position, with `-` for a column to ignore, or by the names in the first line of the file:
//! `time_s=Timestamp,offset_bytes=Start,length_bytes=Bytes`. The separator is whichever of `,`, `;`, `|`
//! and tab occurs most often in the first line, or white space if none of them occurs.

use std::fmt;
use std::str::FromStr;

use crate::decode::{Item, LineParser};
use crate::devices::Devices;
use crate::error::Bad;
use crate::field::{
    Fields, SECTOR, Words, class, length, no_record, number, offset, parse_ns, parse_u64, request,
    rwbs,
};
use crate::record::{Op, Record};

/// The meaning of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// Time of arrival, in units of this many nanoseconds.
    Time(u64),
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
const ROLES: [(&str, Role); 21] = [
    ("time_ns", Role::Time(1)),
    ("time_100ns", Role::Time(100)),
    ("time_us", Role::Time(1_000)),
    ("time_ms", Role::Time(1_000_000)),
    ("time_s", Role::Time(1_000_000_000)),
    ("device", Role::Device),
    ("op", Role::Letters),
    ("op_read0", Role::Reads(0)),
    ("op_read1", Role::Reads(1)),
    ("offset_bytes", Role::Offset(1)),
    ("offset_sectors", Role::Offset(SECTOR)),
    ("offset_4k", Role::Offset(4096)),
    ("length_bytes", Role::Length(1)),
    ("length_sectors", Role::Length(SECTOR)),
    ("length_4k", Role::Length(4096)),
    ("latency_ns", Role::Latency(1)),
    ("latency_100ns", Role::Latency(100)),
    ("latency_us", Role::Latency(1_000)),
    ("latency_ms", Role::Latency(1_000_000)),
    ("latency_s", Role::Latency(1_000_000_000)),
    ("class", Role::Class),
];

impl Role {
    fn name(self) -> &'static str {
        // The table holds every role, because roles are made from it only.
        ROLES
            .iter()
            .find(|(_, role)| *role == self)
            .map_or("", |(name, _)| name)
    }
}

/// The columns of a text, by position or by the names in its first line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnMap {
    /// The content of each column; `None` for a column to ignore.
    roles: Vec<Option<Role>>,
    /// The names in the first line of the file, if columns are identified by name.
    names: Option<Vec<String>>,
}

/// The error for a list of columns that cannot describe a trace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadColumns(String);

impl FromStr for ColumnMap {
    type Err = BadColumns;

    fn from_str(text: &str) -> Result<ColumnMap, BadColumns> {
        let items: Vec<(&str, Option<&str>)> = text
            .split(',')
            .map(|item| match item.split_once('=') {
                Some((role, name)) => (role.trim(), Some(name.trim())),
                None => (item.trim(), None),
            })
            .collect();
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
                _ => match ROLES.iter().find(|(name, _)| *name == role) {
                    Some((_, role)) => Ok(Some(*role)),
                    None => Err(BadColumns(format!(
                        "no column is called \"{role}\"; there are: -, {}",
                        ROLES.map(|(name, _)| name).join(", ")
                    ))),
                },
            })
            .collect::<Result<Vec<_>, _>>()?;
        for (what, is) in [
            (
                "offset_",
                (|r| matches!(r, Role::Offset(_))) as fn(Role) -> bool,
            ),
            ("length_", |r| matches!(r, Role::Length(_))),
        ] {
            if !roles.iter().flatten().any(|r| is(*r)) {
                return Err(BadColumns(format!(
                    "a column {what}… is missing (in bytes, sectors or 4k)"
                )));
            }
        }
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
        Ok(ColumnMap { roles, names })
    }
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
        Ok(())
    }
}

/// The parser.
pub(crate) struct Custom {
    map: ColumnMap,
    /// The separator of columns, from the first line; `b' '` means any white space.
    separator: Option<u8>,
    /// The content of each column of the file, known after the first line was read.
    roles: Vec<Option<Role>>,
    /// Whether a record was read. Before that, a line may be the line of column names.
    started: bool,
}

impl Custom {
    pub(crate) fn new(map: ColumnMap) -> Custom {
        Custom {
            map,
            separator: None,
            roles: Vec::new(),
            started: false,
        }
    }

    /// The fields of a line, without the quotes in which some programs write every field.
    pub(super) fn fields(separator: u8, line: &[u8]) -> Vec<&[u8]> {
        if separator == b' ' {
            Words(line).map(unquoted).collect()
        } else {
            Fields::new(line, separator).map(unquoted).collect()
        }
    }

    /// Determines separator and positions from the first line. Returns whether that line held column names.
    fn first(&mut self, line: &[u8]) -> Result<bool, Bad> {
        let separator = separator(line);
        self.separator = Some(separator);
        let fields = Custom::fields(separator, line);
        if let Some(names) = &self.map.names {
            let mut roles = vec![None; fields.len()];
            for (name, role) in names.iter().zip(&self.map.roles) {
                let place = fields
                    .iter()
                    .position(|f| f.trim_ascii() == name.as_bytes())
                    .ok_or_else(|| {
                        Bad::text(format!("a first line with the column \"{name}\""), line)
                    })?;
                roles[place] = *role;
            }
            self.roles = roles;
            return Ok(true);
        }
        self.roles.clone_from(&self.map.roles);
        // A line of column names has no number in the column of the offset.
        let offset = self
            .roles
            .iter()
            .position(|r| matches!(r, Some(Role::Offset(_))));
        let names = offset
            .and_then(|i| fields.get(i))
            .is_some_and(|f| parse_u64(f).is_none());
        Ok(names)
    }
}

/// A field without the double quotes around it, if it has any.
fn unquoted(field: &[u8]) -> &[u8] {
    match field {
        [b'"', inner @ .., b'"'] => inner.trim_ascii(),
        _ => field,
    }
}

/// The separator of the columns of a line; `b' '` means any white space.
pub(super) fn separator(line: &[u8]) -> u8 {
    let count = |c: u8| memchr::memchr_iter(c, line).count();
    [b',', b';', b'|', b'\t']
        .into_iter()
        .max_by_key(|&c| count(c))
        .filter(|&c| count(c) > 0)
        .unwrap_or(b' ')
}

/// A time in units of `unit` nanoseconds. A decimal point is allowed if the unit is a power of ten.
fn time(text: &[u8], unit: u64, expected: &str) -> Result<u64, Bad> {
    parse_ns(text, unit).ok_or_else(|| Bad::text(format!("{expected} (a number)"), text))
}

impl LineParser for Custom {
    fn line(&mut self, line: &[u8], devices: &mut Devices) -> Result<Item, Bad> {
        let line = line.trim_ascii_end();
        if no_record(line) {
            return Ok(Item::Nothing);
        }
        if !self.started {
            self.started = true;
            if self.first(line)? {
                return Ok(Item::Nothing);
            }
        }
        let fields = Custom::fields(self.separator.unwrap_or(b','), line);
        let (mut at, mut len, mut start, mut latency, mut op) = (0, 0, 0, None, Op::Read);
        let (mut device, mut of_class) = (0, 0);
        for (i, role) in self.roles.iter().enumerate() {
            let Some(role) = *role else {
                continue;
            };
            let name = role.name();
            let Some(&text) = fields.get(i) else {
                return Err(Bad::value(
                    format!("{name} in column {}", i + 1),
                    format!("{} columns", fields.len()),
                ));
            };
            match role {
                Role::Time(unit) => start = time(text, unit, name)?,
                Role::Latency(unit) => latency = Some(time(text, unit, name)?),
                Role::Device => device = devices.name(text)?,
                Role::Letters => op = direction(text)?,
                Role::Reads(read) => {
                    op = if number(text, name)? == read {
                        Op::Read
                    } else {
                        Op::Write
                    };
                }
                Role::Offset(unit) => at = offset(number(text, name)?, unit)?,
                Role::Length(unit) => len = length(number(text, name)?, unit)?,
                Role::Class => of_class = class(number(text, name)?)?,
            }
        }
        Ok(Item::Request(Record {
            device,
            latency_ns: latency,
            class: of_class,
            ..request(start, op, at, len)?
        }))
    }

    fn timed(&self) -> bool {
        let timed = |r: &Option<Role>| matches!(r, Some(Role::Time(_)));
        self.map.roles.iter().any(timed)
    }
}

/// RWBS letters of the block layer, or a word that begins with such a letter.
pub(super) fn direction(text: &[u8]) -> Result<Op, Bad> {
    let words: [(&[u8], Op); 5] = [
        (b"read", Op::Read),
        (b"write", Op::Write),
        (b"discard", Op::Discard),
        (b"trim", Op::Discard),
        (b"flush", Op::Flush),
    ];
    let word = words.iter().find(|(w, _)| text.eq_ignore_ascii_case(w));
    word.map(|(_, op)| *op)
        .or_else(|| rwbs(text).map(|(op, _)| op))
        .ok_or_else(|| Bad::text("op (R, W, read, write, discard, flush)", text))
}
