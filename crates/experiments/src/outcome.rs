//! The outcome of an experiment: tables, claims and their verdicts.

use std::fmt::Write;

use serde::Serialize;

use super::paper::{Entry, Printed};
pub use super::verdict::Verdict;
use super::verdict::{ENOUGH, Evidence};

/// A direction or a number that the paper states.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Claim {
    /// Name within the experiment.
    pub key: String,
    /// What is claimed.
    pub text: String,
    /// Section of the paper.
    pub at: String,
    /// Whether it is arithmetic and must be exact.
    pub exact: bool,
    /// The verdict.
    pub verdict: Verdict,
    /// The figures that decided the verdict, or what is missing.
    #[cfg_attr(feature = "schema", schemars(length(min = 1)))]
    pub why: String,
    /// `why`, with the agreement over cells and seeds, as the pages show it.
    #[cfg_attr(feature = "schema", schemars(length(min = 1)))]
    pub figures: String,
    /// The reason for not counting it, if its verdict is `fitted` or `vacuous`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub not_counted: Option<String>,
    /// The evidence from which the verdict is derived.
    pub evidence: Evidence,
}

/// One figure.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Cell {
    /// The name of the figure.
    pub name: String,
    /// Its unit.
    pub unit: String,
    /// The value computed in this run; `None` if it could not be computed.
    pub ours: Option<f64>,
    /// The value that the paper prints.
    pub paper: Option<Printed>,
    /// The smallest and the largest value over the seeds, if there were several.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "[f64; 2]"))]
    pub spread: Option<[f64; 2]>,
}

/// One row.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Row {
    /// What the figures describe.
    pub label: String,
    /// The figures; all rows of a table have the same ones.
    pub cells: Vec<Cell>,
}

/// A table.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Table {
    /// The caption.
    pub title: String,
    /// Its rows.
    pub rows: Vec<Row>,
}

/// The outcome of one experiment.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Outcome {
    /// The id of the experiment.
    pub id: String,
    /// The title of the experiment.
    pub title: String,
    /// The paper and the section or figure.
    pub section: String,
    /// Scale of sizes and counts; `None` if nothing is scaled.
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0)))]
    pub scale: Option<f64>,
    /// Seed of everything random: the first of `seeds`.
    pub seed: u64,
    /// All seeds of the run. Tables show the figures of the first seed, with the spread over all.
    #[cfg_attr(feature = "schema", schemars(length(min = 1)))]
    pub seeds: Vec<u64>,
    /// What was run, in words.
    pub inputs: Vec<String>,
    /// Substitutes for what the paper had.
    pub substitutes: Vec<String>,
    /// The tables of figures.
    pub tables: Vec<Table>,
    /// Claims with verdicts.
    pub claims: Vec<Claim>,
    /// Seconds that the experiment took here.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub wall_s: f64,
    #[serde(skip)]
    entry: &'static Entry,
}

/// `isotherm reproduce ID --json`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Reproduced {
    /// The experiments.
    #[cfg_attr(feature = "schema", schemars(length(min = 1)))]
    pub experiments: Vec<Outcome>,
    /// How many claims got each verdict.
    pub summary: Summary,
}

/// How many claims got each verdict.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Summary {
    /// [`Verdict::Holds`].
    pub holds: usize,
    /// [`Verdict::Near`].
    pub near: usize,
    /// [`Verdict::Direction`].
    pub direction: usize,
    /// [`Verdict::Fitted`].
    pub fitted: usize,
    /// [`Verdict::Vacuous`].
    pub vacuous: usize,
    /// [`Verdict::DoesNotHold`].
    pub does_not_hold: usize,
    /// [`Verdict::CannotBeJudged`].
    pub cannot_be_judged: usize,
    /// Seconds that all experiments took.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub wall_s: f64,
}

impl Reproduced {
    /// The outcomes, and how many of their claims got each verdict.
    pub fn new(experiments: Vec<Outcome>) -> Reproduced {
        let of = |v| experiments.iter().map(|o| o.count(v)).sum();
        let summary = Summary {
            holds: of(Verdict::Holds),
            near: of(Verdict::Near),
            direction: of(Verdict::Direction),
            fitted: of(Verdict::Fitted),
            vacuous: of(Verdict::Vacuous),
            does_not_hold: of(Verdict::DoesNotHold),
            cannot_be_judged: of(Verdict::CannotBeJudged),
            wall_s: experiments.iter().map(|o| o.wall_s).sum(),
        };
        Reproduced {
            experiments,
            summary,
        }
    }
}

impl Outcome {
    /// An empty outcome.
    pub(super) fn new(entry: &'static Entry) -> Outcome {
        let claims = entry.claims.iter().map(|c| Claim {
            key: c.key.clone(),
            text: c.text.clone(),
            at: c.at.clone(),
            exact: c.exact,
            verdict: Verdict::CannotBeJudged,
            why: "this run did not come to it".to_owned(),
            figures: "this run did not come to it".to_owned(),
            not_counted: None,
            evidence: Evidence::default(),
        });
        Outcome {
            id: entry.id.clone(),
            title: entry.title.clone(),
            section: entry.section.clone(),
            scale: None,
            seed: 0,
            seeds: Vec::new(),
            inputs: Vec::new(),
            substitutes: Vec::new(),
            tables: Vec::new(),
            claims: claims.collect(),
            wall_s: 0.0,
            entry,
        }
    }

    /// The value that the paper prints under `key`, if it prints one.
    pub(super) fn printed(&self, key: &str) -> Option<Printed> {
        self.entry.figures.get(key).cloned()
    }

    /// Records whether claim `key`, an order or a direction, holds, and the reason.
    pub(super) fn judge(&mut self, key: &str, holds: bool, why: impl Into<String>) {
        self.settle(key, Evidence::order(holds), why.into());
    }

    /// Records the figures for claim `key`, which prints a size. `why` shows both.
    pub(super) fn judge_size(&mut self, key: &str, figures: Vec<f64>, unit: &str, why: String) {
        let Some(printed) = self.printed(key) else {
            return self.cannot(key, "the data file has no value");
        };
        self.settle(key, Evidence::size(figures, unit, printed), why);
    }

    /// Records that claim `key` cannot be judged because `missing` is not available.
    pub(super) fn cannot(&mut self, key: &str, missing: impl Into<String>) {
        self.settle(key, Evidence::default(), missing.into());
    }

    fn settle(&mut self, key: &str, evidence: Evidence, why: String) {
        let aside = self.aside(key);
        if !self.claims.iter().any(|c| c.key == key) {
            // A verdict on a claim that the data file does not list is still shown and never dropped.
            self.claims.push(Claim {
                key: key.to_owned(),
                text: key.to_owned(),
                at: String::new(),
                exact: false,
                verdict: Verdict::CannotBeJudged,
                why: String::new(),
                figures: String::new(),
                not_counted: None,
                evidence: Evidence::default(),
            });
        }
        if let Some(c) = self.claims.iter_mut().find(|c| c.key == key) {
            c.evidence = evidence;
            c.why = why;
            c.conclude(aside);
        }
    }

    /// The entry in the data file on whether claim `key` is counted.
    fn aside(&self, key: &str) -> Option<(Verdict, String)> {
        let stated = self.entry.claims.iter().find(|c| c.key == key)?;
        let fitted = stated.fitted.clone().map(|why| (Verdict::Fitted, why));
        fitted.or_else(|| stated.vacuous.clone().map(|why| (Verdict::Vacuous, why)))
    }

    /// Adds the outcome of the same experiment with another seed. Figures get a spread, and claims are judged over both.
    pub(super) fn join(&mut self, other: &Outcome) {
        self.seeds.extend(&other.seeds);
        self.wall_s += other.wall_s;
        let cells = |t: &Table| {
            t.rows
                .iter()
                .flat_map(|r| r.cells.clone())
                .collect::<Vec<_>>()
        };
        let theirs = other.tables.iter().flat_map(cells);
        let ours = self.tables.iter_mut();
        let ours = ours.flat_map(|t| &mut t.rows).flat_map(|r| &mut r.cells);
        for (a, b) in ours.zip(theirs) {
            if let (true, Some(x), Some(y)) = (a.name == b.name, a.ours, b.ours) {
                let [low, high] = a.spread.unwrap_or([x, x]);
                a.spread = Some([low.min(y), high.max(y)]);
            }
        }
        for theirs in &other.claims {
            let aside = self.aside(&theirs.key);
            if let Some(c) = self.claims.iter_mut().find(|c| c.key == theirs.key) {
                c.evidence.add(&theirs.evidence);
                c.conclude(aside);
            } else {
                self.claims.push(theirs.clone());
            }
        }
    }

    /// The number of claims with that verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.claims.iter().filter(|c| c.verdict == verdict).count()
    }
}

impl Claim {
    /// Sets the verdict from the evidence.
    fn conclude(&mut self, aside: Option<(Verdict, String)>) {
        self.verdict = self.evidence.verdict();
        self.not_counted = None;
        if let Some((verdict, why)) = aside.filter(|_| self.verdict.passes()) {
            self.verdict = verdict;
            self.not_counted = Some(why);
        }
        self.figures = self.shown();
    }

    /// The figures that decided, with the agreement over the seeds if there were several.
    fn shown(&self) -> String {
        let e = &self.evidence;
        let mut text = self.why.clone();
        if e.seeds > 1 {
            let _ = match &e.printed {
                Some(_) => {
                    let low = e.figures.iter().copied().fold(f64::MAX, f64::min);
                    let high = e.figures.iter().copied().fold(f64::MIN, f64::max);
                    write!(
                        text,
                        "; over {} seeds {low:.3} to {high:.3} {}, {} of {} within 20 %, {:.0} % needed",
                        e.seeds,
                        e.unit,
                        e.alike(),
                        e.figures.len(),
                        ENOUGH * 100.0
                    )
                }
                None => write!(text, "; with {} of {} seeds", e.passed, e.seeds),
            };
        }
        if let Some(why) = &self.not_counted {
            let _ = write!(text, "; not counted: {why}");
        }
        text
    }
}

impl Cell {
    /// A figure computed in this run.
    pub(super) fn new(name: &str, unit: &str, ours: f64) -> Cell {
        Cell {
            name: name.to_owned(),
            unit: unit.to_owned(),
            ours: ours.is_finite().then_some(ours),
            paper: None,
            spread: None,
        }
    }

    /// The same cell with the value that the paper prints.
    pub(super) fn beside(mut self, paper: Option<Printed>) -> Cell {
        self.paper = paper;
        self
    }
}

impl Row {
    /// A row.
    pub(super) fn new(label: impl Into<String>, cells: Vec<Cell>) -> Row {
        Row {
            label: label.into(),
            cells,
        }
    }
}

impl Table {
    /// A table.
    pub(super) fn new(title: impl Into<String>, rows: Vec<Row>) -> Table {
        Table {
            title: title.into(),
            rows,
        }
    }
}
