//! The figures of a volume for `stats` and `top`: one page for display, from the answers of the control socket.

use std::time::Instant;

use isotherm_answers::{Health, Latency, Level, Stats, Status};

use crate::human::{bytes, count, percent, rate, time};

/// The answers at one moment.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The time at which they came.
    pub at: Instant,
    /// The answer of `stats`.
    pub stats: Stats,
    /// The answer of `status`.
    pub status: Status,
}

/// One tier for display.
#[derive(Clone, Debug, PartialEq)]
pub struct TierLine {
    /// Its number.
    pub tier: u64,
    /// Bytes that hold data.
    pub used: u64,
    /// Capacity for data in bytes.
    pub size: u64,
    /// Share of the accesses that it served.
    pub served: Option<f64>,
    /// The number of its members in standby, and of all its members.
    pub asleep: (usize, usize),
}

/// The figures of a volume, over the time between two samples or since serving began.
#[derive(Clone, Debug, PartialEq)]
pub struct Overview {
    /// Name, state, policy.
    pub name: String,
    /// Its state in one sentence.
    pub sentence: String,
    /// Whether nothing is wrong.
    pub well: bool,
    /// What is wrong and what to do: a word and its text.
    pub causes: Vec<(&'static str, String)>,
    /// The policy with its parameters.
    pub policy: String,
    /// Whether times come from device models.
    pub paced: bool,
    /// The time in seconds over which the rates are computed.
    pub seconds: f64,
    /// Whether that time began when serving began.
    pub whole: bool,
    /// The tiers, fastest first.
    pub tiers: Vec<TierLine>,
    /// Reads, writes and flushes per second.
    pub per_s: [f64; 3],
    /// Bytes read and written per second.
    pub bytes_per_s: [f64; 2],
    /// Mean latency of reads and of writes in that time, in seconds; `None` if there were none.
    pub mean_s: [Option<f64>; 2],
    /// 99th percentiles since serving began, in seconds.
    pub p99_s: [f64; 2],
    /// Moves by kind: name, moves per second, number of refused ones, number of proposed ones.
    pub moves: Vec<(&'static str, f64, u64, u64)>,
    /// Moves in progress.
    pub moving: u64,
    /// Dirty bytes, which only the cache holds.
    pub dirty: u64,
    /// Bytes of extents whose home is on a tier faster than the slowest.
    pub fast_homes: u64,
    /// Requests that are not answered yet.
    pub queue: u64,
    /// Power in watts, if all members are modelled.
    pub power_w: Option<f64>,
    /// Errors that requests have received since serving began.
    pub errors: u64,
    /// The most frequent reasons for refused moves: name and number.
    pub refusals: Vec<(String, u64)>,
}

/// The state in one sentence, and whether all is well: what the server says of its health (`health.rs` of the control plane).
pub fn sentence(health: &Health, read_only: bool, elapsed_s: f64) -> (String, bool) {
    if health.state != Level::Well {
        return (health.sentence.clone(), false);
    }
    let how = if read_only { "read-only" } else { "well" };
    (format!("Serving {how} for {}.", time(elapsed_s)), true)
}

/// What is wrong and what to do about it, one line each: a word and its text.
pub fn causes(health: &Health) -> Vec<(&'static str, String)> {
    let of = |c: &isotherm_answers::Cause| {
        let wrong = format!("{}: {}", c.what, c.detail);
        [("wrong", wrong), ("to do", c.todo.clone())]
    };
    health.causes.iter().flat_map(of).collect()
}

/// How often moves were refused, by reason, the most frequent one first.
fn refusals(stats: &Stats) -> Vec<(String, u64)> {
    let mut all: Vec<(String, u64)> = Vec::new();
    for (why, n) in stats.moves.kinds().iter().flat_map(|(_, m)| &m.refused) {
        match all.iter_mut().find(|r| r.0 == *why) {
            Some(r) => r.1 += n,
            None => all.push((why.clone(), *n)),
        }
    }
    all.retain(|r| r.1 > 0);
    all.sort_by_key(|r| std::cmp::Reverse(r.1));
    all
}

/// The time between two samples, or since serving began, and what happened in it.
struct Since<'a> {
    now: &'a Stats,
    before: Option<&'a Stats>,
    seconds: f64,
}

impl<'a> Since<'a> {
    fn new(now: &'a Stats, before: Option<&'a Stats>) -> Since<'a> {
        // If the volume was restarted in between, its counters begin at zero.
        let before = before.filter(|b| b.elapsed_s < now.elapsed_s);
        Since {
            now,
            before,
            seconds: now.elapsed_s - before.map_or(0.0, |b| b.elapsed_s),
        }
    }

    fn grown(&self, of: impl Fn(&Stats) -> f64) -> f64 {
        (of(self.now) - self.before.map_or(0.0, of)).max(0.0)
    }

    fn per_s(&self, of: impl Fn(&Stats) -> f64) -> f64 {
        if self.seconds > 0.0 {
            self.grown(of) / self.seconds
        } else {
            0.0
        }
    }

    fn mean(&self, of: fn(&Stats) -> &Latency) -> Option<f64> {
        let n = self.grown(|s| of(s).count as f64);
        let total = self.grown(|s| of(s).mean_s * of(s).count as f64);
        (n > 0.0).then(|| total / n)
    }
}

impl Overview {
    /// The figures of `now`, with rates since `before`, or since serving began.
    pub fn new(now: &Sample, before: Option<&Sample>) -> Overview {
        let s = &now.stats;
        let since = Since::new(s, before.map(|b| &b.stats));
        let read_only = (now.status.served.as_ref()).is_some_and(|v| v.read_only);
        let (sentence, well) = sentence(&s.health, read_only, s.elapsed_s);
        let moves = s
            .moves
            .kinds()
            .into_iter()
            .enumerate()
            .map(|(i, (kind, m))| {
                let per_s = since.per_s(|s| s.moves.kinds()[i].1.done as f64);
                (kind, per_s, m.refused.values().sum(), m.proposed)
            });
        Overview {
            name: s.volume.clone(),
            sentence,
            well,
            causes: causes(&s.health),
            policy: s.policy.clone(),
            paced: s.paced,
            seconds: since.seconds,
            whole: since.before.is_none(),
            tiers: tiers(&since, &now.status),
            per_s: [
                since.per_s(|s| s.reads as f64),
                since.per_s(|s| s.writes as f64),
                since.per_s(|s| s.flushes as f64),
            ],
            bytes_per_s: [
                since.per_s(|s| s.bytes_read as f64),
                since.per_s(|s| s.bytes_written as f64),
            ],
            mean_s: [
                since.mean(|s| &s.latency.read),
                since.mean(|s| &s.latency.write),
            ],
            p99_s: [s.latency.read.p99_s, s.latency.write.p99_s],
            moves: moves.collect(),
            moving: s.moves.active.into(),
            dirty: s.copies.dirty_bytes,
            fast_homes: (s.copies.lost_with_fast_bytes).saturating_sub(s.copies.dirty_bytes),
            queue: s.in_flight,
            power_w: s
                .energy_j
                .map(|_| since.per_s(|s| s.energy_j.unwrap_or(0.0))),
            errors: s.errors,
            refusals: refusals(s),
        }
    }

    /// A few lines for a terminal or a screen reader.
    pub fn lines(&self) -> String {
        let mut out = vec![format!("{}: {}\n", self.name, self.sentence)];
        for (word, text) in &self.causes {
            out.push(format!("{word:<10} {text}\n"));
        }
        out.push(format!("policy     {}\n", self.policy));
        if self.paced {
            out.push("times      those of device models (paced)\n".to_owned());
        }
        let of = if self.whole {
            format!("mean of {}, since serving began", time(self.seconds))
        } else {
            format!("the last {}", time(self.seconds))
        };
        out.push(format!("figures    {of}\n"));
        for t in &self.tiers {
            out.push(format!("tier {}     {}\n", t.tier, t.words()));
        }
        for (i, op) in ["reads", "writes"].into_iter().enumerate() {
            out.push(format!(
                "{op:<9}  {}/s, {}, mean {}, p99 {}\n",
                count(self.per_s[i]),
                rate(self.bytes_per_s[i]),
                self.mean_s[i].map_or_else(|| "-".to_owned(), time),
                time(self.p99_s[i]),
            ));
        }
        out.push(format!("flushes    {}/s\n", count(self.per_s[2])));
        out.push(format!("queue      {} requests\n", self.queue));
        out.push(format!("moves      {}\n", self.moves_words()));
        if let Some((why, n)) = self.refusals.first() {
            out.push(format!(
                "refused    {} moves, most often: {why}\n",
                count(*n as f64)
            ));
        }
        out.push(format!("dirty      {}\n", bytes(self.dirty)));
        if self.tiers.len() > 1 {
            out.push(format!("loss       {}\n", self.loss_words()));
        }
        if let Some(w) = self.power_w {
            out.push(format!("power      {w:.1} W\n"));
        }
        if self.errors > 0 {
            out.push(format!(
                "errors     {} requests since serving began\n",
                self.errors
            ));
        }
        out.concat()
    }

    /// The data that is lost if the faster tiers fail.
    pub fn loss_words(&self) -> String {
        let mut parts = Vec::new();
        if self.dirty > 0 {
            parts.push(format!("{} of dirty data", bytes(self.dirty)));
        }
        if self.fast_homes > 0 {
            parts.push(format!("{} that live there", bytes(self.fast_homes)));
        }
        if parts.is_empty() {
            parts.push("no data".to_owned());
        }
        format!("of the faster tiers would cost {}", parts.join(" and "))
    }

    /// Moves per second of each kind that occurred.
    pub fn moves_words(&self) -> String {
        let some: Vec<String> = (self.moves.iter())
            .filter(|m| m.1 > 0.0)
            .map(|m| format!("{} {}/s", m.0, count(m.1)))
            .collect();
        let done = if some.is_empty() {
            "none".to_owned()
        } else {
            some.join(", ")
        };
        format!("{done}; {} under way", self.moving)
    }
}

impl TierLine {
    /// As in `1.20 GiB of 4.00 GiB used, served 93.1 %`.
    pub fn words(&self) -> String {
        let asleep = match self.asleep {
            (0, _) => String::new(),
            (n, all) if n == all => ", asleep".to_owned(),
            (n, all) => format!(", {n} of {all} asleep"),
        };
        format!(
            "{} of {} used, served {}{asleep}",
            bytes(self.used),
            bytes(self.size),
            percent(self.served)
        )
    }
}

fn tiers(since: &Since<'_>, status: &Status) -> Vec<TierLine> {
    let accesses = since.grown(|s| s.accesses as f64);
    let extent = since.now.extent_bytes;
    let one = |(i, t): (usize, &isotherm_answers::Tier)| {
        let members = || status.members.iter().filter(|m| m.tier == t.tier);
        let hits = since.grown(|s| s.tiers.get(i).map_or(0.0, |t| t.hits as f64));
        TierLine {
            tier: t.tier.into(),
            used: t.slots.saturating_sub(t.free_slots) * extent,
            size: t.slots * extent,
            served: (accesses > 0.0).then(|| hits / accesses),
            asleep: (
                members().filter(|m| m.asleep == Some(true)).count(),
                members().count(),
            ),
        }
    };
    since.now.tiers.iter().enumerate().map(one).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// Puts what `change` has into `whole`, object by object and item by item.
    fn merge(whole: &mut Value, change: Value) {
        match (whole, change) {
            (Value::Object(whole), Value::Object(change)) => {
                for (key, value) in change {
                    merge(whole.entry(key).or_insert(Value::Null), value);
                }
            }
            (Value::Array(whole), Value::Array(change)) if change.len() <= whole.len() => {
                for (old, new) in whole.iter_mut().zip(change) {
                    merge(old, new);
                }
            }
            (whole, change) => *whole = change,
        }
    }

    /// The figures of a real server, with these changes.
    pub(crate) fn stats(change: Value) -> Stats {
        let text = include_str!("../../answers/samples/stats.json");
        let mut stats = serde_json::from_str(text).expect("JSON");
        merge(&mut stats, change);
        isotherm_answers::read(&stats).expect("figures")
    }

    /// The same for `status`.
    pub(crate) fn status(change: Value) -> Status {
        let text = include_str!("../../answers/samples/status.json");
        let mut status = serde_json::from_str(text).expect("JSON");
        merge(&mut status, change);
        isotherm_answers::read_status(&status).expect("a status")
    }

    /// Something is wrong with the volume of a sample.
    pub(crate) fn ill(sample: &mut Sample, state: Level, sentence: &str, what: &str) {
        let cause = json!({
            "state": state, "kind": "missing", "member": 1, "path": "/dev/b", "what": what, "detail": "/dev/b", "todo": "attach it",
            "errno": null, "error": null, "count": null, "since_unix_s": null, "last_unix_s": null,
        });
        sample.stats.health = Health {
            state,
            sentence: sentence.to_owned(),
            causes: vec![isotherm_answers::read(&cause).expect("a cause")],
        };
    }

    /// A sample at `elapsed_s` whose counters are `n` times those of the first.
    pub(crate) fn sample(elapsed_s: f64, n: u64) -> Sample {
        let kind = |done: u64| json!({"proposed": done + n, "done": done, "refused": {"room": n}});
        let latency =
            |count: u64, mean: f64| json!({"count": count, "mean_s": mean, "p99_s": 0.009});
        let changed = json!({
            "volume": "v", "policy": "benefit", "paced": true, "elapsed_s": elapsed_s, "extent_bytes": 65536,
            "accesses": 100 * n, "reads": 80 * n, "writes": 20 * n, "flushes": n,
            "bytes_read": (80 * n) << 12, "bytes_written": (20 * n) << 12, "energy_j": 6.5 * elapsed_s, "errors": 0,
            "in_flight": 3, "copies": {"dirty_bytes": 5 << 20, "lost_with_fast_bytes": 9 << 20},
            "latency": {"read": latency(80 * n, 0.001), "write": latency(20 * n, 0.0002)},
            "tiers": [
                {"tier": 0, "slots": 1024, "free_slots": 24, "hits": 90 * n},
                {"tier": 1, "slots": 16384, "free_slots": 1024, "hits": 10 * n},
            ],
            "moves": {
                "promotions": kind(0), "demotions": kind(0), "fetches": kind(2 * n), "evictions": kind(n),
                "writebacks": kind(0), "active": 2,
            },
        });
        Sample {
            at: Instant::now(),
            stats: stats(changed),
            status: status(json!({"members": [{"asleep": false}, {"asleep": true}]})),
        }
    }

    #[test]
    fn rates_are_of_the_time_between_two_samples() {
        let o = Overview::new(&sample(10.0, 100), None);
        assert!(o.whole && o.well);
        let rates = o.per_s.map(|r| r.round() as u64);
        assert_eq!(rates, [800, 200, 10]);
        let o = Overview::new(&sample(12.0, 300), Some(&sample(10.0, 100)));
        assert_eq!((o.seconds as u64, o.per_s[0].round() as u64), (2, 8000));
        assert!((o.power_w.expect("modelled") - 6.5).abs() < 1e-9);
        let text = o.lines();
        for line in [
            "v: Serving well for 12.0 s.",
            "tier 0     62.5 MiB of 64.0 MiB used, served 90.0 %",
            "tier 1     960 MiB of 1.00 GiB used, served 10.0 %, asleep",
            "moves      fetches 200/s, evictions 100/s; 2 under way",
            "dirty      5.00 MiB",
            "loss       of the faster tiers would cost 5.00 MiB of dirty data and 4.00 MiB that live there",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        // The volume was restarted in between: there are no negative rates.
        let o = Overview::new(&sample(1.0, 1), Some(&sample(10.0, 100)));
        assert!(o.whole && (o.per_s[0] - 80.0).abs() < 1e-9);
    }

    #[test]
    fn what_is_wrong_is_said_first() {
        let mut bad = sample(1.0, 1);
        let sentence = "Degraded: 1 of its members missing.";
        ill(
            &mut bad,
            Level::Degraded,
            sentence,
            "1 of its members missing",
        );
        let o = Overview::new(&bad, None);
        assert!(!o.well);
        let text = "v: Degraded: 1 of its members missing.\nwrong      1 of its members missing: /dev/b\nto do      attach it\npolicy ";
        assert!(o.lines().starts_with(text), "{}", o.lines());
    }
}
