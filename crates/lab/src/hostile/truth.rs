//! The truth: what every cell of the volume may hold, now and after a crash.
//!
//! A cell is 64 bytes, an eighth of a sector, so that odd requests are told apart too. Its content names its own address and
//! a version; version 0 is zeros. Writers of one cell take turns (the clients see to it), so "last" has a meaning.

use std::collections::BTreeMap;

/// Bytes of a cell.
pub const CELL: usize = 64;

/// One cell.
#[derive(Clone, Debug, Default)]
struct Cell {
    /// What a read may return, apart from writes in flight.
    live: Vec<u64>,
    /// What the last covering FLUSH made certain (more than one after errors).
    floor: Vec<u64>,
    /// Versions issued since, with the moment of their acknowledgement.
    since: Vec<(u64, Option<u64>)>,
    /// Everything ever written, for reads that overlap writes.
    log: Vec<u64>,
}

/// What a read in flight may return, per cell.
pub type Expect = Vec<(Vec<u64>, usize)>;

/// See the module.
#[derive(Clone, Debug)]
pub struct Truth {
    cells: Vec<Cell>,
    versions: u64,
    clock: u64,
    /// Cells being written, by their writer.
    busy: BTreeMap<usize, u64>,
}

/// Content of a cell.
pub fn content(cell: usize, version: u64) -> [u8; CELL] {
    let mut b = [0; CELL];
    if version != 0 {
        for i in 0..CELL / 16 {
            b[i * 16..i * 16 + 8].copy_from_slice(&(cell as u64 + 1).to_le_bytes());
            b[i * 16 + 8..i * 16 + 16].copy_from_slice(&version.to_le_bytes());
        }
    }
    b
}

/// Version that a cell's bytes show, or what is wrong with them.
pub fn version_of(cell: usize, b: &[u8]) -> Result<u64, String> {
    let mut v = [0; 8];
    v.copy_from_slice(&b[8..16]);
    let v = u64::from_le_bytes(v);
    if b == content(cell, v) {
        return Ok(v);
    }
    let mut other = [0; 8];
    other.copy_from_slice(&b[..8]);
    Err(format!(
        "bytes that are not its own: names cell {}, version {v}, first bytes {:02x?}",
        u64::from_le_bytes(other).wrapping_sub(1),
        &b[..4]
    ))
}

impl Truth {
    /// All zeros, durably.
    pub fn new(bytes: u64) -> Truth {
        let cell = Cell {
            live: vec![0],
            floor: vec![0],
            ..Cell::default()
        };
        Truth {
            cells: vec![cell; bytes as usize / CELL],
            versions: 0,
            clock: 0,
            busy: BTreeMap::new(),
        }
    }
    /// Cells.
    pub fn cells(&self) -> usize {
        self.cells.len()
    }
    /// Is any cell of the range being written?
    pub fn is_busy(&self, from: usize, to: usize) -> bool {
        self.busy.range(from..to).next().is_some()
    }
    /// A write (or, with `zero`, a discard) of cells `from..to` is issued; its version.
    pub fn issue(&mut self, from: usize, to: usize, zero: bool) -> u64 {
        self.versions += 1;
        let v = if zero { 0 } else { self.versions };
        for c in from..to {
            self.busy.insert(c, self.versions);
            self.cells[c].since.push((v, None));
            self.cells[c].log.push(v);
        }
        v
    }
    /// It was answered.
    pub fn answered(&mut self, from: usize, to: usize, version: u64, ok: bool) {
        self.clock += 1;
        for c in from..to {
            self.busy.remove(&c);
            let cell = &mut self.cells[c];
            if ok {
                cell.live = vec![version];
                if let Some(last) = cell.since.last_mut() {
                    last.1 = Some(self.clock);
                }
            } else {
                cell.live.push(version);
            }
        }
    }
    /// A moment, taken when a FLUSH is issued.
    pub fn moment(&self) -> u64 {
        self.clock
    }
    /// A FLUSH issued at `moment` succeeded: what was acknowledged before it is certain.
    pub fn flushed(&mut self, moment: u64) {
        for c in 0..self.cells.len() {
            self.certain(c, moment);
        }
    }
    /// A FUA write of these cells succeeded.
    pub fn forced(&mut self, from: usize, to: usize) {
        for c in from..to {
            self.certain(c, self.clock);
        }
    }
    fn certain(&mut self, c: usize, moment: u64) {
        let cell = &mut self.cells[c];
        if let Some(i) = cell
            .since
            .iter()
            .rposition(|s| s.1.is_some_and(|t| t <= moment))
        {
            cell.floor = vec![cell.since[i].0];
            cell.since.drain(..=i);
        }
    }
    /// A read of cells `from..to` is issued.
    pub fn expect(&self, from: usize, to: usize) -> Expect {
        (from..to)
            .map(|c| {
                let cell = &self.cells[c];
                let mut ok = cell.live.clone();
                if self.busy.contains_key(&c) {
                    ok.extend(cell.since.last().map(|s| s.0));
                }
                (ok, cell.log.len())
            })
            .collect()
    }
    /// Check what it returned.
    pub fn check_read(&self, from: usize, expect: &Expect, data: &[u8]) -> Result<(), String> {
        for (i, (ok, log)) in expect.iter().enumerate() {
            let c = from + i;
            let v = version_of(c, &data[i * CELL..(i + 1) * CELL])
                .map_err(|e| format!("read of cell {c} returned {e}"))?;
            if !ok.contains(&v) && !self.cells[c].log[*log..].contains(&v) {
                return Err(format!(
                    "read of cell {c} returned version {v}, allowed were {ok:?}"
                ));
            }
        }
        Ok(())
    }
    /// After a crash: check a cell, and hold the volume to what it shows now.
    pub fn check_crashed(&mut self, c: usize, data: &[u8]) -> Result<(), String> {
        let v = version_of(c, data).map_err(|e| format!("after the crash cell {c} holds {e}"))?;
        let cell = &mut self.cells[c];
        if !cell.floor.contains(&v) && !cell.since.iter().any(|s| s.0 == v) {
            return Err(format!(
                "after the crash cell {c} holds version {v}; certain was {:?}, later {:?}",
                cell.floor, cell.since
            ));
        }
        *cell = Cell {
            live: vec![v],
            floor: vec![v],
            since: Vec::new(),
            log: Vec::new(),
        };
        self.busy.remove(&c);
        Ok(())
    }
    /// In degraded service a cell may be old, but never anybody else's.
    pub fn check_own(c: usize, data: &[u8]) -> Result<(), String> {
        version_of(c, data)
            .map(|_| ())
            .map_err(|e| format!("degraded: cell {c} holds {e}"))
    }
    /// May a cell hold this version now?
    pub fn is_live(&self, c: usize, data: &[u8]) -> bool {
        version_of(c, data).is_ok_and(|v| self.cells[c].live.contains(&v))
    }
}
