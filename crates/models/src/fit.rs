//! Makes a sheet for the user's own device from figures that were measured on it.
//!
//! Fitted are the parameters that a few short runs can determine: latencies and rates; the number of units by Little's law; seeks by the
//! difference between random reads over the whole disk and over a hundredth of it. The other parameters (power, wear, and what
//! manufacturers do not publish) get values that are typical for the kind of device, and the sheet marks them as such.

use std::fmt::Write;

use crate::check::SheetError;
use crate::measure::{Comparison, validate};
use crate::sheet::Sheet;

/// The measured figures. Latencies are typical ones in microseconds at depth 1, without the moments in which the machine did something
/// else. MB are 10⁶ bytes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// Bytes of the device.
    pub capacity: u64,
    /// 4 KiB at random, one in flight.
    pub random_read_us: f64,
    /// The same over the first hundredth of the device.
    pub short_read_us: f64,
    /// 4 KiB at random with `depth` in flight, operations per second.
    pub random_read_iops: f64,
    /// Operations in flight for the rates of random work.
    pub depth: u32,
    /// 4 KiB sequentially, one in flight.
    pub sequential_read_us: f64,
    /// 128 KiB sequentially from the first byte.
    pub outer_mb_s: f64,
    /// 128 KiB sequentially up to the last byte.
    pub inner_mb_s: f64,
    /// Figures of writes, if writes were measured.
    pub writes: Option<Writes>,
}

/// Measured figures of writes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Writes {
    /// As for reads.
    pub random_us: f64,
    /// As for reads.
    pub random_iops: f64,
    /// As for reads.
    pub sequential_us: f64,
    /// As for reads.
    pub mb_s: f64,
    /// A flush after a write.
    pub flush_us: f64,
}

/// A device whose random reads at depth 1 take longer than this, in microseconds, has an arm. Flash takes a few hundred at most.
const ARM_US: f64 = 2_000.0;
/// No arm serves this many operations per second, at any depth.
const ARM_IOPS: f64 = 2_000.0;
/// Half a revolution at 7200 rpm, in microseconds.
const HALF_TURN_US: f64 = 60e6 / 7200.0 / 2.0;
/// The overhead of a command in microseconds, a typical value.
const OVERHEAD_US: f64 = 100.0;

/// The sheet called `name` as TOML, and the deviation of its model from each figure.
///
/// # Errors
/// The figures do not make a valid sheet; the error names the field.
pub fn fit(name: &str, m: &Measured) -> Result<(String, Vec<Comparison>), SheetError> {
    let disk = is_disk(m);
    let mut text = head(name, m, disk);
    text += &if disk { of_disk(m) } else { of_flash(m) };
    text += &published(m, disk);
    let sheet = Sheet::parse(&text, name)?;
    let residuals = validate(&sheet)?;
    let mut head = String::new();
    for r in &residuals {
        let p = &r.published;
        let _ = writeln!(
            head,
            "# residual of {} at depth {}: {:+.1} % (measured {:.2}, by this sheet {:.2})",
            p.what.name(),
            p.depth,
            r.error() * 100.0,
            p.value,
            r.modelled
        );
    }
    Ok((head + &text, residuals))
}

/// Whether the device has an arm. Slow answers alone are no proof: the machine may have been busy.
fn is_disk(m: &Measured) -> bool {
    m.random_read_us > ARM_US && m.random_read_iops < ARM_IOPS
}

fn head(name: &str, m: &Measured, disk: bool) -> String {
    let kind = if disk { "disk" } else { "flash drive" };
    let written = if m.writes.is_some() {
        "reads and writes"
    } else {
        "reads only: what is said of writes is that of reads"
    };
    format!(
        "# Fitted by `isotherm devices measure`, {written}. \"measured\" is from that run, \"typical\" usual for the kind of drive and not\n\
         # measured: power, wear and the flash layer above all.\n\
         name = {name:?}\n\
         description = \"measured {kind} of {:.1} GB\"\n\n",
        m.capacity as f64 / 1e9
    )
}

fn of_flash(m: &Measured) -> String {
    let outer = m.outer_mb_s.max(1.0);
    let w = m.writes.clone().unwrap_or(Writes {
        random_us: m.random_read_us,
        random_iops: m.random_read_iops,
        sequential_us: m.sequential_read_us,
        mb_s: outer,
        flush_us: m.random_read_us,
    });
    let bandwidth = w.mb_s.max(1.0);
    // A latency without its transfer. Within a sequential run it is at most as long as for a random operation.
    let less = |us: f64, mb_s: f64| (us - 4096.0 / mb_s).max(0.1);
    let (read, write) = (less(m.random_read_us, outer), less(w.random_us, bandwidth));
    let units = (m.random_read_iops * m.random_read_us / 1e6)
        .round()
        .clamp(1.0, 1024.0);
    // The drive reaches at least the rate that follows from its latency at depth 1.
    let iops = |iops: f64, us: f64| iops.max(1e6 / us.max(0.1));
    format!(
        "[ssd]\ncapacity = {}\nunits = {units:.0} # measured: operations in progress at depth {}\n\
         read_us = {read:.3} # measured\nread_iops = {:.1} # measured\nsequential_read_us = {:.3} # measured\n\
         write_us = {write:.3}\nwrite_iops = {:.1}\nsequential_write_us = {:.3}\n\
         read_mb_s = {outer:.3} # measured\nwrite_mb_s = {bandwidth:.3}\nflush_us = {:.3}\n\
         power_loss_protection = true # what a FLUSH waits for is in flush_us\ndiscard_us = 50.0 # typical\n\
         write_limit_gb = 0.0 # not stated\n\n\
         [ssd.power]\nidle_w = 1.0 # typical\nread_w = 4.0 # typical\nwrite_w = 5.0 # typical\nstandby_w = 0.1 # typical\nwake_us = 1000.0 # typical\n\n",
        m.capacity,
        m.depth,
        iops(m.random_read_iops, m.random_read_us),
        less(m.sequential_read_us, outer).min(read),
        iops(w.random_iops, w.random_us),
        less(w.sequential_us, bandwidth).min(write),
        w.flush_us.max(0.0),
    )
}

fn of_disk(m: &Measured) -> String {
    let outer = m.outer_mb_s.max(m.inner_mb_s).max(0.2);
    let inner = m.inner_mb_s.clamp(0.1, outer);
    let seek = |us: f64| ((us - HALF_TURN_US - OVERHEAD_US - 4096.0 / outer) / 1e3).max(0.5);
    let average = seek(m.random_read_us);
    // A seek over a hundredth of the stroke takes a little longer than a seek to the next track.
    let track = (0.6 * seek(m.short_read_us)).min(0.5 * average);
    let full = track + (average - track) / 0.45;
    format!(
        "[hdd]\ncapacity = {}\nrpm = 7200.0 # typical; the seeks below stand or fall with it\nheads = 4 # typical\n\
         outer_mb_s = {outer:.3} # measured\ninner_mb_s = {inner:.3} # measured\n\
         track_to_track_ms = {track:.3} # measured: random reads over a hundredth of the disk\n\
         average_seek_ms = {average:.3} # measured\nfull_stroke_ms = {full:.3} # typical ratio to the average\n\
         write_settle_ms = 1.0 # typical\nskew_ms = {:.3} # track-to-track and a margin\noverhead_us = {OVERHEAD_US:.1} # typical\n\
         interface_mb_s = {:.1} # typical\ncache_mib = 64 # typical\nread_ahead_kib = 1024 # typical\nqueue_depth = 32 # typical\n\
         write_cache = true # as drives are shipped\nstart_stop_limit = 0.0 # not stated\n\n\
         [hdd.power]\nactive_w = 8.0 # typical\nseek_w = 8.0 # typical\nidle_w = 5.5 # typical\nstandby_w = 1.0 # typical\n\
         spin_up_s = 10.0 # typical\nspin_up_j = 150.0 # typical\nspin_down_s = 5.0 # typical\n\n",
        m.capacity,
        (track + 0.2).min(8.0),
        (1.3 * outer).max(300.0),
    )
}

fn published(m: &Measured, disk: bool) -> String {
    let mut rows = vec![
        ("random-read-us", m.random_read_us, 1),
        ("random-read-iops", m.random_read_iops, m.depth),
        ("sequential-read-mb-s", m.outer_mb_s, 4),
    ];
    if !disk {
        rows.push(("sequential-read-us", m.sequential_read_us, 1));
    }
    if let Some(w) = &m.writes {
        if !disk {
            rows.push(("random-write-us", w.random_us, 1));
        }
        rows.push(("random-write-iops", w.random_iops, m.depth));
        rows.push(("sequential-write-mb-s", w.mb_s, 4));
    }
    let rows = rows.into_iter().filter(|r| r.1 > 0.0);
    rows.fold(String::new(), |mut text, (what, value, depth)| {
        let _ = writeln!(
            text,
            "[[published]]\nwhat = {what:?}\nvalue = {value:.4}\ndepth = {depth}\nfitted = true\nsource = \"isotherm devices measure\"\n"
        );
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::{Work, measure, run};
    use crate::{FlashState, Metric, ModelOp, Options, sheet};
    use isotherm_core::Nanos;

    /// The figures of a preset, as if they had been measured.
    fn of_preset(name: &str) -> Measured {
        let sheet = sheet(name).unwrap();
        let options = Options {
            flash: FlashState::Rated,
            ..Options::default()
        };
        let figure = |what, depth| {
            let mut m = sheet.model(&options).unwrap();
            measure(m.as_mut(), what, depth)
        };
        let part = |random: bool, len: u32, from_end: bool| {
            let size = sheet.capacity() / 100 / 4096 * 4096;
            let start = if from_end { sheet.capacity() - size } else { 0 };
            let o = Options {
                size,
                span: crate::Span::At { start },
                ..options
            };
            let mut m = sheet.model(&o).unwrap();
            let work = Work {
                op: ModelOp::Read,
                len,
                random,
                span: size,
                depth: 1,
                count: 2000,
                seed: 1,
            };
            run(m.as_mut(), Nanos(0), &work).0
        };
        Measured {
            capacity: sheet.capacity(),
            random_read_us: figure(Metric::RandomReadUs, 1),
            short_read_us: part(true, 4096, false).mean_us,
            random_read_iops: figure(Metric::RandomReadIops, 32),
            depth: 32,
            sequential_read_us: figure(Metric::SequentialReadUs, 1),
            outer_mb_s: figure(Metric::SequentialReadMbS, 4),
            inner_mb_s: part(false, 128 << 10, true).mb_s,
            writes: Some(Writes {
                random_us: figure(Metric::RandomWriteUs, 1),
                random_iops: figure(Metric::RandomWriteIops, 32),
                sequential_us: figure(Metric::SequentialWriteUs, 1),
                mb_s: figure(Metric::SequentialWriteMbS, 4),
                flush_us: 200.0,
            }),
        }
    }

    #[test]
    fn a_sheet_fitted_to_a_model_gives_its_figures_again() {
        for (name, near) in [
            ("intel-320-300", 0.1),
            ("sata-enterprise", 0.1),
            ("pcm", 0.15),
            ("wd7500aaks", 0.15),
            ("st32000641as", 0.15),
        ] {
            let mut m = of_preset(name);
            // The model of a disk has a write buffer of its own; only fitted figures are compared.
            if is_disk(&m) {
                m.writes = None;
            }
            let (text, residuals) = fit("mine", &m).unwrap();
            assert!(text.contains("# residual of random-read-us"), "{text}");
            assert_eq!(
                Sheet::parse(&text, "mine").unwrap().kind(),
                sheet(name).unwrap().kind()
            );
            assert!(residuals.len() >= 3);
            for r in residuals {
                assert!(
                    r.error().abs() < near,
                    "{name} {}: {:.3} instead of {:.3}",
                    r.published.what.name(),
                    r.modelled,
                    r.published.value
                );
            }
        }
    }

    #[test]
    fn a_busy_machine_does_not_make_a_disk_of_flash() {
        let busy = Measured {
            random_read_us: 24_000.0,
            random_read_iops: 15_800.0,
            ..of_preset("sata-enterprise")
        };
        let (text, _) = fit("busy", &busy).unwrap();
        assert_eq!(Sheet::parse(&text, "busy").unwrap().kind(), "ssd");
    }

    #[test]
    fn figures_that_make_no_sense_make_a_sheet_or_name_the_field() {
        // A memory device answers in almost no time, and a broken measurement reports zero.
        let quick = Measured {
            capacity: 64 << 20,
            random_read_us: 0.4,
            short_read_us: 0.4,
            random_read_iops: 2e6,
            depth: 32,
            sequential_read_us: 0.3,
            outer_mb_s: 9000.0,
            inner_mb_s: 9500.0,
            writes: None,
        };
        assert!(fit("quick", &quick).is_ok());
        let e = fit("none", &Measured::default()).unwrap_err().to_string();
        assert!(e.contains("capacity"), "{e}");
    }
}
