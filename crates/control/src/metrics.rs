//! The figures of a served volume for Prometheus (OpenMetrics text), computed for each scrape.
//!
//! All figures come from the answer of `stats` and from the latency histograms: one call on the engine's thread, no counter is kept twice,
//! and no device is asked. Labels are bounded: `tier` by 8, `member` by 64, `class` by 64, the others by the lists here.

mod gauges;

use std::fmt;

use isotherm_core::Nanos;
use isotherm_core::stats::Histogram;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use serde_json::{Map, Value};

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
    pub stats: Value,
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

/// A number of `stats`. A figure that is null has no sample.
fn number(v: &Value) -> f64 {
    v.as_f64().unwrap_or(f64::NAN)
}

fn list(v: &Value) -> impl Iterator<Item = &Value> {
    v.as_array().into_iter().flatten()
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
        self.classes(&mut w)?;
        self.latency(w)
    }
}

impl Snapshot {
    /// One sample without labels.
    fn one(&self, key: &str) -> [(Labels, f64); 1] {
        [(
            vec![],
            number(self.stats.pointer(key).unwrap_or(&Value::Null)),
        )]
    }

    /// Gauges without labels: name, help text, and the key of the figure in `stats`.
    fn gauges(&self, w: &mut Writer<'_>, all: &[Figure]) -> fmt::Result {
        all.iter()
            .try_for_each(|(name, help, key)| w.gauge(name, help, self.one(key)))
    }

    fn volume(&self, w: &mut Writer<'_>) -> fmt::Result {
        let s = &self.stats;
        let word = |k: &str| s[k].as_str().unwrap_or_default().to_owned();
        let policy = word("policy");
        let name = policy.split(',').next().unwrap_or_default().to_owned();
        let about = vec![
            label("volume", &word("volume")),
            label("policy", &name),
            label("version", &env!("CARGO_PKG_VERSION")),
        ];
        w.gauge("volume_info", "What is served, always 1", [(about, 1.0)])?;
        self.gauges(w, SIZES)?;
        let levels = Level::ALL.map(|l| {
            let is = flag(l == self.health.level);
            (vec![label("state", l.word())], is)
        });
        w.gauge("health", "1: this is how the volume is", levels)?;
        let failed = !s["failure"].is_null();
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
            self.one("/commit/rounds"),
        )?;
        w.counter(
            "checkpoints",
            "Checkpoints",
            self.one("/commit/checkpoints"),
        )?;
        let memory = s["memory"].as_object().into_iter().flatten();
        let memory = memory.map(|(k, v)| {
            (
                vec![label("part", &k.trim_end_matches("_bytes"))],
                number(v),
            )
        });
        w.gauge("memory_bytes", "Memory of the engine", memory)?;
        self.gauges(w, POWER_BUDGET)?;
        self.gauges(w, WEAR_BUDGET)
    }

    fn requests(&self, w: &mut Writer<'_>) -> fmt::Result {
        let s = &self.stats;
        let by_op = |ops: &[(&'static str, &'static str)]| -> Vec<(Labels, f64)> {
            let one = |(op, key): &(&'static str, &'static str)| {
                (vec![label("op", &op)], number(&s[*key]))
            };
            ops.iter().map(one).collect()
        };
        let ops = [
            ("read", "reads"),
            ("write", "writes"),
            ("flush", "flushes"),
            ("discard", "discards"),
        ];
        w.counter("requests", "Requests", by_op(&ops))?;
        let bytes = [("read", "bytes_read"), ("write", "bytes_written")];
        w.counter("request_bytes", "Bytes of requests", by_op(&bytes))?;
        w.counter(
            "request_errors",
            "Requests that were answered with an error",
            self.one("/errors"),
        )?;
        w.counter("accesses", "Accesses to extents", self.one("/accesses"))?;
        w.counter(
            "unmapped_reads",
            "Reads of what was never written",
            self.one("/unmapped_reads"),
        )?;
        w.counter(
            "requests_waited",
            "Requests that waited for a move or for another request",
            self.one("/waited"),
        )
    }

    fn moves(&self, w: &mut Writer<'_>) -> fmt::Result {
        let moves = &self.stats["moves"];
        let mut ended = Vec::new();
        let mut refused = Vec::new();
        for kind in crate::figures::KINDS {
            for how in ["proposed", "done", "stale", "failed"] {
                let labels = vec![label("kind", &kind), label("outcome", &how)];
                ended.push((labels, number(&moves[kind][how])));
            }
            for (why, n) in moves[kind]["refused"].as_object().into_iter().flatten() {
                refused.push((vec![label("kind", &kind), label("reason", &why)], number(n)));
            }
        }
        w.counter("moves", "Moves of extents, by what became of them", ended)?;
        w.counter(
            "moves_refused",
            "Moves that were not begun, by reason",
            refused,
        )?;
        w.gauge("moves_active", "Moves under way", self.one("/moves/active"))?;
        let bytes = [
            ("migrated", "migrated_bytes"),
            ("fetched", "fetched_bytes"),
            ("written_back", "written_back_bytes"),
        ];
        let bytes = bytes.map(|(how, key)| (vec![label("how", &how)], number(&self.stats[key])));
        w.counter("moved_bytes", "Bytes that moves carried", bytes)
    }

    fn tiers(&self, w: &mut Writer<'_>) -> fmt::Result {
        let extent = number(&self.stats["extent_bytes"]);
        let of = |f: &dyn Fn(&Value) -> f64| -> Vec<(Labels, f64)> {
            let one = |t: &Value| (vec![label("tier", &t["tier"])], f(t));
            list(&self.stats["tiers"]).map(one).collect()
        };
        w.gauge(
            "tier_bytes",
            "Room for data on a tier",
            of(&|t| number(&t["slots"]) * extent),
        )?;
        w.gauge(
            "tier_free_bytes",
            "Of it, free",
            of(&|t| number(&t["free_slots"]) * extent),
        )?;
        w.counter(
            "tier_accesses",
            "Accesses that a tier served",
            of(&|t| number(&t["hits"])),
        )
    }

    fn members(&self, w: &mut Writer<'_>) -> fmt::Result {
        let all: Vec<(usize, &Value)> = list(&self.stats["members"]).enumerate().collect();
        let of = |i: usize, m: &Value| vec![label("member", &i), label("tier", &m["tier"])];
        let info = all.iter().map(|(i, m)| {
            let mut labels = of(*i, m);
            labels.push(label("path", &m["path"].as_str().unwrap_or_default()));
            (labels, 1.0)
        });
        w.gauge("member_info", "Where a member is, always 1", info)?;
        let by = |keys: &[(&'static str, &'static str, &'static str)]| -> Vec<(Labels, f64)> {
            let mut samples = Vec::new();
            for (i, m) in &all {
                for (name, value, key) in keys {
                    let mut labels = of(*i, m);
                    labels.push(label(name, value));
                    samples.push((labels, number(&m[*key])));
                }
            }
            samples
        };
        let ops = [
            ("op", "read", "reads"),
            ("op", "write", "writes"),
            ("op", "flush", "flushes"),
        ];
        w.counter("member_operations", "Operations on a member", by(&ops))?;
        let bytes = [
            ("what", "read", "bytes_read"),
            ("what", "write", "bytes_written"),
            ("what", "move_read", "move_bytes_read"),
            ("what", "move_write", "move_bytes_written"),
            ("what", "metadata", "meta_bytes_written"),
            ("what", "discard", "bytes_discarded"),
        ];
        let help = "Bytes on a member; those of moves are in read and write as well";
        w.counter("member_bytes", help, by(&bytes))?;
        let plain = |key: &'static str| -> Vec<(Labels, f64)> {
            all.iter()
                .map(|(i, m)| (of(*i, m), number(&m[key])))
                .collect()
        };
        w.counter(
            "member_errors",
            "Operations on a member that failed",
            plain("errors"),
        )?;
        w.counter(
            "member_spin_downs",
            "Times that a member was sent to sleep",
            plain("spin_downs"),
        )?;
        w.counter(
            "member_energy_joules",
            "Energy by the member's model",
            plain("energy_j"),
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
        let empty = Map::new();
        let all = self.stats["by_class"].as_object().unwrap_or(&empty);
        let of = |key: &str| -> Vec<(Labels, f64)> {
            let one = |(i, c): (&String, &Value)| (vec![label("class", &i)], number(&c[key]));
            all.iter().map(one).collect()
        };
        w.counter("class_accesses", "Accesses by kind of data", of("accesses"))?;
        w.counter(
            "class_fast_accesses",
            "Of these, served by the fastest tier",
            of("fast_hits"),
        )?;
        w.counter("class_requests", "Requests by kind of data", of("requests"))?;
        w.counter(
            "class_device_seconds",
            "Time that devices worked for a kind of data, moves included",
            of("device_time_s"),
        )?;
        w.counter(
            "class_fast_written_bytes",
            "Bytes written to the fastest tier for a kind of data, moves included",
            of("fast_write_bytes"),
        )?;
        w.counter(
            "class_energy_joules",
            "Energy beyond idling for a kind of data, by data sheets",
            of("energy_j"),
        )?;
        self.promises(w)
    }

    /// The promises to classes and whether they are kept.
    fn promises(&self, w: &mut Writer<'_>) -> fmt::Result {
        let rows = self.stats["qos"].as_array().into_iter().flatten();
        let rows: Vec<&Value> = rows.collect();
        let of = |key: &str| -> Vec<(Labels, f64)> {
            let one = |r: &&Value| {
                (
                    vec![label("classes", r["classes"].as_str().unwrap_or(""))],
                    number(&r[key]),
                )
            };
            rows.iter().map(one).collect()
        };
        w.gauge(
            "qos_held_requests",
            "Requests that wait to begin, by the classes of a promise",
            of("held"),
        )?;
        w.counter(
            "qos_windows",
            "Half seconds in which a promise was at stake",
            of("windows"),
        )?;
        w.counter(
            "qos_windows_missed",
            "Of these, in which a floor or a latency was missed",
            of("windows_missed"),
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
