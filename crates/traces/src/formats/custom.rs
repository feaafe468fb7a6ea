//! Reads text by the columns of a [`ColumnMap`].

use super::calendar::nanoseconds;
use super::column_map::{ColumnMap, Role};
use crate::decode::{Item, LineParser};
use crate::devices::Devices;
use crate::error::Bad;
use crate::field::{
    Fields, Words, class, hex, length, no_record, number, offset, parse_ns, parse_u64, request,
    rwbs,
};
use crate::record::{Op, Record};

/// Words of one field that a blank may divide, such as the name of a program.
const WORDS_MAX: usize = 4;

/// The parser.
pub(crate) struct Custom {
    map: ColumnMap,
    /// The separator of columns, from the first line; `b' '` means any white space.
    separator: u8,
    /// The content of each column of the file, known after the first line was read.
    roles: Vec<Option<Role>>,
    /// Whether the first line was read, which may be the line of column names.
    started: bool,
}

impl Custom {
    pub(crate) fn new(map: ColumnMap) -> Custom {
        Custom {
            map,
            separator: b',',
            roles: Vec::new(),
            started: false,
        }
    }

    /// The role of each column of a line of names; `None` if a name is missing.
    fn by_name(&self, names: &[String], fields: &[&[u8]]) -> Option<Vec<Option<Role>>> {
        let mut roles = vec![None; fields.len()];
        for (name, role) in names.iter().zip(&self.map.roles) {
            roles[fields.iter().position(|f| *f == name.as_bytes())?] = *role;
        }
        Some(roles)
    }

    /// Determines separator and positions from the first line. Returns whether that line held column names.
    fn first(&mut self, line: &[u8]) -> Result<bool, Bad> {
        let candidates = self
            .map
            .separator
            .map_or_else(|| separators(line), |s| vec![s]);
        if let Some(names) = &self.map.names {
            let found = candidates.iter().find_map(|&separator| {
                let roles = self.by_name(names, &fields(separator, line))?;
                Some((separator, roles))
            });
            let Some((separator, roles)) = found else {
                let all = fields(candidates[0], line);
                let missing = names.iter().find(|n| !all.contains(&n.as_bytes()));
                let missing = missing.map_or("", String::as_str);
                return Err(Bad::text(
                    format!("a first line with the column \"{missing}\""),
                    line,
                ));
            };
            (self.separator, self.roles) = (separator, roles);
            return Ok(true);
        }
        self.roles.clone_from(&self.map.roles);
        let last = self.roles.iter().rposition(Option::is_some).unwrap_or(0);
        let offset = self
            .roles
            .iter()
            .position(|r| matches!(r, Some(Role::Offset(_))));
        let is_offset = |fields: &[&[u8]]| {
            let field = offset.and_then(|i| fields.get(i));
            field.is_some_and(|f| whole(f, "").is_ok())
        };
        let wide = |s: &&u8| fields(**s, line).len() > last;
        let fit = candidates.iter().filter(wide);
        let fit = fit
            .clone()
            .find(|s| is_offset(&fields(**s, line)))
            .or(fit.clone().next());
        self.separator = fit.copied().unwrap_or(candidates[0]);
        // A line of column names has no number in the column of the offset.
        Ok(!is_offset(&fields(self.separator, line)))
    }

    /// A line without what surrounds records, and whether it holds column names; `None` if it is nothing but that.
    fn begin<'a>(&mut self, line: &'a [u8]) -> Result<Option<(&'a [u8], bool)>, Bad> {
        let line = line.trim_ascii_end();
        if self.map.skip > 0 {
            self.map.skip -= 1;
            return Ok(None);
        }
        if chatter(line) {
            return Ok(None);
        }
        let names = !self.started && self.first(line)?;
        self.started = true;
        Ok(Some((line, names)))
    }

    /// The fields of a line, also of that of names, without reading them; `None` for a line without columns.
    pub(super) fn look<'a>(&mut self, line: &'a [u8]) -> Option<Vec<&'a [u8]>> {
        let (line, _) = self.begin(line).ok()??;
        Some(fields(self.separator, line))
    }

    /// The role of each column, once a line was looked at.
    pub(super) fn roles(&self) -> &[Option<Role>] {
        &self.roles
    }

    /// The request of a line's fields.
    fn record(&self, fields: &[&[u8]], devices: &mut Devices) -> Result<Record, Bad> {
        let (mut at, mut len, mut start, mut done, mut latency) = (None, None, None, None, None);
        let (mut plus, mut op, mut name_of_device, mut of_class) = (0, self.map.op, None, 0);
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
                Role::Time(unit) => start = Some(self.time(text, unit, name)?),
                Role::Plus(unit) => plus = self.time(text, unit, name)?,
                Role::Done(unit) => done = Some(self.time(text, unit, name)?),
                Role::Latency(unit) => latency = Some(self.time(text, unit, name)?),
                Role::Device => name_of_device = Some(text),
                Role::Letters => op = Some(direction(text)?),
                Role::Reads(read) => {
                    let reads = number(text, name)? == read;
                    op = Some(if reads { Op::Read } else { Op::Write });
                }
                Role::Offset(unit) => at = Some((text, unit, name)),
                Role::Length(unit) => len = Some((text, unit, name)),
                Role::Class => of_class = class(number(text, name)?)?,
            }
        }
        let op = op.unwrap_or(Op::Read);
        // The place of a flush means nothing; tracers write -1 or nothing there.
        let count = |of: Option<(&[u8], u64, &str)>| match of {
            Some((text, unit, name)) if op != Op::Flush => Ok((whole(text, name)?, unit)),
            _ => Ok((0, 1)),
        };
        let ((at, at_unit), (len, len_unit)) = (count(at)?, count(len)?);
        let arrival = match (start, done) {
            (Some(start), _) => start.saturating_add(plus),
            (None, done) => done.unwrap_or(0).saturating_sub(latency.unwrap_or(0)),
        };
        let took = start.and(done).map(|done| done.saturating_sub(arrival));
        let r = request(arrival, op, offset(at, at_unit)?, length(len, len_unit)?)?;
        Ok(Record {
            device: name_of_device.map_or(Ok(0), |name| devices.name(name))?,
            latency_ns: latency.or(took),
            class: of_class,
            ..r
        })
    }

    /// A time in units of `unit` nanoseconds. A point or comma is allowed if the unit is a power of ten. In text that commas divide, a comma
    /// inside quotes groups digits. A date and a time of day have units of their own.
    fn time(&self, text: &[u8], unit: u64, expected: &str) -> Result<u64, Bad> {
        let plain: Vec<u8>;
        let mut digits = text;
        if self.separator == b',' && text.contains(&b',') {
            plain = text.iter().copied().filter(|&c| c != b',').collect();
            digits = &plain;
        }
        let value = parse_ns(digits, unit).or_else(|| hex(text)?.checked_mul(unit));
        let value = value.or_else(|| nanoseconds(text));
        value.ok_or_else(|| Bad::text(format!("{expected} (a number)"), text))
    }

    /// As [`Custom::record`], for a line in which a blank divides a field that is ignored: the words of that field are joined.
    fn joined(&self, words: &[&[u8]], devices: &mut Devices) -> Option<Record> {
        let ignored = (0..self.roles.len()).filter(|&i| self.roles[i].is_none());
        ignored
            .flat_map(|i| (1..WORDS_MAX).map(move |more| (i, more)))
            .filter(|(i, more)| i + more < words.len())
            .find_map(|(i, more)| {
                let fields = [&words[..=i], &words[i + 1 + more..]].concat();
                self.record(&fields, devices).ok()
            })
    }
}

/// The fields of a line, without the quotes in which some programs write every field. A separator inside quotes does not divide.
pub(super) fn fields(separator: u8, line: &[u8]) -> Vec<&[u8]> {
    if separator == b' ' {
        return Words(line).map(unquoted).collect();
    }
    if !line.contains(&b'"') {
        return Fields::new(line, separator).collect();
    }
    let (mut all, mut start, mut quoted) = (Vec::new(), 0, false);
    for (i, &c) in line.iter().enumerate() {
        quoted ^= c == b'"';
        if c == separator && !quoted {
            all.push(unquoted(line[start..i].trim_ascii()));
            start = i + 1;
        }
    }
    all.push(unquoted(line[start..].trim_ascii()));
    all
}

/// A field without the double quotes around it, if it has any.
fn unquoted(field: &[u8]) -> &[u8] {
    match field {
        [b'"', inner @ .., b'"'] => inner.trim_ascii(),
        _ => field,
    }
}

/// What may separate the columns of a line, most frequent first, and white space last.
pub(super) fn separators(line: &[u8]) -> Vec<u8> {
    let count = |c: &u8| memchr::memchr_iter(*c, line).count();
    let mut found = vec![b',', b';', b'|', b'\t'];
    found.retain(|c| count(c) > 0);
    found.sort_by_key(|c| std::cmp::Reverse(count(c)));
    found.push(b' ');
    found
}

/// A whole number as programs write it: decimal, hexadecimal with 0x, with commas between groups of three digits, or with a fraction of 0.
pub(super) fn whole(text: &[u8], expected: &str) -> Result<u64, Bad> {
    if let Some(n) = parse_u64(text).or_else(|| hex(text)) {
        return Ok(n);
    }
    let (digits, zeros) = match text.iter().position(|&c| c == b'.') {
        Some(dot) if dot > 0 => (&text[..dot], &text[dot + 1..]),
        _ => (text, &b""[..]),
    };
    let mut groups = digits.split(|&c| c == b',');
    let first = groups.next().map_or(0, <[u8]>::len);
    let grouped = first <= 3 && groups.all(|g| g.len() == 3) || !digits.contains(&b',');
    let plain: Vec<u8> = digits.iter().copied().filter(|&c| c != b',').collect();
    if grouped
        && zeros.iter().all(|&c| c == b'0')
        && let Some(n) = parse_u64(&plain)
    {
        return Ok(n);
    }
    number(text, expected)
}

/// What tracing programs print around their records: not a record, not a line of names.
pub(super) fn chatter(line: &[u8]) -> bool {
    let starts: [&[u8]; 5] = [b"Attaching ", b"Tracing ", b"^C", b"@", b"Lost "];
    no_record(line) || starts.iter().any(|s| line.starts_with(s))
}

impl LineParser for Custom {
    fn line(&mut self, line: &[u8], devices: &mut Devices) -> Result<Item, Bad> {
        let Some((line, false)) = self.begin(line)? else {
            return Ok(Item::Nothing);
        };
        let fields = fields(self.separator, line);
        match self.record(&fields, devices) {
            Ok(r) => Ok(Item::Request(r)),
            Err(bad) => {
                let joined = (self.separator == b' ').then(|| self.joined(&fields, devices));
                joined.flatten().map(Item::Request).ok_or(bad)
            }
        }
    }

    fn timed(&self) -> bool {
        self.map.timed()
    }
}

/// RWBS letters of the block layer, a word that begins with such a letter, or the number of a SCSI command.
pub(super) fn direction(text: &[u8]) -> Result<Op, Bad> {
    let words: [(&[u8], Op); 10] = [
        (b"read", Op::Read),
        (b"write", Op::Write),
        (b"discard", Op::Discard),
        (b"trim", Op::Discard),
        (b"flush", Op::Flush),
        (b"f", Op::Flush),
        (b"28", Op::Read),
        (b"88", Op::Read),
        (b"2a", Op::Write),
        (b"8a", Op::Write),
    ];
    let word = words.iter().find(|(w, _)| text.eq_ignore_ascii_case(w));
    word.map(|(_, op)| *op)
        .or_else(|| rwbs(text).map(|(op, _)| op))
        .ok_or_else(|| Bad::text("op (R, W, read, write, discard, flush)", text))
}
