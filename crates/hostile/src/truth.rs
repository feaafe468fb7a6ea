//! The expected contents: the values that every cell of the volume may have, now and after a crash.
//!
//! A cell has 64 bytes, an eighth of a sector, so that unaligned requests can be checked, too. It contains its own address and a version;
//! version 0 is zeros. After a discard in a cache volume, which promises nothing about discarded blocks, a cell may contain any of its versions
//! or what the device leaves after a discard. Usually only one write of a cell is in progress, so that the last version is known. Some writes are concurrent: then
//! any of their versions may be the last one, but when a read has returned one of them, this version must stay.

use std::collections::BTreeMap;

/// Number of bytes in a cell.
pub const CELL: usize = 64;

/// In place of a version: nothing is promised.
const UNDEFINED: u64 = u64::MAX;
/// In place of a version: it was lost with flash, and reading it is an error until it is written again.
const LOST: u64 = u64::MAX - 1;
/// What the devices of the hostile world contain after a discard.
pub const DISCARDED: u8 = 0xdd;

/// A change of cells, as a client asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// They get a version of their own.
    Write,
    /// They become zeros.
    Zero,
    /// Nothing is promised about them until they are written again.
    Forget,
}

/// One cell.
#[derive(Clone, Debug, Default)]
struct Cell {
    /// Whether it was ever discarded without a promise.
    forgotten: bool,
    /// Whether it was ever lost.
    was_lost: bool,
    /// The versions that a read may return, in addition to those of writes in progress.
    live: Vec<u64>,
    /// The versions of which one was made durable by the last FLUSH (more than one after errors).
    floor: Vec<u64>,
    /// The race from which `floor` comes.
    floor_race: u64,
    /// The versions that were written since then, each with the moment of its acknowledgement and its race.
    since: Vec<(u64, Option<u64>, u64)>,
    /// All versions that were ever written, for reads that overlap writes.
    log: Vec<u64>,
    /// The present or last race: its versions, its number, the state before it, and whether one of its writes succeeded.
    racers: Vec<u64>,
    race: u64,
    before: Vec<u64>,
    any_ok: bool,
}

/// For each cell of a read in progress: the versions that it may return, the length of the log, and whether no write was in progress.
pub type Expect = Vec<(Vec<u64>, usize, bool)>;

/// See the module.
#[derive(Clone, Debug)]
pub struct Truth {
    cells: Vec<Cell>,
    versions: u64,
    clock: u64,
    /// The cells that are being written, with the versions of the writers.
    busy: BTreeMap<usize, Vec<u64>>,
}

/// The content of a cell for a version.
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

/// The version that a cell contains, or the fault in its bytes.
fn version_of(cell: usize, b: &[u8]) -> Result<u64, String> {
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
    /// The expected contents of a new volume: all cells are zero, durably.
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
    /// The volume has grown; its new part is zero, durably.
    pub fn grow(&mut self, bytes: u64) {
        let new = Truth::new(bytes).cells.split_off(self.cells.len());
        self.cells.extend(new);
    }
    /// Number of cells.
    pub fn cells(&self) -> usize {
        self.cells.len()
    }
    /// Whether any cell of the range is being written.
    pub fn is_busy(&self, from: usize, to: usize) -> bool {
        self.busy.range(from..to).next().is_some()
    }
    /// Whether another write may race with those in progress. It may not race with a write of zeros, which has no version of its own.
    pub fn may_race(&self, from: usize, to: usize) -> bool {
        self.busy.range(from..to).all(|(_, writers)| {
            let own = |&w: &u64| w != 0 && w != UNDEFINED;
            writers.iter().all(own) && writers.len() < 3
        })
    }
    /// Notes that a change of cells `from..to` is issued. Returns its version.
    pub fn issue(&mut self, from: usize, to: usize, what: Change) -> u64 {
        self.versions += 1;
        let v = match what {
            Change::Write => self.versions,
            Change::Zero => 0,
            Change::Forget => UNDEFINED,
        };
        for c in from..to {
            let writers = self.busy.entry(c).or_default();
            let cell = &mut self.cells[c];
            if writers.is_empty() {
                cell.racers.clear();
                cell.before = cell.live.clone();
                cell.race = self.versions;
                cell.any_ok = false;
            }
            cell.forgotten |= what == Change::Forget;
            writers.push(v);
            cell.racers.push(v);
            cell.since.push((v, None, cell.race));
            cell.log.push(v);
        }
        v
    }
    /// Notes that a write was answered.
    pub fn answered(&mut self, from: usize, to: usize, version: u64, ok: bool) {
        self.clock += 1;
        for c in from..to {
            if let Some(writers) = self.busy.get_mut(&c) {
                if let Some(i) = writers.iter().position(|&w| w == version) {
                    writers.swap_remove(i);
                }
                if writers.is_empty() {
                    self.busy.remove(&c);
                }
            }
            let cell = &mut self.cells[c];
            cell.any_ok |= ok;
            if ok {
                let mut mine = cell.since.iter_mut().rev();
                if let Some(s) = mine.find(|s| s.0 == version && s.2 == cell.race) {
                    s.1 = Some(self.clock);
                }
            }
            cell.live = cell.racers.clone();
            if !cell.any_ok {
                cell.live.extend(&cell.before);
            }
        }
    }
    /// Notes that the volume was closed, so that all answered data is durable.
    pub fn settled(&mut self) {
        for cell in &mut self.cells {
            cell.floor = cell.live.clone();
            cell.floor_race = cell.race;
            cell.since.clear();
        }
    }
    /// The present moment, for a FLUSH that is issued now.
    pub fn moment(&self) -> u64 {
        self.clock
    }
    /// Notes that a FLUSH that was issued at `moment` has succeeded: data that was acknowledged before that moment is durable.
    pub fn flushed(&mut self, moment: u64) {
        for c in 0..self.cells.len() {
            self.made_durable(c, moment);
        }
    }
    /// Notes that a FUA write of these cells has succeeded.
    pub fn forced(&mut self, from: usize, to: usize) {
        for c in from..to {
            self.made_durable(c, self.clock);
        }
    }
    fn made_durable(&mut self, c: usize, moment: u64) {
        let cell = &mut self.cells[c];
        if let Some(i) = cell
            .since
            .iter()
            .rposition(|s| s.1.is_some_and(|t| t <= moment))
        {
            let race = cell.since[i].2;
            if cell.floor_race != race {
                cell.floor.clear();
                cell.floor_race = race;
            }
            let certain = cell.since.drain(..=i).filter(|s| s.2 == race);
            cell.floor.extend(certain.map(|s| s.0));
        }
    }
    /// What a read of cells `from..to` that is issued now may return.
    pub fn expect(&self, from: usize, to: usize) -> Expect {
        (from..to)
            .map(|c| {
                let cell = &self.cells[c];
                let mut ok = cell.live.clone();
                let quiet = !self.busy.contains_key(&c);
                if !quiet {
                    ok.extend(&cell.racers);
                }
                (ok, cell.log.len(), quiet)
            })
            .collect()
    }
    /// Checks the data that a read returned.
    pub fn check_read(&mut self, from: usize, expect: &Expect, data: &[u8]) -> Result<(), String> {
        for (i, (ok, log, quiet)) in expect.iter().enumerate() {
            let c = from + i;
            let v = self
                .version(c, &data[i * CELL..(i + 1) * CELL])
                .map_err(|e| format!("read of cell {c} returned {e}"))?;
            let cell = &mut self.cells[c];
            if !allows(ok, v) && !allows(&cell.log[*log..], v) {
                return Err(format!(
                    "read of cell {c} returned version {v}, allowed were {ok:?}"
                ));
            }
            // As long as nothing is promised, each read may return something else.
            if *quiet && cell.log.len() == *log && !cell.live.contains(&UNDEFINED) {
                // No write was in progress during the read, so the returned version is the valid one from now on.
                if !cell.live.contains(&v) {
                    return Err(format!(
                        "read of cell {c} returned version {v}, another had shown {:?}",
                        cell.live
                    ));
                }
                cell.live = vec![v];
            }
        }
        Ok(())
    }
    /// Checks a cell after a crash. The version that it has now must stay.
    pub fn check_crashed(&mut self, c: usize, data: &[u8]) -> Result<(), String> {
        let v = self
            .version(c, data)
            .map_err(|e| format!("after the crash cell {c} holds {e}"))?;
        let cell = &mut self.cells[c];
        let later = cell.since.iter().any(|s| s.0 == v || s.0 == UNDEFINED);
        if !allows(&cell.floor, v) && !later {
            return Err(format!(
                "after the crash cell {c} holds version {v}; certain was {:?}, later {:?}",
                cell.floor, cell.since
            ));
        }
        self.stays(c, v);
        Ok(())
    }
    /// From now on, a cell has this version and no other, and it is durable.
    fn stays(&mut self, c: usize, v: u64) {
        self.cells[c] = Cell {
            live: vec![v],
            floor: vec![v],
            forgotten: self.cells[c].forgotten,
            was_lost: self.cells[c].was_lost,
            ..Cell::default()
        };
        self.busy.remove(&c);
    }
    /// Accepts an older version of a cell, because writes to a missing cache were dropped. This version must stay from now on.
    pub fn adopt(&mut self, c: usize, data: &[u8]) -> Result<(), String> {
        let v = self
            .version(c, data)
            .map_err(|e| format!("without its cache cell {c} holds {e}"))?;
        self.stays(c, v);
        Ok(())
    }
    /// The newest version of a cell is lost, and the volume says so. Writes in progress may still end.
    pub fn forfeit(&mut self, c: usize) {
        // A FLUSH may have made one of several racing writes durable, so that those in progress are not noted any more.
        let writers = self.busy.get(&c).cloned().unwrap_or_default();
        let cell = &mut self.cells[c];
        cell.since = writers.iter().map(|&v| (v, None, cell.race)).collect();
        cell.racers = writers;
        (cell.live, cell.before, cell.floor) = (vec![LOST], vec![LOST], vec![LOST]);
        (cell.floor_race, cell.any_ok, cell.was_lost) = (0, false, true);
    }
    /// Whether a read of cells from `from` on, of which this was expected when it was issued, may fail.
    pub fn may_fail(&self, from: usize, expect: &Expect) -> bool {
        let was = expect.iter().any(|e| e.0.contains(&LOST));
        was || (from..from + expect.len()).any(|c| self.cells[c].live.contains(&LOST))
    }
    /// Cells were lost while this read of those from `from` on was in progress.
    pub fn lost_meanwhile(&self, from: usize, expect: &mut Expect) {
        for (c, e) in (from..).zip(expect) {
            if self.cells[c].live.contains(&LOST) {
                e.0.push(LOST);
            }
        }
    }
    /// Whether a cell was ever lost.
    pub fn was_lost(&self, c: usize) -> bool {
        self.cells[c].was_lost
    }
    /// Checks a cell that cannot be read after a crash.
    pub fn check_unreadable(&mut self, c: usize) -> Result<(), String> {
        let cell = &self.cells[c];
        if !cell.floor.contains(&LOST) {
            return Err(format!(
                "cell {c} cannot be read; certain was {:?}, later {:?}",
                cell.floor, cell.since
            ));
        }
        self.stays(c, LOST);
        Ok(())
    }
    /// Checks a cell in degraded service: it may have an older version, but never the bytes of another cell.
    pub fn check_own(&self, c: usize, data: &[u8]) -> Result<(), String> {
        self.version(c, data)
            .map(|_| ())
            .map_err(|e| format!("degraded: cell {c} holds {e}"))
    }
    /// The version that a cell contains, or the fault in its bytes.
    pub fn version(&self, c: usize, data: &[u8]) -> Result<u64, String> {
        if self.cells[c].forgotten && data.iter().all(|&b| b == DISCARDED) {
            return Ok(UNDEFINED);
        }
        version_of(c, data)
    }
    /// Whether a cell may have this version now.
    pub fn is_live(&self, c: usize, data: &[u8]) -> bool {
        self.version(c, data)
            .is_ok_and(|v| allows(&self.cells[c].live, v))
    }
}

/// Whether a cell of which one of these versions is valid may contain `v`.
fn allows(versions: &[u64], v: u64) -> bool {
    versions.contains(&v) || versions.contains(&UNDEFINED)
}
