//! Cost over the time factor (GreenDM, chapter 7).

use super::chart::{Axis, Chart, Line, LineStyle, Lines, Plot};
use super::unit::Unit;

/// The cost of one configuration: `once + time factor × per run` (equations 7.3 and 7.6).
#[derive(Clone, Debug, PartialEq)]
pub struct CostCurve {
    /// The name in the legend.
    pub name: String,
    /// Purchase and service.
    pub once_usd: f64,
    /// Energy, power, wear, requests and rent of a run.
    pub per_run_usd: f64,
}

impl CostCurve {
    /// The total at a time factor.
    pub fn usd(&self, time_factor: f64) -> f64 {
        self.once_usd + time_factor * self.per_run_usd
    }
}

/// Cost at time factors 1 to 100 000, at four values per decade.
pub fn cost_chart(curves: &[CostCurve]) -> Chart {
    let factors: Vec<f64> = (0..=20)
        .map(|i| 10_f64.powf(f64::from(i) / 4.0).round())
        .collect();
    let series = curves.iter().map(|c| Line {
        name: c.name.clone(),
        points: factors.iter().map(|&f| (f, c.usd(f))).collect(),
    });
    Chart {
        title: "Cost over the time factor".to_owned(),
        note: "Purchase and service once, energy, power and wear as often as the run is repeated."
            .to_owned(),
        plot: Plot::Lines(Lines {
            x: Axis::log("Time factor", Unit::COUNT),
            y: Axis::log("Total cost", Unit::USD),
            series: series.collect(),
            style: LineStyle::Straight,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_curve_is_equation_7_6() {
        let chart = cost_chart(&[CostCurve {
            name: "a".to_owned(),
            once_usd: 116.48,
            per_run_usd: 6.0282,
        }]);
        let Plot::Lines(l) = chart.plot else {
            panic!("lines")
        };
        let p = &l.series[0].points;
        assert_eq!((p[0].0, p[20].0, p.len()), (1.0, 1e5, 21));
        // GreenDM 7.2, computed with its own formulas.
        assert!((p[0].1 - 122.508_2).abs() < 1e-9 && (p[8].1 - 719.30).abs() < 1e-9);
    }
}
