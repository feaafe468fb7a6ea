//! Counters of accesses by time and address, enough for one picture.

use isotherm_core::Nanos;

use crate::record::{Op, Record};

/// Cells along each axis.
pub const HEAT_CELLS: usize = 128;
/// Devices with a higher number are not counted.
const DEVICES_MAX: usize = 8;

/// 4 KiB accesses by time and address of one device, [`HEAT_CELLS`] each way.
///
/// The end of the trace is not known beforehand. When a request falls outside the grid, the width or height of a cell doubles and cells are
/// merged in pairs.
#[derive(Clone, Debug)]
pub struct Heat {
    /// Width of a cell.
    pub cell_time: Nanos,
    /// Height of a cell.
    pub cell_bytes: u64,
    counts: Vec<u64>,
}

impl Default for Heat {
    fn default() -> Heat {
        Heat {
            cell_time: Nanos(1 << 10),
            cell_bytes: 4096,
            counts: vec![0; HEAT_CELLS * HEAT_CELLS],
        }
    }
}

impl Heat {
    /// Accesses in the cell of a column (time) and a row (address).
    pub fn count(&self, column: usize, row: usize) -> u64 {
        self.counts[column * HEAT_CELLS + row]
    }

    fn add(&mut self, r: &Record) {
        while r.time.0 / self.cell_time.0 >= HEAT_CELLS as u64 {
            for column in 0..HEAT_CELLS {
                for row in 0..HEAT_CELLS {
                    let pair = |i| {
                        self.counts
                            .get((2 * column + i) * HEAT_CELLS + row)
                            .copied()
                            .unwrap_or(0)
                    };
                    self.counts[column * HEAT_CELLS + row] = pair(0) + pair(1);
                }
            }
            self.cell_time.0 *= 2;
        }
        while (r.end() - 1) / self.cell_bytes >= HEAT_CELLS as u64 {
            for column in self.counts.chunks_exact_mut(HEAT_CELLS) {
                for row in 0..HEAT_CELLS {
                    let pair = |i| column.get(2 * row + i).copied().unwrap_or(0);
                    column[row] = pair(0) + pair(1);
                }
            }
            self.cell_bytes *= 2;
        }
        let column = (r.time.0 / self.cell_time.0) as usize;
        let mut at = r.offset;
        while at < r.end() {
            let row = at / self.cell_bytes;
            let end = r.end().min((row + 1) * self.cell_bytes);
            self.counts[column * HEAT_CELLS + row as usize] += (end - at).div_ceil(4096);
            at = end;
        }
    }
}

/// The heat of each device; at most eight devices.
#[derive(Clone, Debug, Default)]
pub struct Heats(Vec<Heat>);

impl Heats {
    /// By device.
    pub fn devices(&self) -> &[Heat] {
        &self.0
    }

    pub(crate) fn add(&mut self, r: &Record) {
        let device = r.device as usize;
        if !matches!(r.op, Op::Read | Op::Write) || device >= DEVICES_MAX {
            return;
        }
        if self.0.len() <= device {
            self.0.resize_with(device + 1, Heat::default);
        }
        self.0[device].add(r);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubling_loses_nothing() {
        let mut heat = Heat::default();
        let mut blocks = 0;
        for i in 0..10_000u64 {
            let len = 4096 * (1 + (i % 5) as u32);
            heat.add(&Record::new(Nanos(i * 777), Op::Read, i * 40_960, len));
            blocks += u64::from(len / 4096);
        }
        assert_eq!(heat.counts.iter().sum::<u64>(), blocks);
        // The address rises with time, so no cell off the diagonal is counted.
        let off = (0..HEAT_CELLS).flat_map(|c| (0..HEAT_CELLS).map(move |r| (c, r)));
        let (time, bytes) = (heat.cell_time.0 as f64, heat.cell_bytes as f64);
        for (c, r) in off.filter(|&(c, r)| heat.count(c, r) > 0) {
            let due = (c as f64 + 0.5) * time / 777.0 * 40_960.0 / bytes;
            assert!((r as f64 - due).abs() <= 2.0, "{c} {r} {due}");
        }
    }
}
