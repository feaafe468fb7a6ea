//! The figures of a volume for `stats` and `top`: one page for display, from the answers of the control socket.

use std::time::Instant;

use serde_json::Value;

use crate::figures;
use crate::human::{bytes, count, percent, rate, time};

/// The answers at one moment.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The time at which they came.
    pub at: Instant,
    /// The answer of `stats`.
    pub stats: Value,
    /// The answer of `status`.
    pub status: Value,
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

/// A count in an answer; 0 if it is absent.
pub(crate) fn int(v: &Value) -> u64 {
    v.as_u64().unwrap_or(0)
}

fn num(v: &Value) -> f64 {
    v.as_f64().unwrap_or(0.0)
}

/// The items of a list in an answer; none if it is absent.
pub(crate) fn items(v: &Value) -> impl Iterator<Item = &Value> {
    v.as_array().into_iter().flatten()
}

/// The state in one sentence, and whether all is well: what the server says of its health (`health.rs` of the control plane).
pub fn sentence(status: &Value, stats: &Value) -> (String, bool) {
    let health = &status["health"];
    if health["state"].as_str().is_some_and(|s| s != "well") {
        let text = health["sentence"].as_str().unwrap_or_default();
        return (text.to_owned(), false);
    }
    // A server of another version may not say how it is, but whether it has failed.
    let failed = status["failure"]["reason"].as_str();
    if let Some(reason) = failed.filter(|_| health.is_null()) {
        return (format!("FAILED: {reason}."), false);
    }
    let how = if status["read_only"].as_bool() == Some(true) {
        "read-only"
    } else {
        "well"
    };
    // It may not say for how long, either.
    let since = stats["elapsed_s"].as_f64();
    let since = since.map_or_else(String::new, |s| format!(" for {}", time(s)));
    (format!("Serving {how}{since}."), true)
}

/// What is wrong and what to do about it, one line each: a word and its text.
pub fn causes(status: &Value) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    for cause in items(&status["health"]["causes"]) {
        let text = |key: &str| cause[key].as_str().unwrap_or_default();
        lines.push(("wrong", format!("{}: {}", text("what"), text("detail"))));
        lines.push(("to do", text("todo").to_owned()));
    }
    lines
}

impl Overview {
    /// The figures of `now`, with rates since `before`, or since serving began.
    pub fn new(now: &Sample, before: Option<&Sample>) -> Overview {
        let s = &now.stats;
        // If the volume was restarted in between, its counters begin at zero.
        let before = before.filter(|b| num(&b.stats["elapsed_s"]) < num(&s["elapsed_s"]));
        let nothing = Value::Null;
        let old = before.map_or(&nothing, |b| &b.stats);
        let seconds = num(&s["elapsed_s"]) - num(&old["elapsed_s"]);
        let since = |p: &str| {
            let of = |v: &Value| v.pointer(p).map_or(0.0, num);
            (of(s) - of(old)).max(0.0)
        };
        let per_s = |p: &str| {
            if seconds > 0.0 {
                since(p) / seconds
            } else {
                0.0
            }
        };
        let mean = |op: &str| {
            let n = since(&format!("/latency/{op}/count"));
            let total =
                |v: &Value| num(&v["latency"][op]["mean_s"]) * num(&v["latency"][op]["count"]);
            (n > 0.0).then(|| ((total(s) - total(old)) / n).max(0.0))
        };
        let (sentence, well) = sentence(&now.status, s);
        let mut refusals: Vec<(String, u64)> = Vec::new();
        for kind in figures::KINDS {
            for (why, n) in s["moves"][kind]["refused"]
                .as_object()
                .into_iter()
                .flatten()
            {
                match refusals.iter_mut().find(|r| r.0 == *why) {
                    Some(r) => r.1 += int(n),
                    None => refusals.push((why.clone(), int(n))),
                }
            }
        }
        refusals.retain(|r| r.1 > 0);
        refusals.sort_by_key(|r| std::cmp::Reverse(r.1));
        Overview {
            name: s["volume"].as_str().unwrap_or_default().to_owned(),
            sentence,
            well,
            causes: causes(&now.status),
            policy: s["policy"].as_str().unwrap_or_default().to_owned(),
            paced: s["paced"].as_bool() == Some(true),
            seconds,
            whole: before.is_none(),
            tiers: tiers(s, old, &now.status, since("/accesses")),
            per_s: [per_s("/reads"), per_s("/writes"), per_s("/flushes")],
            bytes_per_s: [per_s("/bytes_read"), per_s("/bytes_written")],
            mean_s: [mean("read"), mean("write")],
            p99_s: ["read", "write"].map(|op| num(&s["latency"][op]["p99_s"])),
            moves: figures::KINDS
                .into_iter()
                .map(|k| {
                    let refused = s["moves"][k]["refused"].as_object().into_iter().flatten();
                    let refused = refused.map(|(_, n)| int(n)).sum();
                    let proposed = int(&s["moves"][k]["proposed"]);
                    (k, per_s(&format!("/moves/{k}/done")), refused, proposed)
                })
                .collect(),
            moving: int(&s["moves"]["active"]),
            dirty: int(&s["copies"]["dirty_bytes"]),
            fast_homes: int(&s["copies"]["lost_with_fast_bytes"])
                .saturating_sub(int(&s["copies"]["dirty_bytes"])),
            queue: int(&s["in_flight"]),
            power_w: s["energy_j"].as_f64().map(|_| per_s("/energy_j")),
            errors: int(&s["errors"]),
            refusals,
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

fn tiers(s: &Value, old: &Value, status: &Value, accesses: f64) -> Vec<TierLine> {
    let extent = int(&s["extent_bytes"]);
    let before = |t: usize| int(&old["tiers"][t]["hits"]);
    let one = |(i, t): (usize, &Value)| {
        let members = || items(&status["members"]).filter(|m| m["tier"] == t["tier"]);
        let asleep = members()
            .filter(|m| m["asleep"].as_bool() == Some(true))
            .count();
        TierLine {
            tier: int(&t["tier"]),
            used: int(&t["slots"]).saturating_sub(int(&t["free_slots"])) * extent,
            size: int(&t["slots"]) * extent,
            served: (accesses > 0.0)
                .then(|| int(&t["hits"]).saturating_sub(before(i)) as f64 / accesses),
            asleep: (asleep, members().count()),
        }
    };
    items(&s["tiers"]).enumerate().map(one).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use serde_json::json;

    /// A sample at `elapsed_s` whose counters are `n` times those of the first.
    pub(crate) fn sample(elapsed_s: f64, n: u64) -> Sample {
        let kind = |done: u64| json!({"proposed": done + n, "done": done, "refused": {"room": n, "asleep": 0}});
        let latency =
            |count: u64, mean: f64| json!({"count": count, "mean_s": mean, "p99_s": 0.009});
        Sample {
            at: Instant::now(),
            stats: json!({
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
            }),
            status: json!({
                "health": {"state": "well", "sentence": "Serving well.", "causes": []}, "failure": null, "missing_members": [], "read_only": false,
                "members": [{"tier": 0, "asleep": false}, {"tier": 1, "asleep": true}],
            }),
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
        bad.status["health"] = json!({
            "state": "degraded", "sentence": "Degraded: 1 of its members missing.",
            "causes": [{"what": "1 of its members missing", "detail": "/dev/b", "todo": "attach it"}],
        });
        let o = Overview::new(&bad, None);
        assert!(!o.well);
        let text = "v: Degraded: 1 of its members missing.\nwrong      1 of its members missing: /dev/b\nto do      attach it\npolicy ";
        assert!(o.lines().starts_with(text), "{}", o.lines());
        // A server of another version says no more than this.
        bad.status["health"] = Value::Null;
        bad.status["failure"] = json!({"reason": "flush of member 0 failed"});
        let o = Overview::new(&bad, None);
        assert!(!o.well && o.sentence == "FAILED: flush of member 0 failed.");
    }
}
