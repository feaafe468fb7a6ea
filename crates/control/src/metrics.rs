//! The figures of a served volume for Prometheus (OpenMetrics text), computed for each scrape.
//!
//! All figures come from the answer of `stats` and from the latency histograms: one call on the engine's thread, no counter is kept twice,
//! and no device is asked. Labels are bounded: `tier` by 8, `member` by 64, `class` by 64, `device` by the drives of the machine, the others by the lists
//! here.

mod drives;
mod gauges;

use std::fmt;

use isotherm_answers::{ClassFigures, MemberFigures, Promise, Stats, Tier};
use isotherm_core::Nanos;
use isotherm_core::stats::Histogram;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use crate::health::{Health, Level};
use gauges::{DATA_CHECK, Figure, POWER_BUDGET, SIZES, STATE, WEAR_BUDGET};

/// Upper edges of the latency buckets in seconds. The engine's own buckets are 1/16 wide, so a request within 6 % of an edge may be counted
/// on its other side.
const EDGES: [f64; 18] = [
    10e-6, 25e-6, 50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 0.1,
    0.25, 0.5, 1.0, 5.0, 30.0,
];

/// Latencies of one kind of request.
#[derive(Clone, Debug)]
pub struct Latency {
    op: &'static str,
    sum_s: f64,
    count: u64,
    /// Counts by [`EDGES`], not cumulative; the last one is for latencies beyond the last edge.
    buckets: Vec<(f64, u64)>,
}

impl Latency {
    /// Taken from the engine's histogram.
    pub fn of(op: &'static str, h: &Histogram) -> Latency {
        let mut before = 0;
        let mut buckets: Vec<(f64, u64)> = EDGES
            .iter()
            .map(|&edge| {
                let n = h.at_most(Nanos((edge * 1e9) as u64));
                let own = n - before;
                before = n;
                (edge, own)
            })
            .collect();
        buckets.push((f64::MAX, h.count() - before));
        Latency {
            op,
            sum_s: h.sum().as_secs_f64(),
            count: h.count(),
            buckets,
        }
    }
}

/// The figures at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The answer of `stats`.
    pub stats: Stats,
    /// How the volume is.
    pub health: Health,
    /// For each member, seconds since it began not to answer an operation; 0: it answers.
    pub silent_s: Vec<f64>,
    /// Whether members are absent.
    pub degraded: bool,
    /// Whether only reads are served.
    pub read_only: bool,
    /// For each member, whether it is in standby.
    pub asleep: Vec<bool>,
    /// Latencies by kind of request.
    pub latency: Vec<Latency>,
}

/// A snapshot as OpenMetrics text.
///
/// # Errors
/// No known case: allocation failures abort the program.
pub fn text(snapshot: Snapshot) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("isotherm");
    registry.register_collector(Box::new(snapshot));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry)?;
    Ok(text)
}

type Labels = Vec<(&'static str, String)>;
/// Figures of a member, with the value of their label.
type Figures = [(&'static str, fn(&MemberFigures) -> u64)];

/// Writes metric families with all samples of a family together, as the format requires.
struct Writer<'a>(DescriptorEncoder<'a>);

impl Writer<'_> {
    fn family(
        &mut self,
        name: &str,
        help: &str,
        kind: MetricType,
        samples: impl IntoIterator<Item = (Labels, f64)>,
    ) -> fmt::Result {
        let samples: Vec<_> = samples.into_iter().filter(|s| s.1.is_finite()).collect();
        if samples.is_empty() {
            return Ok(());
        }
        let is_counter = matches!(kind, MetricType::Counter);
        let mut family = self.0.encode_descriptor(name, help, None, kind)?;
        for (labels, value) in &samples {
            let labels = escaped(labels);
            let slice = labels.as_slice();
            let write = |mut e: MetricEncoder<'_>| {
                if is_counter {
                    e.encode_counter::<[(&str, &str); 0], f64, f64>(value, None)
                } else {
                    e.encode_gauge(value)
                }
            };
            write(family.encode_family(&slice)?)?;
        }
        Ok(())
    }

    fn counter(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (Labels, f64)>,
    ) -> fmt::Result {
        self.family(name, help, MetricType::Counter, samples)
    }

    fn gauge(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (Labels, f64)>,
    ) -> fmt::Result {
        self.family(name, help, MetricType::Gauge, samples)
    }
}

/// Escapes the values of labels, because the library writes them unchanged.
fn escaped(labels: &Labels) -> Vec<(&'static str, String)> {
    let clean = |v: &str| {
        v.replace('\\', "\\\\")
            .replace('"', "\\\"")
            .replace('\n', "\\n")
    };
    labels.iter().map(|(k, v)| (*k, clean(v))).collect()
}

fn label(key: &'static str, value: &(impl ToString + ?Sized)) -> (&'static str, String) {
    (key, value.to_string())
}

/// One sample without labels.
fn plain(n: u64) -> [(Labels, f64); 1] {
    [(vec![], n as f64)]
}

fn flag(b: bool) -> f64 {
    f64::from(u8::from(b))
}

impl Collector for Snapshot {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut w = Writer(encoder);
        self.volume(&mut w)?;
        self.requests(&mut w)?;
        self.moves(&mut w)?;
        self.tiers(&mut w)?;
        self.members(&mut w)?;
        drives::encode(&self.stats, &mut w)?;
        self.classes(&mut w)?;
        self.latency(w)
    }
}

impl Snapshot {
    /// Gauges without labels.
    fn gauges(&self, w: &mut Writer<'_>, all: &[Figure]) -> fmt::Result {
        let mut all = all.iter();
        all.try_for_each(|(name, help, of)| {
            w.gauge(name, help, of(&self.stats).map(|n| (vec![], n)))
        })
    }

    fn volume(&self, w: &mut Writer<'_>) -> fmt::Result {
        let s = &self.stats;
        let name = s.policy.split(',').next().unwrap_or_default();
        let about = vec![
            label("volume", &s.volume),
            label("policy", name),
            label("version", &env!("CARGO_PKG_VERSION")),
        ];
        w.gauge("volume_info", "What is served, always 1", [(about, 1.0)])?;
        self.gauges(w, SIZES)?;
        let levels = Level::ALL.map(|l| {
            let is = flag(l == self.health.level);
            (vec![label("state", l.word())], is)
        });
        w.gauge("health", "1: this is how the volume is", levels)?;
        let failed = s.failure.is_some();
        w.gauge(
            "failed",
            "1: writes are refused until it is served anew",
            [(vec![], flag(failed))],
        )?;
        w.gauge(
            "degraded",
            "1: a member is missing",
            [(vec![], flag(self.degraded))],
        )?;
        w.gauge(
            "read_only",
            "1: only reads are served",
            [(vec![], flag(self.read_only))],
        )?;
        self.gauges(w, STATE)?;
        self.gauges(w, DATA_CHECK)?;
        w.counter(
            "commit_rounds",
            "Rounds in which records were made durable",
            plain(self.stats.commit.rounds),
        )?;
        w.counter(
            "checkpoints",
            "Checkpoints",
            plain(self.stats.commit.checkpoints),
        )?;
        let m = &s.memory;
        let memory = [
            ("map", m.map_bytes),
            ("policy", m.policy_bytes),
            ("bitmap", m.bitmap_bytes),
            ("other", m.other_bytes),
        ];
        let memory = memory.map(|(part, n)| (vec![label("part", part)], n as f64));
        w.gauge("memory_bytes", "Memory of the engine", memory)?;
        self.gauges(w, POWER_BUDGET)?;
        self.gauges(w, WEAR_BUDGET)
    }

    fn requests(&self, w: &mut Writer<'_>) -> fmt::Result {
        let s = &self.stats;
        let by_op = |(op, n): (&str, u64)| (vec![label("op", op)], n as f64);
        let ops = [
            ("read", s.reads),
            ("write", s.writes),
            ("flush", s.flushes),
            ("discard", s.discards),
        ];
        w.counter("requests", "Requests", ops.map(by_op))?;
        let bytes = [("read", s.bytes_read), ("write", s.bytes_written)];
        w.counter("request_bytes", "Bytes of requests", bytes.map(by_op))?;
        w.counter(
            "request_errors",
            "Requests that were answered with an error",
            plain(self.stats.errors),
        )?;
        w.counter(
            "accesses",
            "Accesses to extents",
            plain(self.stats.accesses),
        )?;
        w.counter(
            "unmapped_reads",
            "Reads of what was never written",
            plain(self.stats.unmapped_reads),
        )?;
        w.counter(
            "requests_waited",
            "Requests that waited for a move or for another request",
            plain(self.stats.waited),
        )
    }

    fn moves(&self, w: &mut Writer<'_>) -> fmt::Result {
        let (s, moves) = (&self.stats, &self.stats.moves);
        let (mut ended, mut refused) = (Vec::new(), Vec::new());
        for (kind, m) in moves.kinds() {
            for (how, n) in [
                ("proposed", m.proposed),
                ("done", m.done),
                ("stale", m.stale),
                ("failed", m.failed),
            ] {
                ended.push((vec![label("kind", kind), label("outcome", how)], n as f64));
            }
            for (why, n) in &m.refused {
                refused.push((vec![label("kind", kind), label("reason", why)], *n as f64));
            }
        }
        w.counter("moves", "Moves of extents, by what became of them", ended)?;
        w.counter(
            "moves_refused",
            "Moves that were not begun, by reason",
            refused,
        )?;
        w.gauge(
            "moves_active",
            "Moves under way",
            plain(self.stats.moves.active.into()),
        )?;
        let bytes = [
            ("migrated", s.migrated_bytes),
            ("fetched", s.fetched_bytes),
            ("written_back", s.written_back_bytes),
        ];
        let bytes = bytes.map(|(how, n)| (vec![label("how", how)], n as f64));
        w.counter("moved_bytes", "Bytes that moves carried", bytes)
    }

    fn tiers(&self, w: &mut Writer<'_>) -> fmt::Result {
        let extent = self.stats.extent_bytes;
        let of = |f: fn(&Tier) -> u64, unit: u64| -> Vec<(Labels, f64)> {
            let one = |t: &Tier| (vec![label("tier", &t.tier)], (f(t) * unit) as f64);
            self.stats.tiers.iter().map(one).collect()
        };
        w.gauge(
            "tier_bytes",
            "Room for data on a tier",
            of(|t| t.slots, extent),
        )?;
        w.gauge(
            "tier_free_bytes",
            "Of it, free",
            of(|t| t.free_slots, extent),
        )?;
        w.counter(
            "tier_accesses",
            "Accesses that a tier served",
            of(|t| t.hits, 1),
        )
    }

    fn members(&self, w: &mut Writer<'_>) -> fmt::Result {
        let all: Vec<(usize, &MemberFigures)> = self.stats.members.iter().enumerate().collect();
        let of = |i: usize, m: &MemberFigures| vec![label("member", &i), label("tier", &m.tier)];
        let info = all.iter().map(|(i, m)| {
            let mut labels = of(*i, m);
            labels.push(label("path", &m.path));
            (labels, 1.0)
        });
        w.gauge("member_info", "Where a member is, always 1", info)?;
        let by = |name: &'static str, figures: &Figures| -> Vec<(Labels, f64)> {
            let mut samples = Vec::new();
            for (i, m) in &all {
                for (value, f) in figures {
                    let mut labels = of(*i, m);
                    labels.push(label(name, *value));
                    samples.push((labels, f(m) as f64));
                }
            }
            samples
        };
        let ops: &Figures = &[
            ("read", |m| m.reads),
            ("write", |m| m.writes),
            ("flush", |m| m.flushes),
        ];
        w.counter("member_operations", "Operations on a member", by("op", ops))?;
        let bytes: &Figures = &[
            ("read", |m| m.bytes_read),
            ("write", |m| m.bytes_written),
            ("move_read", |m| m.move_bytes_read),
            ("move_write", |m| m.move_bytes_written),
            ("metadata", |m| m.meta_bytes_written),
            ("discard", |m| m.bytes_discarded),
        ];
        let help = "Bytes on a member; those of moves are in read and write as well";
        w.counter("member_bytes", help, by("what", bytes))?;
        let plain = |f: fn(&MemberFigures) -> Option<f64>| -> Vec<(Labels, f64)> {
            let known = all.iter().filter_map(|(i, m)| Some((of(*i, m), f(m)?)));
            known.collect()
        };
        w.counter(
            "member_errors",
            "Operations on a member that failed",
            plain(|m| Some(m.errors as f64)),
        )?;
        w.counter(
            "member_spin_downs",
            "Times that a member was sent to sleep",
            plain(|m| Some(m.spin_downs as f64)),
        )?;
        w.counter(
            "member_energy_joules",
            "Energy by the member's model",
            plain(|m| m.energy_j),
        )?;
        let silent = all.iter().zip(&self.silent_s);
        w.gauge(
            "member_silent_seconds",
            "Since it began not to answer an operation; 0: it answers",
            silent.map(|((i, m), s)| (of(*i, m), *s)),
        )?;
        let asleep = all.iter().zip(&self.asleep);
        let asleep = asleep.map(|((i, m), a)| (of(*i, m), flag(*a)));
        w.gauge("member_asleep", "1: it sleeps, as far as was seen", asleep)
    }

    fn classes(&self, w: &mut Writer<'_>) -> fmt::Result {
        let of = |f: fn(&ClassFigures) -> Option<f64>| -> Vec<(Labels, f64)> {
            let all = self.stats.by_class.iter();
            let known = all.filter_map(|(i, c)| Some((vec![label("class", i)], f(c)?)));
            known.collect()
        };
        w.counter(
            "class_accesses",
            "Accesses by kind of data",
            of(|c| Some(c.accesses as f64)),
        )?;
        w.counter(
            "class_fast_accesses",
            "Of these, served by the fastest tier",
            of(|c| Some(c.fast_hits as f64)),
        )?;
        w.counter(
            "class_requests",
            "Requests by kind of data",
            of(|c| Some(c.requests as f64)),
        )?;
        w.counter(
            "class_device_seconds",
            "Time that devices worked for a kind of data, moves included",
            of(|c| Some(c.work.device_time_s)),
        )?;
        w.counter(
            "class_fast_written_bytes",
            "Bytes written to the fastest tier for a kind of data, moves included",
            of(|c| Some(c.work.fast_write_bytes as f64)),
        )?;
        w.counter(
            "class_energy_joules",
            "Energy beyond idling for a kind of data, by data sheets",
            of(|c| c.work.energy_j),
        )?;
        self.promises(w)
    }

    /// The promises to classes and whether they are kept.
    fn promises(&self, w: &mut Writer<'_>) -> fmt::Result {
        let of = |f: fn(&Promise) -> u64| -> Vec<(Labels, f64)> {
            let one = |r: &Promise| (vec![label("classes", &r.classes)], f(r) as f64);
            self.stats.qos.iter().map(one).collect()
        };
        w.gauge(
            "qos_held_requests",
            "Requests that wait to begin, by the classes of a promise",
            of(|r| r.held.into()),
        )?;
        w.counter(
            "qos_windows",
            "Half seconds in which a promise was at stake",
            of(|r| r.windows),
        )?;
        w.counter(
            "qos_windows_missed",
            "Of these, in which a floor or a latency was missed",
            of(|r| r.windows_missed),
        )
    }

    fn latency(&self, mut w: Writer<'_>) -> fmt::Result {
        let name = "request_latency_seconds";
        let help = "From arrival to answer";
        let mut family =
            w.0.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for l in &self.latency {
            let labels = [("op", l.op)];
            family
                .encode_family(&labels)?
                .encode_histogram::<[(&str, &str); 0]>(l.sum_s, l.count, &l.buckets, None)?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "metrics_tests.rs"]
mod tests;
