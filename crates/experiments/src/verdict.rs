//! Judges claims over cells and seeds.
//!
//! A claim of *size* prints a gain or a range of gains. There is one figure of ours per cell and seed. Its deviation is its distance from
//! the printed range, as a share of the nearer end of the range:
//!
//! | verdict | at least 80 % of the figures |
//! |---|---|
//! | holds | are within 20 % |
//! | near | are within 50 % |
//! | direction | have the printed sign |
//! | does not hold | none of these |
//!
//! The gain is judged, not the ratio: for `1.8 x` it is 0.8, so that no slowdown counts as near. A claim of *order* is true or false in a run, and
//! holds if it is true for at least 80 % of the seeds. `fitted` and `vacuous` claims (the data file lists them with the reason) are shown
//! and, unless they fail, not counted.

use serde::{Deserialize, Serialize};

use super::paper::Printed;

/// The share of the figures that must agree.
pub const ENOUGH: f64 = 0.8;
/// A figure holds if its deviation is at most this.
pub const ALIKE: f64 = 0.2;
/// A figure is near if its deviation is at most this.
pub const NEAR: f64 = 0.5;
/// The number of seeds that a verdict should be based on.
pub const SEEDS: usize = 5;

/// The verdict on a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Our figures agree with the claim.
    Holds,
    /// The size deviates by 20 to 50 %.
    Near,
    /// The direction agrees and the size does not.
    Direction,
    /// The claim would hold, but something was fitted or calibrated to it.
    Fitted,
    /// The claim holds for every possible measurement.
    Vacuous,
    /// Our figures disagree with the claim.
    DoesNotHold,
    /// Something that the judgement needs is missing; the claim's `why` names it.
    CannotBeJudged,
}

impl Verdict {
    /// All verdicts, the best first.
    pub const ALL: [Verdict; 7] = [
        Verdict::Holds,
        Verdict::Near,
        Verdict::Direction,
        Verdict::Fitted,
        Verdict::Vacuous,
        Verdict::DoesNotHold,
        Verdict::CannotBeJudged,
    ];

    /// The verdict in words.
    pub fn text(self) -> &'static str {
        match self {
            Verdict::Holds => "holds",
            Verdict::Near => "near",
            Verdict::Direction => "direction",
            Verdict::Fitted => "fitted",
            Verdict::Vacuous => "vacuous",
            Verdict::DoesNotHold => "does not hold",
            Verdict::CannotBeJudged => "cannot be judged",
        }
    }

    /// Whether nothing contradicts the claim.
    pub fn passes(self) -> bool {
        !matches!(self, Verdict::DoesNotHold | Verdict::CannotBeJudged)
    }
}

/// The evidence on a claim from one or more runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Evidence {
    /// The number of seeds.
    pub seeds: usize,
    /// The number of these seeds for which the claim is true; for a size, seed by seed.
    pub passed: usize,
    /// Our figures, cell by cell and seed by seed; empty for orders and directions.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    #[cfg_attr(feature = "schema", schemars(with = "Vec<Option<f64>>"))]
    pub figures: Vec<f64>,
    /// The unit of the figures.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub unit: String,
    /// The printed value to which they are compared.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[cfg_attr(feature = "schema", schemars(with = "Printed"))]
    pub printed: Option<Printed>,
}

impl Evidence {
    /// The evidence of one run on a claim of order.
    pub fn order(holds: bool) -> Evidence {
        Evidence {
            seeds: 1,
            passed: usize::from(holds),
            ..Evidence::default()
        }
    }

    /// The evidence of one run on a claim of size, one figure per cell.
    pub fn size(figures: Vec<f64>, unit: &str, printed: Printed) -> Evidence {
        let mut e = Evidence {
            seeds: 1,
            passed: 0,
            figures,
            unit: unit.to_owned(),
            printed: Some(printed),
        };
        e.passed = usize::from(e.verdict() == Verdict::Holds);
        e
    }

    /// Adds the evidence of another seed.
    pub fn add(&mut self, other: &Evidence) {
        self.seeds += other.seeds;
        self.passed += other.passed;
        self.figures.extend(&other.figures);
        if self.printed.is_none() {
            self.unit.clone_from(&other.unit);
            self.printed.clone_from(&other.printed);
        }
    }

    /// The verdict that follows from the evidence.
    pub fn verdict(&self) -> Verdict {
        let Some(printed) = &self.printed else {
            return if self.seeds == 0 {
                Verdict::CannotBeJudged
            } else if self.passed as f64 >= ENOUGH * self.seeds as f64 {
                Verdict::Holds
            } else {
                Verdict::DoesNotHold
            };
        };
        if self.figures.is_empty() {
            return Verdict::CannotBeJudged;
        }
        let gains = printed_gain(printed, &self.unit);
        let enough = |within: f64| {
            let n = self
                .figures
                .iter()
                .filter(|v| off(gain(**v, &self.unit), gains) <= within);
            n.count() as f64 >= ENOUGH * self.figures.len() as f64
        };
        if enough(ALIKE) {
            Verdict::Holds
        } else if enough(NEAR) {
            Verdict::Near
        } else if enough(f64::MAX) {
            Verdict::Direction
        } else {
            Verdict::DoesNotHold
        }
    }

    /// The number of our figures within 20 % of the printed value.
    pub fn alike(&self) -> usize {
        let Some(p) = &self.printed else { return 0 };
        let gains = printed_gain(p, &self.unit);
        let near = |v: &&f64| off(gain(**v, &self.unit), gains) <= ALIKE;
        self.figures.iter().filter(near).count()
    }
}

/// The gain of a value; a factor of 1 is a gain of zero.
fn gain(value: f64, unit: &str) -> f64 {
    if unit == "x" { value - 1.0 } else { value }
}

fn printed_gain(p: &Printed, unit: &str) -> (f64, f64) {
    (gain(p.low, unit), gain(p.high, unit))
}

/// The distance of `value` from `low…high`, as a share of the nearer end (of the other end if that one is zero). It is infinite if the sign
/// differs from the printed one, and otherwise finite.
fn off(value: f64, (low, high): (f64, f64)) -> f64 {
    if !value.is_finite() {
        return f64::INFINITY;
    }
    if (low..=high).contains(&value) {
        return 0.0;
    }
    if (low > 0.0 && value <= 0.0) || (high < 0.0 && value >= 0.0) {
        return f64::INFINITY;
    }
    let (end, other) = if value < low {
        (low, high)
    } else {
        (high, low)
    };
    let of = if end.abs() > 1e-12 {
        end.abs()
    } else {
        other.abs()
    };
    if of > 1e-12 {
        (value - end).abs() / of
    } else {
        f64::INFINITY
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::How;

    fn printed(low: f64, high: f64) -> Printed {
        Printed {
            low,
            high,
            how: How::Text,
            at: "here".to_owned(),
        }
    }

    fn of(figures: &[f64], unit: &str, low: f64, high: f64) -> Verdict {
        Evidence::size(figures.to_vec(), unit, printed(low, high)).verdict()
    }

    #[test]
    fn gains_are_judged_and_not_ratios() {
        // 1.8 x is a gain of 0.8: 1.64 to 1.96 hold, 1.4 to 2.2 are near.
        for (ours, verdict) in [
            (1.8, Verdict::Holds),
            (1.65, Verdict::Holds),
            (1.95, Verdict::Holds),
            (1.5, Verdict::Near),
            (2.1, Verdict::Near),
            (1.1, Verdict::Direction),
            (9.0, Verdict::Direction),
            (1.0, Verdict::DoesNotHold),
            (0.95, Verdict::DoesNotHold),
        ] {
            assert_eq!(of(&[ours], "x", 1.8, 1.8), verdict, "{ours}");
        }
    }

    #[test]
    fn no_slowdown_passes_for_a_gain_whatever_the_sizes() {
        for low in [0.5, 5.0, 42.0, 300.0] {
            for high in [low, 2.0 * low] {
                for ours in [0.0, -0.01, -low, -1e6, f64::NAN] {
                    assert_eq!(of(&[ours], "%", low, high), Verdict::DoesNotHold);
                    // With the opposite sign: if the paper prints a decrease, ours must be a decrease.
                    assert_eq!(of(&[-ours], "%", -high, -low), Verdict::DoesNotHold);
                }
            }
        }
    }

    #[test]
    fn four_of_five_figures_have_to_agree() {
        assert_eq!(
            of(&[10.0, 11.0, 9.0, 10.0, 30.0], "%", 10.0, 10.0),
            Verdict::Holds
        );
        assert_eq!(
            of(&[10.0, 11.0, 9.0, 14.0, 30.0], "%", 10.0, 10.0),
            Verdict::Near
        );
        assert_eq!(
            of(&[10.0, 1.0, 90.0, 14.0, -3.0], "%", 10.0, 10.0),
            Verdict::Direction
        );
        assert_eq!(
            of(&[10.0, 1.0, -90.0, 14.0, -3.0], "%", 10.0, 10.0),
            Verdict::DoesNotHold
        );
        assert_eq!(of(&[70.0, 80.0], "%", 64.0, 75.0), Verdict::Holds);
    }

    #[test]
    fn seeds_add_up() {
        let mut e = Evidence::order(true);
        for holds in [true, false, true, true] {
            e.add(&Evidence::order(holds));
        }
        assert_eq!((e.seeds, e.passed, e.verdict()), (5, 4, Verdict::Holds));
        e.add(&Evidence::order(false));
        assert_eq!(e.verdict(), Verdict::DoesNotHold);
        let mut s = Evidence::size(vec![10.0], "%", printed(10.0, 10.0));
        s.add(&Evidence::size(vec![14.0], "%", printed(10.0, 10.0)));
        assert_eq!(
            (s.seeds, s.passed, s.alike(), s.verdict()),
            (2, 1, 1, Verdict::Near)
        );
    }
}
