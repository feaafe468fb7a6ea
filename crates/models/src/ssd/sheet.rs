//! What an SSD's data sheet says, in the units data sheets use.

use serde::Deserialize;

use crate::sheet::{Check, SheetError};

/// A flash (or phase-change) drive. MB = 10⁶ bytes; latencies are of one 4 KiB operation on an idle drive, without
/// its transfer.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SsdSheet {
    /// Bytes.
    pub capacity: u64,
    /// Operations the drive works on at a time: channels, or dies where they decide.
    pub units: u32,
    /// Random read latency.
    pub read_us: f64,
    /// Random read rate with the queue full.
    pub read_iops: f64,
    /// Read latency inside a sequential run (the drive has read ahead).
    pub sequential_read_us: f64,
    /// Random write latency, to the drive's protected buffer.
    pub write_us: f64,
    /// Random write rate that the flash behind the buffer sustains.
    pub write_iops: f64,
    /// Write latency inside a sequential run.
    pub sequential_write_us: f64,
    /// Interface or media rate, whichever is lower.
    pub read_mb_s: f64,
    /// The same for writes.
    pub write_mb_s: f64,
    /// What a FLUSH adds after the last write.
    pub flush_us: f64,
    /// A discard, whatever its length.
    pub discard_us: f64,
    /// Power.
    pub power: SsdPower,
    /// Host writes the drive is made for, in GB (10⁹ bytes); 0 = not stated.
    pub write_limit_gb: f64,
    /// Wear: so many page reads count as one page write (GreenDM 6.1.5 uses 10 and 100); 0 = reads do not count.
    #[serde(default = "ten")]
    pub reads_per_write: f64,
    /// Flash layer; runs unless [`crate::Options::flash`] says `Ideal`.
    pub ftl: Option<FtlSheet>,
}

/// An SSD's power states.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SsdPower {
    /// Nothing to do.
    pub idle_w: f64,
    /// All units reading.
    pub read_w: f64,
    /// All units writing.
    pub write_w: f64,
    /// After a Standby operation.
    pub standby_w: f64,
    /// Standby to ready.
    pub wake_us: f64,
}

/// The flash below.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FtlSheet {
    /// Mapping unit.
    pub page_kib: u32,
    /// Pages erased together.
    pub pages_per_block: u32,
    /// Spare flash as a share of the logical space: (physical - logical) / logical.
    pub over_provisioning: f64,
    /// Copying one page in garbage collection, a read and a programme of one unit.
    pub copy_us: f64,
    /// Erasing one block.
    pub erase_us: f64,
    /// Programme-erase cycles a block survives; 0 = not stated.
    pub pe_cycles: f64,
    /// Which blocks are collected.
    #[serde(default)]
    pub collection: Collection,
    /// In which state the sheet's `write_iops` were taken.
    #[serde(default)]
    pub rated: Rated,
}

/// Which block a collection takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Collection {
    /// The one with the fewest valid pages.
    #[default]
    Greedy,
}

/// The state of a drive whose random write rate is stated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rated {
    /// Fresh, or written over a small part only: collection comes on top.
    #[default]
    Fresh,
    /// Written over all of it until the rate settled: collection is in the figure.
    Steady,
}

fn ten() -> f64 {
    10.0
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
            c.at_least("copy_us", f.copy_us, 0.0)?;
            c.at_least("erase_us", f.erase_us, 0.0)?;
            c.at_least("pe_cycles", f.pe_cycles, 0.0)?;
        }
        Ok(())
    }
}
