//! The one trait behind which every device model stands, and what a model reports.

use isotherm_core::Nanos;

/// What a modelled device is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ModelOp {
    /// Read `len` bytes.
    Read,
    /// Write `len` bytes.
    Write,
    /// Make completed writes durable.
    Flush,
    /// The range is unused from now on.
    Discard,
    /// Go to the lowest power state; the next access wakes the device.
    Standby,
}

/// The power states a device passes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PowerState {
    /// Ready, nothing to do.
    Idle = 0,
    /// Moving data, or waiting for the platter to bring it.
    Active = 1,
    /// Moving the arm.
    Seek = 2,
    /// Spun down or asleep.
    Standby = 3,
    /// Going to standby.
    SpinDown = 4,
    /// Waking.
    SpinUp = 5,
}

/// How many power states there are.
pub const POWER_STATES: usize = 6;

/// What a device did since it was made. Times are nanoseconds of device time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counters {
    /// Reads completed or in progress.
    pub reads: u64,
    /// Writes completed or in progress.
    pub writes: u64,
    /// Flushes asked for.
    pub flushes: u64,
    /// Discards asked for.
    pub discards: u64,
    /// Bytes asked to be read.
    pub bytes_read: u64,
    /// Bytes asked to be written.
    pub bytes_written: u64,
    /// Bytes discarded.
    pub bytes_discarded: u64,
    /// 4 KiB pages touched by reads, partly touched ones counted whole (GreenDM 6.1.5).
    pub pages_read: u64,
    /// 4 KiB pages touched by writes, partly touched ones counted whole.
    pub pages_written: u64,
    /// Time with at least one operation in the device (SSD, remote) or with the arm at work (HDD).
    pub busy_ns: u64,
    /// Arm movements over at least one cylinder.
    pub seeks: u64,
    /// Cylinders crossed by those.
    pub seek_distance: u64,
    /// Reads served from the on-board cache or by read-ahead already under way.
    pub cache_hits: u64,
    /// Spin-downs begun, each of them one start-stop cycle of the endurance limit.
    pub start_stops: u64,
    /// Time in each [`PowerState`], by its number.
    pub state_ns: [u64; POWER_STATES],
    /// Joules used in each [`PowerState`], by its number.
    pub state_j: [f64; POWER_STATES],
    /// Bytes the medium read, the drive's own housekeeping included (shingled disks only).
    pub medium_bytes_read: u64,
    /// Bytes the medium wrote, the drive's own housekeeping included (shingled disks only).
    pub medium_bytes_written: u64,
    /// Pages the flash programmed, host writes and garbage collection together (with FTL only).
    pub flash_pages_written: u64,
    /// Bytes of these pages (with FTL only).
    pub flash_bytes_written: u64,
    /// Blocks erased (with FTL only).
    pub erases: u64,
}

impl Counters {
    /// Joules over all power states.
    pub fn energy_j(&self) -> f64 {
        self.state_j.iter().sum()
    }

    /// Time in `state`.
    pub fn time_in(&self, state: PowerState) -> Nanos {
        Nanos(self.state_ns[state as usize])
    }

    pub(crate) fn note(&mut self, op: ModelOp, offset: u64, len: u32) {
        let len = len as u64;
        let pages = if len == 0 {
            0
        } else {
            (offset + len - 1) / 4096 - offset / 4096 + 1
        };
        match op {
            ModelOp::Read => {
                self.reads += 1;
                self.bytes_read += len;
                self.pages_read += pages;
            }
            ModelOp::Write => {
                self.writes += 1;
                self.bytes_written += len;
                self.pages_written += pages;
            }
            ModelOp::Flush => self.flushes += 1,
            ModelOp::Discard => {
                self.discards += 1;
                self.bytes_discarded += len;
            }
            ModelOp::Standby => {}
        }
    }
}

/// Device life used, in eu: 10⁻⁶ of the life the data sheet promises (GreenDM 6.1.5).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Wear {
    /// By GreenDM's rule: page writes (and reads at the configured ratio) or start-stop cycles against the limit.
    /// Zero when the sheet states no limit.
    pub host_eu: f64,
    /// By what the flash itself went through: mean erase count against its programme-erase cycles. `None` without FTL.
    pub flash_eu: Option<f64>,
}

/// A device as a value: operations in, completions out, time as an argument.
///
/// Never made false: equal calls give equal answers; `now` of successive calls never goes back (an earlier one counts as
/// the latest seen); every started id comes out of [`poll`](Self::poll) exactly once, in the order of finish times.
pub trait DeviceModel: Send {
    /// Operation `id` arrives at `now`. `offset` counts from the member's first byte; one that lies beyond the drive is
    /// served as if at its last bytes (range checks belong to the caller).
    fn start(&mut self, now: Nanos, id: u64, op: ModelOp, offset: u64, len: u32);

    /// Like [`start`](Self::start) for devices that know the finish time at once (flash, remote): returns it, and `poll` will
    /// not report the operation, so that a caller can keep one heap for all its devices. `None`: nothing was started, use
    /// `start` (disks, whose arm may take a later command first).
    fn start_timed(&mut self, _now: Nanos, _op: ModelOp, _offset: u64, _len: u32) -> Option<Nanos> {
        None
    }

    /// When [`poll`](Self::poll) will next have something, or do something, if nothing else is started.
    fn next_event(&self) -> Option<Nanos>;

    /// Append the ids of operations finished by `now`.
    fn poll(&mut self, now: Nanos, done: &mut Vec<u64>);

    /// What happened until `now`, energy of the time since the last operation included.
    fn counters(&self, now: Nanos) -> Counters;

    /// Life used so far.
    fn wear(&self) -> Wear;

    /// From now on so many page reads count as one page write in [`Wear::host_eu`], those of the past included; 0 = reads
    /// do not count. Only flash heeds it.
    fn set_reads_per_write(&mut self, _reads: f64) {}

    /// Bytes of the modelled drive.
    fn capacity(&self) -> u64;
}
