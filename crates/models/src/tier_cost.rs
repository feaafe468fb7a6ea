//! The costs of a device that a policy knows before anything was measured: times, energy and wear from its data sheet. They are found by
//! driving its model, so that policy and model never disagree.

use crate::check::SheetError;
use crate::measure::{Work, run};
use crate::model::{DeviceModel, ModelOp};
use crate::options::Options;
use crate::sheet::Sheet;
use crate::sleep::Sleep;
use isotherm_core::Nanos;
use isotherm_core::load::Cost;

/// The two lengths from whose difference the time and energy per byte are taken, and the number of operations of each.
const SHORT: u32 = 4 << 10;
const LONG: u32 = 1 << 20;
const COUNT: u64 = 512;

/// The mean of one operation.
struct Mean {
    ns: f64,
    /// Above the idle energy, until the medium has all data.
    joules: f64,
}

fn measure(model: &mut dyn DeviceModel, idle_w: f64, mut work: Work) -> Mean {
    work.span = work.span.max(u64::from(work.len));
    let (outcome, end) = run(model, Nanos(0), &work);
    // Cached data is written to the medium before the energy is read.
    let flush = Work {
        op: ModelOp::Flush,
        count: 1,
        ..work
    };
    let (_, end) = run(model, end, &flush);
    let joules = model.counters(end).energy_j() - idle_w * end.as_secs_f64();
    Mean {
        ns: outcome.mean_us * 1e3,
        joules: joules.max(0.0) / COUNT as f64,
    }
}

impl Sheet {
    /// The costs of this device at depth 1. Small operations are 4 KiB at random places of the member (or sequential); the cost per byte is
    /// the difference between these and operations of 1 MiB, divided by the difference in length. The wear per byte is the price divided by
    /// the bytes that may be written ([`Sheet::write_limit_bytes`]).
    ///
    /// # Errors
    /// As [`Sheet::model`].
    pub fn cost(&self, options: &Options) -> Result<Cost, SheetError> {
        let options = Options {
            flash: crate::FlashState::Rated,
            ..*options
        };
        let size = if options.size == 0 {
            self.capacity()
        } else {
            options.size
        };
        let sleep = Sleep::of_sheet(self);
        let idle_w = sleep.map_or(0.0, |s| s.idle_w);
        let of = |op, random, len| -> Result<Mean, SheetError> {
            let work = Work {
                op,
                len,
                random,
                span: size,
                depth: 1,
                count: COUNT,
                seed: 1,
            };
            Ok(measure(&mut *self.model(&options)?, idle_w, work))
        };
        let (read, write) = (
            of(ModelOp::Read, true, SHORT)?,
            of(ModelOp::Write, true, SHORT)?,
        );
        let long_read = of(ModelOp::Read, true, LONG)?;
        let long_write = of(ModelOp::Write, true, LONG)?;
        let next = of(ModelOp::Read, false, SHORT)?;
        let more = f64::from(LONG - SHORT);
        let byte = |long: f64, short: f64| (long - short).max(0.0) / more;
        let ps = |long: &Mean, short: &Mean| (byte(long.ns, short.ns) * 1e3) as u64;
        let nanos = |m: &Mean| Nanos(m.ns as u64);
        let wear = self
            .price_usd
            .zip(self.write_limit_bytes())
            .map_or(0.0, |(usd, bytes)| usd / bytes);
        Ok(Cost {
            read: nanos(&read),
            write: nanos(&write),
            sequential: nanos(&next),
            read_byte_ps: ps(&long_read, &read),
            write_byte_ps: ps(&long_write, &write),
            read_nj: (read.joules * 1e9) as u64,
            write_nj: (write.joules * 1e9) as u64,
            byte_pj: (byte(long_read.joules, read.joules) * 1e12) as u64,
            wear_byte_fusd: (wear * 1e15) as u64,
            wake: Nanos(sleep.map_or(0, |s| (s.up_s * 1e9) as u64)),
            wake_uj: sleep.map_or(0, |s| (s.up_j * 1e6) as u64),
            idle_uw: sleep.map_or(0, |s| (s.idle_w * 1e6) as u64),
            standby_uw: sleep.map_or(0, |s| (s.standby_w * 1e6) as u64),
            down: Nanos(sleep.map_or(0, |s| (s.down_s * 1e9) as u64)),
            down_uj: sleep.map_or(0, |s| (s.down_j * 1e6) as u64),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sheet;

    fn cost(name: &str) -> Cost {
        sheet(name).unwrap().cost(&Options::default()).unwrap()
    }

    #[test]
    fn costs_follow_the_sheets() {
        // 270 to 130 MB/s are 3 700 to 7 700 ps per byte; the rest is half a revolution of 8.33 ms, a third of the stroke, and settling.
        let disk = cost("exos-18tb");
        assert!((3_500..8_000).contains(&disk.read_byte_ps), "{disk:?}");
        assert!((10..16).contains(&(disk.read.0 / 1_000_000)), "{disk:?}");
        assert!(disk.sequential.0 * 20 < disk.read.0, "{disk:?}");
        // At most 4.1 W above idle for that time.
        let most = disk.read.0 as f64 * (9.4 - 5.3);
        assert!((0.5 * most..=1.01 * most).contains(&(disk.read_nj as f64)));
        assert_eq!((disk.wear_byte_fusd, disk.wake), (0, Nanos::from_secs(25)));
        assert_eq!(disk.wake_uj, 450_000_000);
        // A drive that is specified for 6·10¹⁴ bytes of writes.
        let sheet = sheet("nvme-tlc").unwrap();
        let flash = cost("nvme-tlc");
        let usd = sheet.price_usd.unwrap();
        assert_eq!(flash.wear_byte_fusd, (usd / 6e14 * 1e15) as u64);
        assert!(flash.read.0 * 50 < disk.read.0 && flash.read_nj < disk.read_nj);
    }

    #[test]
    fn every_preset_has_a_cost() {
        for s in crate::presets().unwrap() {
            let c = s.cost(&Options::default()).unwrap();
            assert!(
                c.read.0 > 0 && c.write.0 > 0 && c.sequential <= c.read,
                "{}: {c:?}",
                s.name
            );
            // The engine and the data sheet agree about when sleep pays, to a microsecond.
            let even = Sleep::of_sheet(&s).and_then(|s| s.break_even_s());
            let own = c.break_even().map(Nanos::as_secs_f64);
            let near = |(a, b): (f64, f64)| (a - b).abs() < 1e-5 * a.max(1.0);
            assert!(
                even.zip(own).is_none_or(near) && (even.is_some() || own.is_none()),
                "{}: {even:?}, {own:?}",
                s.name
            );
            assert!(s.hdd.is_none() || (own.is_some() && !c.saved_uw().1));
        }
        // A member that is smaller than the drive, and smaller than the operation.
        let small = Options {
            size: 1 << 16,
            ..Options::default()
        };
        assert!(sheet("exos-18tb").unwrap().cost(&small).is_ok());
    }
}
