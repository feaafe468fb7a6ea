//! Maps the names of devices to small numbers, in the order in which the reader meets them.

use std::collections::HashMap;

use crate::error::Bad;

/// More devices than any known trace has. It bounds the table when the input is garbage.
pub(crate) const DEVICES_MAX: usize = 1 << 20;

/// The form in which a format identifies its devices.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
    Number(u64),
    MajorMinor(u64, u64),
    Name(Box<[u8]>),
}

/// The devices seen so far.
#[derive(Debug, Default)]
pub(crate) struct Devices {
    numbers: HashMap<u64, u32>,
    names: HashMap<Box<[u8]>, u32>,
    keys: Vec<Key>,
    // Neighbouring records mostly have the same device. These two fields then save the hash lookup.
    last_number: Option<(u64, u32)>,
    last_name: Option<(Box<[u8]>, u32)>,
    /// Where records are sorted: the numbers in the order of delivery (number + 1; 0: none yet), and the reverse.
    delivered: Vec<u32>,
    order: Vec<u32>,
}

impl Devices {
    /// The device that the format calls `number`.
    pub(crate) fn number(&mut self, number: u64) -> Result<u32, Bad> {
        if let Some((n, id)) = self.last_number
            && n == number
        {
            return Ok(id);
        }
        let id = if let Some(&id) = self.numbers.get(&number) {
            id
        } else {
            let id = self.add(Key::Number(number))?;
            self.numbers.insert(number, id);
            id
        };
        self.last_number = Some((number, id));
        Ok(id)
    }

    /// The device that the format calls `name`.
    pub(crate) fn name(&mut self, name: &[u8]) -> Result<u32, Bad> {
        if let Some((n, id)) = &self.last_name
            && **n == *name
        {
            return Ok(*id);
        }
        let id = if let Some(&id) = self.names.get(name) {
            id
        } else {
            let id = self.add(Key::Name(name.into()))?;
            self.names.insert(name.into(), id);
            id
        };
        self.last_name = Some((name.into(), id));
        Ok(id)
    }

    /// The Linux device `major:minor`. A reader uses this or [`Devices::number`], never both.
    pub(crate) fn major_minor(&mut self, major: u64, minor: u64) -> Result<u32, Bad> {
        // Linux uses at most 32 bits for each. Larger numbers come from garbage only and need not be distinct.
        let number = major << 32 | minor & 0xffff_ffff;
        let known = self.keys.len();
        let id = self.number(number)?;
        if self.keys.len() > known {
            self.keys[known] = Key::MajorMinor(major, minor);
        }
        Ok(id)
    }

    /// Devices known beforehand, from a file that lists them.
    pub(crate) fn preset(&mut self, names: impl Iterator<Item = String>) {
        self.keys = names
            .take(DEVICES_MAX)
            .map(|n| Key::Name(n.into_bytes().into()))
            .collect();
    }

    fn add(&mut self, key: Key) -> Result<u32, Bad> {
        if self.keys.len() >= DEVICES_MAX {
            return Err(Bad::value(
                format!("at most {DEVICES_MAX} devices"),
                "one more",
            ));
        }
        self.keys.push(key);
        Ok(self.keys.len() as u32 - 1)
    }

    /// The number of device `id` in the order in which records are delivered. A reader that calls this calls it for every record.
    pub(crate) fn in_order(&mut self, id: u32) -> u32 {
        let at = id as usize;
        if self.delivered.len() <= at {
            self.delivered.resize(at + 1, 0);
        }
        if self.delivered[at] == 0 {
            self.order.push(id);
            self.delivered[at] = self.order.len() as u32;
        }
        self.delivered[at] - 1
    }

    /// The format's name of device `id`.
    pub(crate) fn label(&self, id: u32) -> Option<String> {
        let id = if self.order.is_empty() {
            id
        } else {
            *self.order.get(id as usize)?
        };
        Some(match self.keys.get(id as usize)? {
            Key::Number(n) => n.to_string(),
            Key::MajorMinor(major, minor) => format!("{major},{minor}"),
            Key::Name(n) => String::from_utf8_lossy(n).into_owned(),
        })
    }
}
