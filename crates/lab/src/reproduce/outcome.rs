//! What an experiment gives: tables, claims and their verdicts.

use serde::Serialize;

use super::paper::{Entry, Printed};

/// What became of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Our figures say the same.
    Holds,
    /// They do not.
    DoesNotHold,
    /// Something that it takes is missing here; the claim's `why` names it.
    CannotBeJudged,
}

/// A direction or a number that the paper states.
#[derive(Clone, Debug, Serialize)]
pub struct Claim {
    /// Name within the experiment.
    pub key: String,
    /// What is claimed.
    pub text: String,
    /// Section of the paper.
    pub at: String,
    /// It is arithmetic and must come out exactly.
    pub exact: bool,
    /// What became of it.
    pub verdict: Verdict,
    /// The figures that decided, or what is missing.
    pub why: String,
}

/// One figure.
#[derive(Clone, Debug, Serialize)]
pub struct Cell {
    /// What it is.
    pub name: String,
    /// Its unit.
    pub unit: String,
    /// Computed in this run; `None` if it could not be.
    pub ours: Option<f64>,
    /// What the paper prints.
    pub paper: Option<Printed>,
}

/// One row.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What the figures are of.
    pub label: String,
    /// The figures; all rows of a table have the same ones.
    pub cells: Vec<Cell>,
}

/// A table.
#[derive(Clone, Debug, Serialize)]
pub struct Table {
    /// What it shows.
    pub title: String,
    /// Its rows.
    pub rows: Vec<Row>,
}

/// The outcome of one experiment.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Its name.
    pub id: String,
    /// What it is.
    pub title: String,
    /// The paper and the section or figure.
    pub section: String,
    /// Scale of sizes and counts; `None` where nothing is scaled.
    pub scale: Option<f64>,
    /// Seed of everything random.
    pub seed: u64,
    /// What was run, in words.
    pub inputs: Vec<String>,
    /// What stands for something that the paper had.
    pub substitutes: Vec<String>,
    /// Figures.
    pub tables: Vec<Table>,
    /// Claims with verdicts.
    pub claims: Vec<Claim>,
    /// Seconds that the experiment took here.
    pub wall_s: f64,
    #[serde(skip)]
    entry: &'static Entry,
}

impl Outcome {
    /// Nothing computed, nothing judged.
    pub(super) fn new(entry: &'static Entry) -> Outcome {
        let claims = entry.claims.iter().map(|c| Claim {
            key: c.key.clone(),
            text: c.text.clone(),
            at: c.at.clone(),
            exact: c.exact,
            verdict: Verdict::CannotBeJudged,
            why: "this run did not come to it".to_owned(),
        });
        Outcome {
            id: entry.id.clone(),
            title: entry.title.clone(),
            section: entry.section.clone(),
            scale: None,
            seed: 0,
            inputs: Vec::new(),
            substitutes: Vec::new(),
            tables: Vec::new(),
            claims: claims.collect(),
            wall_s: 0.0,
            entry,
        }
    }

    /// What the paper prints under `key`, if it does.
    pub(super) fn printed(&self, key: &str) -> Option<Printed> {
        self.entry.figures.get(key).cloned()
    }

    /// Claim `key` holds or not, because of `why`.
    pub(super) fn judge(&mut self, key: &str, holds: bool, why: impl Into<String>) {
        let verdict = if holds {
            Verdict::Holds
        } else {
            Verdict::DoesNotHold
        };
        self.settle(key, verdict, why.into());
    }

    /// Claim `key` cannot be judged, because `missing` is.
    pub(super) fn cannot(&mut self, key: &str, missing: impl Into<String>) {
        self.settle(key, Verdict::CannotBeJudged, missing.into());
    }

    fn settle(&mut self, key: &str, verdict: Verdict, why: String) {
        if let Some(c) = self.claims.iter_mut().find(|c| c.key == key) {
            c.verdict = verdict;
            c.why = why;
        } else {
            // A verdict on something that the data file does not list is still shown, never dropped.
            self.claims.push(Claim {
                key: key.to_owned(),
                text: key.to_owned(),
                at: String::new(),
                exact: false,
                verdict,
                why,
            });
        }
    }

    /// Claims with that verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.claims.iter().filter(|c| c.verdict == verdict).count()
    }
}

impl Cell {
    /// A figure of ours.
    pub(super) fn new(name: &str, unit: &str, ours: f64) -> Cell {
        Cell {
            name: name.to_owned(),
            unit: unit.to_owned(),
            ours: ours.is_finite().then_some(ours),
            paper: None,
        }
    }

    /// Beside what the paper prints.
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
