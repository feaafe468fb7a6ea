//! The page of reproduced experiments: our figures beside the paper's, with verdicts.

use super::chart::Chart;
use super::page::{Page, Tile};
use super::table::{Cell, Table, Verdict};

/// One figure or table of a paper.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Experiment {
    /// The id, such as `greendm-6.5`.
    pub id: String,
    /// The title.
    pub title: String,
    /// Trace, devices, sizes.
    pub set_up: String,
    /// Substitutes for what is not available; empty if there are none.
    pub substitutes: String,
    /// The paper's statements.
    pub claims: Vec<Claim>,
    /// Further figures.
    pub tables: Vec<Table>,
    /// The charts.
    pub charts: Vec<Chart>,
}

/// One statement of a paper.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// The statement in words.
    pub text: String,
    /// The paper's figure, with its unit.
    pub paper: String,
    /// Our figure.
    pub ours: String,
    /// The verdict.
    pub verdict: Verdict,
    /// The reason, if it is not obvious; may be empty.
    pub why: String,
}

/// Makes the page.
pub fn reproduce_page(experiments: &[Experiment]) -> Page {
    let all = || experiments.iter().flat_map(|e| &e.claims);
    let mut page = Page::new(
        "The papers' experiments, run again",
        format!(
            "{} experiments, {} claims",
            experiments.len(),
            all().count()
        ),
    );
    let verdicts = [
        Verdict::Holds,
        Verdict::Partly,
        Verdict::Aside,
        Verdict::Fails,
        Verdict::Open,
    ];
    let count = |of: &[Claim], v: Verdict| of.iter().filter(|c| c.verdict == v).count();
    page.tiles(
        verdicts
            .map(|v| Tile {
                label: v.text().to_owned(),
                value: experiments
                    .iter()
                    .map(|e| count(&e.claims, v))
                    .sum::<usize>()
                    .to_string(),
                note: "claims".to_owned(),
            })
            .to_vec(),
    );
    let row = |e: &Experiment| {
        let mut row = vec![Cell::text(&e.id), Cell::text(&e.title)];
        row.extend(verdicts.map(|v| Cell::Written(count(&e.claims, v).to_string())));
        row
    };
    let mut columns = vec!["Experiment".to_owned(), "What".to_owned()];
    columns.extend(verdicts.map(|v| v.text().to_owned()));
    page.heading("Overview").table(Table {
        caption: String::new(),
        columns,
        rows: experiments.iter().map(row).collect(),
    });
    for e in experiments {
        page.heading(format!("{}: {}", e.id, e.title));
        for t in [&e.set_up, &e.substitutes] {
            if !t.is_empty() {
                page.text(t);
            }
        }
        if !e.claims.is_empty() {
            page.table(claims(&e.claims));
        }
        for t in &e.tables {
            page.table(t.clone());
        }
        for c in &e.charts {
            page.chart(c.clone());
        }
    }
    page
}

fn claims(claims: &[Claim]) -> Table {
    let row = |c: &Claim| {
        vec![
            Cell::text(&c.text),
            Cell::text(&c.paper),
            Cell::text(&c.ours),
            Cell::Verdict(c.verdict),
            Cell::text(&c.why),
        ]
    };
    Table {
        caption: String::new(),
        columns: ["Claim", "Paper", "Here", "Verdict", "Why"]
            .map(str::to_owned)
            .to_vec(),
        rows: claims.iter().map(row).collect(),
    }
}
