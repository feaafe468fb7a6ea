//! The table, the JSON, and the conclusions from them.

use isotherm_answers::Stats;
use serde::Serialize;

use super::setup::{HDD, SSD, STANDBY_S, SetUp};
use crate::lab::args::DemoArgs;
use crate::table::table;

/// The measurements of the demo.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Workload {
    /// The program postmark on a file system.
    Postmark,
    /// A trace.
    Trace,
}

impl std::fmt::Display for Workload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Workload::Postmark => "postmark",
            Workload::Trace => "trace",
        })
    }
}

/// One set-up under one workload. Names are those of `stats --json` where they mean the same.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Which set-up.
    pub setup: SetUp,
    /// Which work.
    pub workload: Workload,
    /// Presets of the paced members.
    pub paced: Vec<String>,
    /// Policy of the volume.
    pub policy: String,
    /// Wall clock of the work.
    pub elapsed_s: f64,
    /// Block requests of every kind.
    pub requests: u64,
    /// Reads among them.
    pub reads: u64,
    /// Writes among them.
    pub writes: u64,
    /// Reads and writes a second.
    pub throughput_iops: f64,
    /// Median latency of a request.
    pub latency_p50_s: f64,
    /// 99th percentile.
    pub latency_p99_s: f64,
    /// Accesses that found their extent on flash; `null` where there is none.
    pub fast_hit_ratio: Option<f64>,
    /// Data written to flash, by requests and moves.
    pub fast_write_bytes: u64,
    /// Metadata of the volume written to flash.
    pub fast_meta_bytes: u64,
    /// Extents moved up.
    pub promotions: u64,
    /// Extents moved down.
    pub demotions: u64,
    /// Bytes moved.
    pub migrated_bytes: u64,
    /// Times the disk was sent to sleep.
    pub spin_downs: u64,
    /// Energy of the modelled devices.
    pub energy_j: Option<f64>,
    /// Flash of the set-up.
    pub flash_bytes: u64,
    /// Size of the volume.
    pub volume_bytes: u64,
    /// Amount of data that the work touches: peak of the blocks in use, or touched extents.
    pub working_set_bytes: u64,
    /// Memory that postmark and its page cache could use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Postmark's transactions a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transactions_per_s: Option<f64>,
    /// The output of `e2fsck -fn`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fsck_clean: Option<bool>,
    /// Bytes read and compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checked_bytes: Option<u64>,
}

impl Row {
    /// From the figures of a served volume.
    pub fn new(setup: SetUp, workload: Workload, elapsed_s: f64, stats: &Stats) -> Row {
        // Tier 0 of the disk alone is the disk.
        let has_flash = setup != SetUp::Hdd;
        let flash = stats.members.iter().filter(|m| has_flash && m.tier == 0);
        let paced = stats.members.iter().filter_map(|m| m.paced.clone());
        Row {
            setup,
            workload,
            paced: paced.collect(),
            policy: stats.policy.clone(),
            elapsed_s,
            requests: stats.requests,
            reads: stats.reads,
            writes: stats.writes,
            throughput_iops: (stats.reads + stats.writes) as f64 / elapsed_s.max(1e-9),
            latency_p50_s: stats.latency_p50_s,
            latency_p99_s: stats.latency_p99_s,
            fast_hit_ratio: match setup {
                SetUp::Hybrid => stats.fast_hit_ratio,
                // Unmapped extents have no tier and count as no hit; on flash alone there are no misses.
                SetUp::Ssd => Some(1.0),
                SetUp::Hdd => None,
            },
            fast_write_bytes: if has_flash { stats.fast_write_bytes } else { 0 },
            fast_meta_bytes: flash.map(|m| m.meta_bytes_written).sum(),
            promotions: stats.promotions,
            demotions: stats.demotions,
            migrated_bytes: stats.migrated_bytes,
            spin_downs: stats.spin_downs,
            energy_j: stats.energy_j,
            flash_bytes: if has_flash { stats.fast_bytes } else { 0 },
            volume_bytes: stats.volume_bytes,
            working_set_bytes: 0,
            memory_bytes: None,
            transactions_per_s: None,
            fsck_clean: None,
            checked_bytes: None,
        }
    }

    fn cells(&self) -> Vec<String> {
        vec![
            self.workload.to_string(),
            self.setup.words().to_owned(),
            format!("{:.1} s", self.elapsed_s),
            format!("{:.0}", self.throughput_iops),
            milliseconds(self.latency_p50_s),
            milliseconds(self.latency_p99_s),
            self.fast_hit_ratio
                .map_or("-".into(), |r| format!("{:.1} %", r * 100.0)),
            if self.flash_bytes == 0 {
                "-".into()
            } else {
                mebibytes(self.fast_write_bytes + self.fast_meta_bytes)
            },
            if self.setup == SetUp::Hybrid {
                (self.promotions + self.demotions).to_string()
            } else {
                "-".into()
            },
            if self.setup == SetUp::Ssd {
                "-".into()
            } else {
                self.spin_downs.to_string()
            },
        ]
    }
}

fn milliseconds(s: f64) -> String {
    let ms = s * 1e3;
    let digits = if ms >= 100.0 { 0 } else { 2 };
    format!("{ms:.digits$} ms")
}

fn mebibytes(n: u64) -> String {
    format!("{:.0} MiB", n as f64 / f64::from(1 << 20))
}

/// All output of the demo.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    /// Which devices are played by files.
    pub paced: String,
    /// The parts that ran, and those that were left out.
    pub notes: Vec<String>,
    /// The figures.
    pub rows: Vec<Row>,
    /// The results.
    pub seen: Vec<String>,
    /// All of it, cleaning up included.
    pub wall_s: f64,
}

impl Report {
    /// Describes the rows. Every number is computed from them.
    pub fn conclude(&mut self, args: &DemoArgs) {
        self.paced = format!(
            "All devices are paced: files whose completions wait until a model of the drive says so (HDD = {HDD}, with its own \
             queue of 32 and asleep after {STANDBY_S:.0} s without use; SSD = {SSD}). Policy of the hybrid: {}.",
            args.policy
        );
        for workload in [Workload::Postmark, Workload::Trace] {
            let row = |s| {
                self.rows
                    .iter()
                    .find(|r| r.workload == workload && r.setup == s)
            };
            if let [Some(hdd), Some(hybrid), Some(ssd)] = SetUp::ALL.map(row) {
                self.seen.push(sentence(hdd, hybrid, ssd));
            }
        }
    }

    /// The report as text, in at most 100 columns.
    pub fn text(&self) -> String {
        let head = [
            "work",
            "set-up",
            "elapsed",
            "IOPS",
            "p50",
            "p99",
            "fast hit",
            "to flash",
            "moves",
            "spin-downs",
        ];
        let rows: Vec<Vec<String>> = self.rows.iter().map(Row::cells).collect();
        let mut text = String::from("\n");
        text += &table(&head, &rows);
        text += "\n";
        for line in std::iter::once(&self.paced)
            .chain(&self.notes)
            .chain(&self.seen)
        {
            text += &wrap(line, 100);
        }
        text + &format!("The whole demo took {:.0} s.\n", self.wall_s)
    }
}

fn sentence(hdd: &Row, hybrid: &Row, ssd: &Row) -> String {
    let speed = hdd.elapsed_s / hybrid.elapsed_s.max(1e-9);
    let from_ssd = hybrid.elapsed_s / ssd.elapsed_s.max(1e-9);
    let flash = hybrid.flash_bytes as f64 / hybrid.working_set_bytes.max(1) as f64 * 100.0;
    let median = hdd.latency_p50_s / hybrid.latency_p50_s.max(1e-9);
    let slept = match hybrid.spin_downs {
        0 => String::new(),
        n => format!(" Its disk was sent to sleep {n} times; waking it is part of its time."),
    };
    format!(
        "Seen on {}: with flash for {flash:.0} % of the working set the hybrid is {speed:.2} times as fast as the disk (its \
         median request {median:.1} times) and takes {from_ssd:.1} times as long as flash alone; it wrote {} to flash, the SSD {}.{slept}",
        hybrid.workload,
        mebibytes(hybrid.fast_write_bytes + hybrid.fast_meta_bytes),
        mebibytes(ssd.fast_write_bytes + ssd.fast_meta_bytes),
    )
}

/// Breaks the text into lines at spaces.
fn wrap(text: &str, width: usize) -> String {
    let (mut out, mut column) = (String::new(), 0);
    for word in text.split(' ').filter(|w| !w.is_empty()) {
        let n = word.chars().count();
        if column > 0 && column + 1 + n > width {
            out.push('\n');
            column = 0;
        } else if column > 0 {
            out.push(' ');
            column += 1;
        }
        out += word;
        column += n;
    }
    out + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn row(setup: SetUp, elapsed_s: f64) -> Row {
        let stats = crate::overview::tests::stats(json!({
            "requests": 130_000, "reads": 60_000, "writes": 60_000, "latency_p50_s": 0.0101, "latency_p99_s": 1.2345,
            "fast_hit_ratio": 0.5, "fast_write_bytes": 1u64 << 30, "promotions": 99_999, "demotions": 99_999,
            "spin_downs": 12, "fast_bytes": if setup == SetUp::Hybrid { 1u64 << 28 } else { 1 << 30 },
            "members": [{"tier": 0, "paced": "x", "meta_bytes_written": 1 << 20}, {"tier": 1, "paced": null}],
        }));
        let row = Row::new(setup, Workload::Postmark, elapsed_s, &stats);
        Row {
            working_set_bytes: 1 << 30,
            ..row
        }
    }

    #[test]
    fn disk_alone_has_no_flash_whatever_tier_it_is() {
        let hdd = row(SetUp::Hdd, 10.0);
        assert_eq!(
            (
                hdd.fast_write_bytes,
                hdd.fast_meta_bytes,
                hdd.flash_bytes,
                hdd.fast_hit_ratio
            ),
            (0, 0, 0, None)
        );
        let hybrid = row(SetUp::Hybrid, 5.0);
        assert_eq!(
            (hybrid.fast_meta_bytes, hybrid.fast_hit_ratio),
            (1 << 20, Some(0.5))
        );
        assert_eq!(hybrid.paced, ["x"]);
        assert!((hybrid.throughput_iops - 24_000.0).abs() < 1e-6);
    }

    #[test]
    fn the_text_fits_100_columns_and_the_ratios_are_those_of_the_rows() {
        let rows = vec![
            row(SetUp::Hdd, 1234.5),
            row(SetUp::Hybrid, 411.5),
            row(SetUp::Ssd, 41.15),
        ];
        let mut report = Report {
            rows,
            notes: vec!["word ".repeat(60)],
            ..Report::default()
        };
        report
            .seen
            .push(sentence(&report.rows[0], &report.rows[1], &report.rows[2]));
        let text = report.text();
        assert!(text.lines().all(|l| l.chars().count() <= 100), "{text}");
        let seen = &report.seen[0];
        assert!(
            seen.contains("25 % of the working set") && seen.contains("3.00 times as fast"),
            "{seen}"
        );
        assert!(
            seen.contains("10.0 times as long") && seen.contains("1025 MiB"),
            "{seen}"
        );
    }
}
