//! The answer of `what-if`, from the shadows and from what the volume measures.

use std::sync::atomic::Ordering;

use crate::shadow::{Estimate, Range};
use isotherm_answers::{Between, Prediction, WhatIf};
use isotherm_core::Nanos;

use super::times::Times;
use super::{FastAsk, Measured, Watched};
use crate::live::Live;

impl Live {
    /// The answer of `what-if`: the whole table, and the line for a size or a policy.
    pub(crate) fn what_if(
        &self,
        fast: Option<FastAsk>,
        policy: Option<&str>,
    ) -> Result<WhatIf, String> {
        let shared = self.tap.shadowing().ok_or("this server has no shadows")?;
        self.shadow(shared, true)?;
        let (_, measured, _) = self.facts()?;
        let mut state = shared.state();
        state.catch_up();
        let w = state.watched.as_ref().map_err(Clone::clone)?;
        let lacks = w.set.lacks();
        if lacks > 0 {
            return Err(format!(
                "too few accesses so far: the shadows have played {} for {:.0} s, and need {lacks} more: ask again later",
                w.set.sampled(),
                shared.now().since(w.began).as_secs_f64(),
            ));
        }
        let seen = shared.seen.load(Ordering::Relaxed);
        Looked::new(w, seen, measured).answer(self, shared.now(), fast, policy)
    }
}

/// The counted part of the time.
struct Looked<'a> {
    watched: &'a Watched,
    estimates: Vec<Estimate>,
    /// What was measured: the hit ratio with flash, and the mean latency.
    hits: Option<f64>,
    latency: Option<f64>,
    times: Option<Times>,
}

impl<'a> Looked<'a> {
    fn new(watched: &'a Watched, seen: u64, now: Measured) -> Looked<'a> {
        let then = watched.marks[0];
        let part = |now: u64, then: u64| now.saturating_sub(then) as f64;
        let accesses = part(now.accesses, then.accesses);
        let (reads, writes) = (part(now.reads, then.reads), part(now.writes, then.writes));
        let has_flash = watched.facts.shape.fast > 0;
        let hits = (has_flash && accesses > 0.0).then(|| part(now.hits, then.hits) / accesses);
        let requests = reads + writes;
        let latency =
            (requests > 0.0).then(|| now.latency.since(then.latency).as_secs_f64() / requests);
        let fast =
            (now.fast.0.as_secs_f64() * reads + now.fast.1.as_secs_f64() * writes) / requests;
        let times = latency
            .zip(hits)
            .and_then(|(mean, h)| Times::of(mean, h, fast, now.service.as_secs_f64()));
        Looked {
            estimates: watched.set.estimates(seen),
            watched,
            hits,
            latency,
            times,
        }
    }

    /// The estimate for the settings of today.
    fn present(&self) -> Option<Estimate> {
        self.watched.set.present().map(|p| self.estimates[p])
    }

    fn range(&self, setting: usize) -> Range {
        let e = self.estimates[setting];
        match (self.present(), self.hits) {
            // What is measured needs no prediction.
            (Some(_), Some(h)) if self.watched.set.present() == Some(setting) => Range {
                hits: h,
                low: h,
                high: h,
            },
            (Some(present), Some(measured)) => e.corrected(present, measured),
            _ => e.range(),
        }
    }

    fn bytes(&self, slots: u32) -> u64 {
        u64::from(slots) << self.watched.facts.shape.extent_shift
    }

    fn prediction(&self, setting: usize) -> Prediction {
        let s = &self.watched.set.settings()[setting];
        self.line(
            &s.policy,
            self.bytes(s.slots),
            self.range(setting),
            &[setting],
        )
    }

    fn line(&self, policy: &str, fast_bytes: u64, hits: Range, of: &[usize]) -> Prediction {
        Prediction {
            policy: policy.to_owned(),
            fast_bytes,
            hit_ratio: Between {
                value: hits.hits,
                low: hits.low,
                high: hits.high,
            },
            latency_mean_s: self.times.and_then(|t| t.mean(hits)),
            filling: of.iter().any(|s| self.watched.set.is_filling(*s)),
        }
    }

    /// The line for a size: that of a step, or between two.
    fn at_size(&self, ask: FastAsk) -> Result<Prediction, String> {
        let facts = &self.watched.facts;
        let today = self.bytes(facts.shape.fast);
        let bytes = ask.bytes.saturating_add(if ask.more { today } else { 0 });
        let ladder: Vec<(usize, u64)> = (self.watched.set.settings().iter().enumerate())
            .filter(|(_, s)| s.policy == facts.policy)
            .map(|(i, s)| (i, self.bytes(s.slots)))
            .collect();
        let above = ladder.iter().position(|(_, b)| *b >= bytes);
        let ends = || {
            let end = |at: Option<&(usize, u64)>| at.map_or(0, |e| e.1);
            format!(
                "fast: {bytes} bytes: the shadows look at {} to {} bytes of flash",
                end(ladder.first()),
                end(ladder.last())
            )
        };
        let above = above.ok_or_else(ends)?;
        let (b, upper) = ladder[above];
        if upper == bytes {
            return Ok(self.prediction(b));
        }
        let (a, lower) = *above.checked_sub(1).map(|i| &ladder[i]).ok_or_else(ends)?;
        let part = (bytes as f64 / lower as f64).ln() / (upper as f64 / lower as f64).ln();
        let range = Range::between(self.range(a), self.range(b), part);
        Ok(self.line(&facts.policy, bytes, range, &[a, b]))
    }

    fn of_policy(&self, policy: &str) -> Result<Prediction, String> {
        let settings = self.watched.set.settings();
        let today = self.watched.facts.shape.fast;
        let at = settings
            .iter()
            .position(|s| s.policy == policy && s.slots == today);
        at.map(|i| self.prediction(i)).ok_or_else(|| {
            let tried = settings.iter().filter(|s| s.slots == today);
            let names: Vec<&str> = tried.map(|s| s.policy.as_str()).collect();
            match names[..] {
                [] => "policy: without flash the shadows try no other policy".to_owned(),
                _ => format!(
                    "policy: {policy}: the shadows try {} only",
                    names.join(", ")
                ),
            }
        })
    }

    fn answer(
        &self,
        live: &Live,
        now: Nanos,
        fast: Option<FastAsk>,
        policy: Option<&str>,
    ) -> Result<WhatIf, String> {
        let (set, facts) = (&self.watched.set, &self.watched.facts);
        let (from, sampled) = set.window();
        let asked = match (fast, policy) {
            (Some(f), _) => Some(self.at_size(f)?),
            (None, Some(p)) => Some(self.of_policy(p)?),
            (None, None) => None,
        };
        let all = 0..set.settings().len();
        let (sizes, policies) = all.partition(|i| set.settings()[*i].policy == facts.policy);
        let lines = |of: Vec<usize>| of.into_iter().map(|i| self.prediction(i)).collect();
        Ok(WhatIf {
            volume: live.volume.to_string_lossy().into_owned(),
            policy: facts.policy.clone(),
            volume_bytes: self.bytes(facts.shape.extents),
            fast_bytes: self.bytes(facts.shape.fast),
            watched_s: now.since(self.watched.began).as_secs_f64(),
            counted_s: now.since(from).as_secs_f64(),
            sampled_accesses: sampled,
            sample_rate: set.sampler().rate(),
            touched_bytes: set.touched_bytes(),
            measured_hit_ratio: self.hits,
            shadow_hit_ratio: self.present().map(|e| e.hits),
            measured_latency_mean_s: self.latency,
            sizes: lines(sizes),
            policies: lines(policies),
            asked,
        })
    }
}
