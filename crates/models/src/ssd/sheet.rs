//! The data sheet of an SSD, in the units that data sheets use.

use serde::Deserialize;

use crate::check::{Check, SheetError};

/// A flash (or phase-change) drive. MB = 10⁶ bytes. Latencies are those of one 4 KiB operation on an idle drive, without its transfer.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SsdSheet {
    /// Capacity in bytes.
    pub capacity: u64,
    /// Number of operations on which the drive works at a time: channels, or dies if they are the limit.
    pub units: u32,
    /// Random read latency.
    pub read_us: f64,
    /// Random read rate with a full queue.
    pub read_iops: f64,
    /// Read latency within a sequential run (the drive has read ahead).
    pub sequential_read_us: f64,
    /// Latency of a random write to the drive's buffer.
    pub write_us: f64,
    /// Random write rate that the flash behind the buffer sustains.
    pub write_iops: f64,
    /// Write latency within a sequential run.
    pub sequential_write_us: f64,
    /// Interface or media rate, whichever is lower.
    pub read_mb_s: f64,
    /// The same for writes.
    pub write_mb_s: f64,
    /// Additional time of a FLUSH after the last write, and after the programming of what is in the buffer if that is not protected.
    pub flush_us: f64,
    /// Written data that waits for the flash, at most, in KiB. A write that fits is answered at once. 0: a write is answered when units
    /// take it.
    #[serde(default = "usual_buffer_kib")]
    pub write_buffer_kib: u32,
    /// Whether the buffer survives a loss of power (capacitors), so that FLUSH does not wait for the flash.
    #[serde(default)]
    pub power_loss_protection: bool,
    /// Time of a discard of any length.
    pub discard_us: f64,
    /// Power of each state.
    pub power: SsdPower,
    /// Host writes for which the drive is specified, in GB (10⁹ bytes); 0 = not stated.
    pub write_limit_gb: f64,
    /// Wear: how many page reads count as one page write (GreenDM 6.1.5 uses 10 and 100); 0 = reads do not count.
    #[serde(default = "ten")]
    pub reads_per_write: f64,
    /// The flash layer. It is simulated unless [`crate::Options::flash`] is `Ideal` or `Rated`.
    pub ftl: Option<FtlSheet>,
}

/// The power of an SSD in its states.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SsdPower {
    /// Without work.
    pub idle_w: f64,
    /// All units reading.
    pub read_w: f64,
    /// All units writing.
    pub write_w: f64,
    /// After a Standby operation.
    pub standby_w: f64,
    /// Time from standby to ready.
    pub wake_us: f64,
}

/// The flash below the drive.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FtlSheet {
    /// Mapping unit.
    pub page_kib: u32,
    /// Pages of a block, which are erased together.
    pub pages_per_block: u32,
    /// Spare flash as a share of the logical space: (physical - logical) / logical.
    pub over_provisioning: f64,
    /// Time to copy one page in garbage collection: a read and a programme of one unit.
    pub copy_us: f64,
    /// Time to erase one block.
    pub erase_us: f64,
    /// Programme-erase cycles that a block survives; 0 = not stated.
    pub pe_cycles: f64,
    /// Share of the spare flash that the drive erases ahead while it is idle; 0: it collects only when a write needs room.
    #[serde(default = "usual_erased_ahead")]
    pub erased_ahead: f64,
    /// The choice of victims.
    #[serde(default)]
    pub collection: Collection,
    /// The state in which the sheet's `write_iops` were measured.
    #[serde(default)]
    pub rated: Rated,
}

/// The block that garbage collection takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Collection {
    /// The block with the fewest valid pages.
    #[default]
    Greedy,
}

/// The state of a drive whose random write rate is stated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rated {
    /// Fresh, or written over a small part only: the cost of garbage collection is added to the figure.
    #[default]
    Fresh,
    /// Written over the whole drive until the rate settled: the figure includes garbage collection.
    Steady,
}

fn ten() -> f64 {
    10.0
}

/// The buffer of a drive whose sheet states none: about a physical page of each chip. Makers do not publish it.
fn usual_buffer_kib() -> u32 {
    1024
}

/// The share of a drive whose sheet states none: small enough that the victims are nearly those of collection at need. Makers do not
/// publish it.
fn usual_erased_ahead() -> f64 {
    0.05
}

impl SsdSheet {
    pub(crate) fn check(&self, file: &str) -> Result<(), SheetError> {
        let c = Check { file, table: "ssd" };
        c.at_least("capacity", self.capacity as f64, 1e6)?;
        c.within("units", f64::from(self.units), 1.0, 1024.0)?;
        c.at_least("read_us", self.read_us, 0.0)?;
        c.within(
            "sequential_read_us",
            self.sequential_read_us,
            0.0,
            self.read_us,
        )?;
        c.at_least("read_iops", self.read_iops, 1.0)?;
        c.at_least("write_us", self.write_us, 0.0)?;
        c.within(
            "sequential_write_us",
            self.sequential_write_us,
            0.0,
            self.write_us,
        )?;
        c.at_least("write_iops", self.write_iops, 1.0)?;
        c.at_least("read_mb_s", self.read_mb_s, 1.0)?;
        c.at_least("write_mb_s", self.write_mb_s, 1.0)?;
        c.at_least("flush_us", self.flush_us, 0.0)?;
        let most = f64::from(16 << 20);
        c.within(
            "write_buffer_kib",
            f64::from(self.write_buffer_kib),
            0.0,
            most,
        )?;
        c.at_least("discard_us", self.discard_us, 0.0)?;
        c.at_least("write_limit_gb", self.write_limit_gb, 0.0)?;
        c.within("reads_per_write", self.reads_per_write, 0.0, 1e9)?;
        let p = &self.power;
        let c = Check {
            file,
            table: "ssd.power",
        };
        c.at_least("standby_w", p.standby_w, 0.0)?;
        c.at_least("idle_w", p.idle_w, p.standby_w)?;
        c.at_least("read_w", p.read_w, p.idle_w)?;
        c.at_least("write_w", p.write_w, p.idle_w)?;
        c.at_least("wake_us", p.wake_us, 0.0)?;
        if let Some(f) = &self.ftl {
            let c = Check {
                file,
                table: "ssd.ftl",
            };
            c.within("page_kib", f64::from(f.page_kib), 1.0, 1024.0)?;
            c.within(
                "pages_per_block",
                f64::from(f.pages_per_block),
                2.0,
                65_535.0,
            )?;
            c.within("over_provisioning", f.over_provisioning, 0.01, 10.0)?;
            c.within("erased_ahead", f.erased_ahead, 0.0, 0.5)?;
            c.at_least("copy_us", f.copy_us, 0.0)?;
            c.at_least("erase_us", f.erase_us, 0.0)?;
            c.at_least("pe_cycles", f.pe_cycles, 0.0)?;
        }
        Ok(())
    }
}
