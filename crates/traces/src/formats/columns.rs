//! CSV whose first line names the columns. The columns may be in any order, and unknown ones are skipped.

use crate::error::Bad;
use crate::field::Fields;

/// The positions of the `N` columns of a format in the lines of one file.
pub(crate) struct Columns<const N: usize> {
    /// Column of the file → column of the format.
    slots: Vec<Option<usize>>,
    present: [bool; N],
}

impl<const N: usize> Columns<N> {
    /// Reads the line of column names. The first `required` of `names` must be present.
    pub(crate) fn from_line(
        line: &[u8],
        names: &[&str; N],
        required: usize,
    ) -> Result<Columns<N>, Bad> {
        let mut present = [false; N];
        let mut slots = Vec::new();
        for field in Fields::new(line, b',') {
            let slot = names.iter().position(|name| name.as_bytes() == field);
            if let Some(slot) = slot {
                if present[slot] {
                    return Err(Bad::text("a line of column names, each once", field));
                }
                present[slot] = true;
            }
            slots.push(slot);
        }
        match (0..required).find(|&i| !present[i]) {
            Some(missing) => Err(Bad::text(
                format!("a first line with the column \"{}\"", names[missing]),
                line,
            )),
            None => Ok(Columns { slots, present }),
        }
    }

    /// Whether the file has the format's column `slot`.
    pub(crate) fn has(&self, slot: usize) -> bool {
        self.present[slot]
    }

    /// The fields of a line in the order of the format. A column that the file lacks is empty.
    pub(crate) fn split<'a>(&self, line: &'a [u8]) -> Result<[&'a [u8]; N], Bad> {
        let mut values = [&b""[..]; N];
        let mut count = 0;
        for (i, field) in Fields::new(line, b',').enumerate() {
            if let Some(Some(slot)) = self.slots.get(i) {
                values[*slot] = field;
            }
            count = i + 1;
        }
        if count == self.slots.len() {
            Ok(values)
        } else {
            Err(Bad::value(
                format!("{} fields, as in the first line", self.slots.len()),
                format!("{count} fields"),
            ))
        }
    }
}
