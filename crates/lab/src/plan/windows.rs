//! How much the mean latency of a run depends on the part of the trace: ten parts with equally many requests, and the jackknife over them.
//!
//! Runs of one trace see the same requests in each part, so the difference of two runs has an interval of its own, which is much smaller
//! than those of the runs.

use crate::sim::{Report, Series};

/// Number of parts.
const PARTS: usize = 10;
/// Student's t for 95 % and one degree of freedom less than parts.
const T: f64 = 2.262;

/// Requests and the sum of their latencies in each part.
type Sums = [(f64, f64); PARTS];

/// The parts of all runs.
pub(super) struct Windows {
    runs: Vec<Option<Sums>>,
}

impl Windows {
    /// From the series by arrival of runs of the same trace.
    pub fn new(reports: &[Report]) -> Windows {
        let ends = reports
            .first()
            .and_then(|r| r.series.as_ref())
            .and_then(ends);
        let sums = |r: &Report| Some(sums(r.series.as_ref()?, ends.as_ref()?));
        Windows {
            runs: reports.iter().map(sums).collect(),
        }
    }

    /// Half of the 95 % interval of a run's mean latency, in seconds.
    pub fn error(&self, run: usize) -> Option<f64> {
        let parts = self.runs[run].as_ref()?;
        jackknife(|without| mean(parts, without)).map(|(_, e)| e)
    }

    /// The part of `than`'s mean latency that `run` saves, and half of its 95 % interval.
    pub fn saved(&self, run: usize, than: usize) -> Option<(f64, f64)> {
        let (a, b) = (self.runs[run].as_ref()?, self.runs[than].as_ref()?);
        jackknife(|without| Some(1.0 - mean(a, without)? / mean(b, without)?))
    }
}

/// The times at which the parts end, all but the last; `None` if there are too few requests or bins.
fn ends(s: &Series) -> Option<Vec<f64>> {
    let total: u64 = s.arrivals.iter().sum();
    let mut ends = Vec::new();
    let mut before = 0;
    for (i, n) in s.arrivals.iter().enumerate() {
        before += n;
        if before * PARTS as u64 >= total * (ends.len() as u64 + 1) && ends.len() < PARTS - 1 {
            ends.push((i + 1) as f64 * s.bin_s);
        }
    }
    (total >= 1000 && ends.len() == PARTS - 1).then_some(ends)
}

fn sums(s: &Series, ends: &[f64]) -> Sums {
    let mut parts = [(0.0, 0.0); PARTS];
    for (i, (n, l)) in s
        .arrivals
        .iter()
        .zip(&s.arrivals_latency_mean_s)
        .enumerate()
    {
        let at = (i as f64 + 0.5) * s.bin_s;
        let part = ends.iter().take_while(|e| at > **e).count();
        parts[part].0 += *n as f64;
        parts[part].1 += *n as f64 * l;
    }
    parts
}

/// The mean over all parts but one.
fn mean(parts: &Sums, without: Option<usize>) -> Option<f64> {
    let kept = parts
        .iter()
        .enumerate()
        .filter(|(i, _)| Some(*i) != without);
    let (n, sum) = kept.fold((0.0, 0.0), |(n, s), (_, p)| (n + p.0, s + p.1));
    (n > 0.0 && sum > 0.0).then(|| sum / n)
}

/// The value of `of` over all parts, and half of its 95 % interval.
fn jackknife(of: impl Fn(Option<usize>) -> Option<f64>) -> Option<(f64, f64)> {
    let whole = of(None)?;
    let each = (0..PARTS)
        .map(|i| of(Some(i)))
        .collect::<Option<Vec<_>>>()?;
    let mean = each.iter().sum::<f64>() / PARTS as f64;
    let squares: f64 = each.iter().map(|v| (v - mean).powi(2)).sum();
    let error = (squares * (PARTS - 1) as f64 / PARTS as f64).sqrt();
    Some((whole, T * error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(latencies: &[f64]) -> Report {
        Report {
            series: Some(Series {
                bin_s: 1.0,
                arrivals: vec![100; latencies.len()],
                arrivals_latency_mean_s: latencies.to_vec(),
                ..Series::default()
            }),
            ..Report::default()
        }
    }

    /// For parts of equal weight the jackknife is the usual interval of a mean: t × s ÷ √10.
    #[test]
    fn equal_parts_have_the_usual_interval() {
        let values: Vec<f64> = (1..=10).map(f64::from).collect();
        let twice: Vec<f64> = values.iter().map(|v| v / 2.0).collect();
        let w = Windows::new(&[report(&values), report(&twice)]);
        let s = (82.5_f64 / 9.0).sqrt();
        let got = w.error(0).expect("enough");
        assert!((got - T * s / 10.0_f64.sqrt()).abs() < 1e-9, "{got}");
        // Half of each part: the difference is certain, though the runs are not.
        let (share, error) = w.saved(1, 0).expect("enough");
        assert!(
            (share - 0.5).abs() < 1e-12 && error < 1e-12,
            "{share} {error}"
        );
        assert!(Windows::new(&[report(&values[..5])]).error(0).is_none());
        assert!(Windows::new(&[Report::default()]).error(0).is_none());
    }
}
