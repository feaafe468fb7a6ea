//! The one trait that every device model implements, and the figures that a model reports.

use isotherm_core::Nanos;

/// An operation of a modelled device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ModelOp {
    /// Read `len` bytes.
    Read,
    /// Write `len` bytes.
    Write,
    /// Write `len` bytes past a cache of writes: they are durable at the end (FUA).
    WriteThrough,
    /// Make completed writes durable.
    Flush,
    /// The range is unused from now on.
    Discard,
    /// Go to the lowest power state. The next access wakes the device.
    Standby,
}

/// The power states of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PowerState {
    /// Ready, without work.
    Idle = 0,
    /// Moving data, or waiting for the platter to bring it.
    Active = 1,
    /// Moving the arm.
    Seek = 2,
    /// Spun down, or asleep.
    Standby = 3,
    /// On the way to standby.
    SpinDown = 4,
    /// Waking up.
    SpinUp = 5,
}

/// The number of power states.
pub const POWER_STATES: usize = 6;

/// Counters of a device since it was made. Times are nanoseconds of device time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counters {
    /// Reads completed or in progress.
    pub reads: u64,
    /// Writes completed or in progress.
    pub writes: u64,
    /// Flushes that were issued.
    pub flushes: u64,
    /// Discards that were issued.
    pub discards: u64,
    /// Bytes of all reads that were issued.
    pub bytes_read: u64,
    /// Bytes of all writes that were issued.
    pub bytes_written: u64,
    /// Bytes discarded.
    pub bytes_discarded: u64,
    /// 4 KiB pages that reads touch; a page that is touched in part counts as a whole (GreenDM 6.1.5).
    pub pages_read: u64,
    /// 4 KiB pages that writes touch; a page that is touched in part counts as a whole.
    pub pages_written: u64,
    /// Time with at least one operation in the device (SSD, remote) or with the arm at work (HDD).
    pub busy_ns: u64,
    /// Arm movements over at least one cylinder.
    pub seeks: u64,
    /// Cylinders that these movements crossed.
    pub seek_distance: u64,
    /// Reads that were served from the on-board cache or by read-ahead in progress.
    pub cache_hits: u64,
    /// Spin-downs that were begun. Each is one start-stop cycle of the endurance limit.
    pub start_stops: u64,
    /// Time in each [`PowerState`], by its number.
    pub state_ns: [u64; POWER_STATES],
    /// Joules used in each [`PowerState`], by its number.
    pub state_j: [f64; POWER_STATES],
    /// Bytes that were read from the medium, including the drive's own housekeeping (shingled disks only).
    pub medium_bytes_read: u64,
    /// Bytes that were written to the medium, including the drive's own housekeeping (shingled disks only).
    pub medium_bytes_written: u64,
    /// Pages that the flash programmed, for host writes and garbage collection together (with FTL only).
    pub flash_pages_written: u64,
    /// Bytes of these pages (with FTL only).
    pub flash_bytes_written: u64,
    /// Blocks that were erased (with FTL only).
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
            ModelOp::Write | ModelOp::WriteThrough => {
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

/// Device life used, in eu. One eu is 10⁻⁶ of the life that the data sheet states (GreenDM 6.1.5).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Wear {
    /// By GreenDM's rule: page writes (and reads at the configured ratio), or start-stop cycles, divided by the limit. Zero if the sheet
    /// states no limit.
    pub host_eu: f64,
    /// By the wear of the flash itself: mean erase count divided by its programme-erase cycles. `None` without FTL.
    pub flash_eu: Option<f64>,
}

/// What an operation takes at least, whatever came before it and whatever else the device does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Least {
    /// From start to end.
    pub whole: Nanos,
    /// The part of this time in which the device does nothing else of the kind, such as the transfer. For an operation in the place of
    /// several it is at least their sum.
    pub alone: Nanos,
}

/// A device as a value: operations go in, completions come out, and time is an argument.
///
/// Invariants: equal calls give equal answers; `now` never goes back between calls (an earlier `now` counts as the latest one seen); every
/// started id is reported by [`poll`](Self::poll) exactly once, in the order of finish times.
pub trait DeviceModel: Send {
    /// Operation `id` arrives at `now`. `offset` counts from the member's first byte. An offset beyond the drive is served as if it were at
    /// the last bytes (the caller is responsible for range checks).
    fn start(&mut self, now: Nanos, id: u64, op: ModelOp, offset: u64, len: u32);

    /// As [`start`](Self::start), for devices that know the finish time at once (flash, remote). It returns that time and `poll` does not
    /// report the operation, so that a caller can keep one heap for all its devices. `None` means that nothing was started and that `start`
    /// must be used (disks, whose arm may serve a later command first).
    fn start_timed(&mut self, _now: Nanos, _op: ModelOp, _offset: u64, _len: u32) -> Option<Nanos> {
        None
    }

    /// The time of the next event (a completion or an internal step) if nothing else is started.
    fn next_event(&self) -> Option<Nanos>;

    /// Appends the ids of operations that finished by `now`.
    fn poll(&mut self, now: Nanos, done: &mut Vec<u64>);

    /// The least times of a read or write of `len` bytes. Both grow with the length. `None`: the device knows none that is near the usual time
    /// (a disk, whose arm and platter may be at the right place by chance, and whose buffer may have the data).
    fn least(&self, _op: ModelOp, _len: u32) -> Option<Least> {
        None
    }

    /// The counters at `now`, including the energy of the time since the last operation.
    fn counters(&self, now: Nanos) -> Counters;

    /// Life used so far.
    fn wear(&self) -> Wear;

    /// Sets how many page reads count as one page write in [`Wear::host_eu`], for past reads as well; 0 = reads do not count. Only flash
    /// uses it.
    fn set_reads_per_write(&mut self, _reads: f64) {}

    /// Capacity of the modelled drive in bytes.
    fn capacity(&self) -> u64;
}
