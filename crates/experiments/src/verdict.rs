//! How claims are judged, over cells and seeds.
//!
//! A claim of *size* prints a gain, or a range of gains. Each of our figures, one a cell and seed, is as far off as it lies outside
//! the printed range, as a share of the nearer end:
//!
//! | verdict | of the figures, at least 80 % |
//! |---|---|
//! | holds | are within 20 % |
//! | near | are within 50 % |
//! | direction | have the printed sign |
//! | does not hold | none of these |
//!
//! What is judged is the gain: of `1.8 x` that is 0.8, so that no slowdown comes near. A claim of *order* either comes out or
//! not, and holds if it does with at least 80 % of the seeds. `fitted` and `vacuous` claims (the data file says which, and why)
//! are shown and not counted, unless they fail.

use serde::{Deserialize, Serialize};

use super::paper::Printed;

/// Figures that have to agree, as a share.
pub const ENOUGH: f64 = 0.8;
/// Off by no more than this, a figure is alike.
pub const ALIKE: f64 = 0.2;
/// Off by no more than this, it is near.
pub const NEAR: f64 = 0.5;
/// Seeds that a verdict is meant for.
pub const SEEDS: usize = 5;

/// What became of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Our figures say the same.
    Holds,
    /// A size that is 20 to 50 % off.
    Near,
    /// The direction of a size, and not the size.
    Direction,
    /// It would come out, but something was fitted or calibrated so that it does.
    Fitted,
    /// It comes out whatever is measured.
    Vacuous,
    /// They say something else.
    DoesNotHold,
    /// Something that it takes is missing here; the claim's `why` names it.
    CannotBeJudged,
}

impl Verdict {
    /// All of them, the best first.
    pub const ALL: [Verdict; 7] = [
        Verdict::Holds,
        Verdict::Near,
        Verdict::Direction,
        Verdict::Fitted,
        Verdict::Vacuous,
        Verdict::DoesNotHold,
        Verdict::CannotBeJudged,
    ];

    /// In words.
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

    /// Nothing speaks against the claim.
    pub fn passes(self) -> bool {
        !matches!(self, Verdict::DoesNotHold | Verdict::CannotBeJudged)
    }
}

/// What one or more runs say about a claim.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// Seeds that it was judged with.
    pub seeds: usize,
    /// Of these, how many it came out with; of a size, counted seed by seed.
    pub passed: usize,
    /// Our figures, cell by cell, seed after seed; empty for orders and directions.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub figures: Vec<f64>,
    /// Their unit.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub unit: String,
    /// What they are compared with.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub printed: Option<Printed>,
}

impl Evidence {
    /// A claim of order, from one run.
    pub fn order(holds: bool) -> Evidence {
        Evidence {
            seeds: 1,
            passed: usize::from(holds),
            ..Evidence::default()
        }
    }

    /// A claim of size, from the cells of one run.
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

    /// With what another seed says.
    pub fn add(&mut self, other: &Evidence) {
        self.seeds += other.seeds;
        self.passed += other.passed;
        self.figures.extend(&other.figures);
        if self.printed.is_none() {
            self.unit.clone_from(&other.unit);
            self.printed.clone_from(&other.printed);
        }
    }

    /// What the evidence says.
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

    /// Our figures within 20 % of what is printed.
    pub fn alike(&self) -> usize {
        let Some(p) = &self.printed else { return 0 };
        let gains = printed_gain(p, &self.unit);
        let near = |v: &&f64| off(gain(**v, &self.unit), gains) <= ALIKE;
        self.figures.iter().filter(near).count()
    }
}

/// What is gained: a factor of 1 gains nothing.
fn gain(value: f64, unit: &str) -> f64 {
    if unit == "x" { value - 1.0 } else { value }
}

fn printed_gain(p: &Printed, unit: &str) -> (f64, f64) {
    (gain(p.low, unit), gain(p.high, unit))
}

/// How far `value` lies outside `low…high`, as a share of the nearer end (of the other where that one is nothing). Infinite
/// where the sign is another than the printed one; a finite number however far, else.
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
                    // The other way round: what is printed as less must be less.
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
