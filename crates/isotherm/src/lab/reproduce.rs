//! `isotherm reproduce`: reproduces the papers' figures and tables, with verdicts. The lab does the work.

use std::fmt::Write;
use std::io::IsTerminal;
use std::path::PathBuf;

use isotherm_experiments::{
    Claim, Ctx, EXPERIMENTS, Experiment, Outcome, PAPERS, Printed, Reproduced, SEEDS, Table,
    Verdict,
};
use isotherm_report::outcomes_page;
use serde::Serialize;

use crate::Failure;
use crate::lab::args::ReproduceArgs;
use crate::lab::sim::failed;
use crate::table::table;

/// `isotherm reproduce`.
///
/// # Errors
/// An experiment is unknown or fails, or an exact claim does not hold.
pub fn run(args: &ReproduceArgs) -> Result<(), Failure> {
    if args.ids == ["list"] {
        return list(args);
    }
    let wanted = chosen(&args.ids)?;
    let shown = std::io::stderr().is_terminal();
    let progress = |what: &str| {
        if shown {
            crate::log::note(format_args!("{what}"));
        }
    };
    let ctx = |seed: u64| {
        let mut ctx = Ctx::new(&progress);
        ctx.scale = args.scale;
        ctx.seed = seed;
        ctx.traces = std::env::var_os(isotherm_traces::TRACES_VAR).map(Into::into);
        ctx
    };
    let recordings = by_turn(&args.recording)?;
    let turns = recordings.len().max(usize::from(args.seeds)) as u64;
    let seeds: Vec<Ctx<'_>> = (0..turns)
        .map(|i| {
            let mut ctx = ctx(args.seed.saturating_add(i));
            ctx.recordings = recordings.get(i as usize).cloned().unwrap_or_default();
            ctx
        })
        .collect();
    if let Some(e) = wanted.iter().find(|e| !fits(e, &recordings)) {
        return Err(Failure::usage(format!(
            "{}: no recording of a mount of files shows it: leave out --recording",
            e.id
        )));
    }
    let outcomes = wanted
        .iter()
        .map(|e| e.run_seeds(&seeds).map_err(|e| failed(&e)))
        .collect::<Result<Vec<_>, _>>()?;
    let whole = Reproduced::new(outcomes);
    let outcomes = &whole.experiments;
    if args.page.wanted() {
        args.page.write(&outcomes_page(outcomes))?;
    }
    args.json.print(&whole, || text(outcomes))?;
    let wrong = outcomes
        .iter()
        .flat_map(|o| &o.claims)
        .any(|c| c.exact && c.verdict != Verdict::Holds);
    if wrong { Err(Failure::Bad) } else { Ok(()) }
}

/// Whether an experiment can be judged on what is given.
fn fits(experiment: &Experiment, recordings: &[Loads]) -> bool {
    recordings.is_empty() || experiment.takes_recordings()
}

/// A recording of each load.
type Loads = Vec<(String, PathBuf)>;

/// The first recording of each load, then the second of each, and so on: further ones stand for further seeds.
fn by_turn(all: &[(String, PathBuf)]) -> Result<Vec<Loads>, Failure> {
    let mut turns: Vec<Loads> = Vec::new();
    for (name, file) in all {
        let has = |turn: &&mut Loads| turn.iter().all(|(n, _)| n != name);
        match turns.iter_mut().find(has) {
            Some(turn) => turn.push((name.clone(), file.clone())),
            None => turns.push(vec![(name.clone(), file.clone())]),
        }
    }
    match (turns.first(), turns.last()) {
        (Some(first), Some(last)) if first.len() != last.len() => Err(Failure::usage(format!(
            "--recording: give as many recordings of each load; one has {} and another fewer",
            turns.len()
        ))),
        _ => Ok(turns),
    }
}

/// The requested experiments, each once.
fn chosen(ids: &[String]) -> Result<Vec<&'static Experiment>, Failure> {
    let mut wanted: Vec<&Experiment> = Vec::new();
    for id in ids {
        let found = match id.as_str() {
            "all" => EXPERIMENTS.iter().collect(),
            "list" => {
                return Err(Failure::usage(
                    "`list` stands alone: isotherm reproduce list",
                ));
            }
            id => vec![Experiment::find(id).map_err(Failure::usage)?],
        };
        for e in found {
            if wanted.iter().all(|w| w.id != e.id) {
                wanted.push(e);
            }
        }
    }
    Ok(wanted)
}

fn list(args: &ReproduceArgs) -> Result<(), Failure> {
    let all = PAPERS
        .iter()
        .flat_map(|p| p.experiments.iter().map(move |e| (p, e)));
    let rows = all
        .map(|(p, e)| {
            let here = EXPERIMENTS.iter().find(|x| x.id == e.id);
            Listed {
                id: &e.id,
                paper: &p.name,
                section: &e.section,
                title: &e.title,
                in_this_build: here.is_some(),
                claims: e.claims.len(),
                scale: here.and_then(|x| x.scale),
            }
        })
        .collect();
    let list = List(rows);
    args.json.print(&list, || {
        let row = |r: &Listed| {
            let state = if r.in_this_build {
                r.claims.to_string()
            } else {
                "not in this build".to_owned()
            };
            vec![
                r.id.to_owned(),
                state,
                r.scale.map_or_else(|| "-".to_owned(), |s| format!("{s:?}")),
                r.section.to_owned(),
                r.title.to_owned(),
            ]
        };
        let rows: Vec<Vec<String>> = list.0.iter().map(row).collect();
        table(&["id", "claims", "scale", "section", "title"], &rows)
    })
}

/// `isotherm reproduce list --json`.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(transparent)]
pub(super) struct List<'a>(#[cfg_attr(test, schemars(length(min = 1)))] Vec<Listed<'a>>);

/// An experiment in the list.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Listed<'a> {
    /// Its name.
    id: &'a str,
    /// The paper.
    paper: &'a str,
    /// The section of the paper.
    section: &'a str,
    /// Its title.
    title: &'a str,
    /// Whether this program has it.
    in_this_build: bool,
    /// Claims that it judges.
    claims: usize,
    /// Its usual scale.
    scale: Option<f64>,
}

fn count(outcomes: &[Outcome], verdict: Verdict) -> usize {
    outcomes.iter().map(|o| o.count(verdict)).sum()
}

fn text(outcomes: &[Outcome]) -> String {
    let mut text: String = outcomes.iter().map(one).collect::<Vec<_>>().join("\n");
    let of = |v| count(outcomes, v);
    let _ = writeln!(
        text,
        "\n{} claims hold, {} are near, of {} only the direction, {} do not hold, {} cannot be judged here; \
         not counted: {} fitted, {} vacuous",
        of(Verdict::Holds),
        of(Verdict::Near),
        of(Verdict::Direction),
        of(Verdict::DoesNotHold),
        of(Verdict::CannotBeJudged),
        of(Verdict::Fitted),
        of(Verdict::Vacuous),
    );
    let least = outcomes
        .iter()
        .filter(|o| !o.claims.iter().all(|c| c.exact))
        .map(|o| o.seeds.len())
        .min();
    if let Some(n) = least.filter(|n| *n < SEEDS) {
        let _ = writeln!(
            text,
            "with {n} seed(s): verdicts are meant for {SEEDS} or more (--seeds {SEEDS})"
        );
    }
    for (verdict, head) in [
        (Verdict::DoesNotHold, "do not hold"),
        (Verdict::CannotBeJudged, "cannot be judged"),
    ] {
        let names: Vec<String> = outcomes
            .iter()
            .flat_map(|o| o.claims.iter().map(move |c| (o, c)))
            .filter(|(_, c)| c.verdict == verdict)
            .map(|(o, c)| format!("{} {}", o.id, c.key))
            .collect();
        if outcomes.len() > 1 && !names.is_empty() {
            let _ = writeln!(text, "{head}: {}", names.join(", "));
        }
    }
    text
}

fn one(o: &Outcome) -> String {
    let mut text = format!("{}  {} ({})\n", o.id, o.title, o.section);
    if let Some(scale) = o.scale {
        let _ = writeln!(
            text,
            "  scale      {scale} of the paper's sizes and counts, {}",
            match &o.seeds[..] {
                [first, .., last] => format!("seeds {first} to {last}"),
                _ => format!("seed {}", o.seed),
            }
        );
    }
    for i in &o.inputs {
        let _ = writeln!(text, "  input      {i}");
    }
    for s in &o.substitutes {
        let _ = writeln!(text, "  substitute {s}");
    }
    for t in &o.tables {
        let _ = writeln!(
            text,
            "\n{}{}",
            t.title,
            if has_paper(t) {
                "; the paper's figures in brackets"
            } else {
                ""
            }
        );
        text += &cells(t);
    }
    text += "\n";
    for c in &o.claims {
        text += &claim(c);
    }
    text
}

fn has_paper(t: &Table) -> bool {
    t.rows
        .iter()
        .flat_map(|r| &r.cells)
        .any(|c| c.paper.is_some())
}

fn claim(c: &Claim) -> String {
    let verdict = match c.verdict {
        Verdict::DoesNotHold => "DOES NOT HOLD",
        other => other.text(),
    };
    let star = if c.exact { "*" } else { " " };
    format!(
        "{star} {verdict:<16}  {} [{}]: {}\n",
        c.text, c.at, c.figures
    )
}

/// A figure with as many digits as readers compare.
fn figure(v: f64) -> String {
    match v.abs() {
        _ if v.fract().abs() < 1e-9 => format!("{v:.0}"),
        a if a >= 1000.0 => format!("{v:.0}"),
        a if a >= 10.0 => format!("{v:.1}"),
        a if a >= 1.0 => format!("{v:.2}"),
        _ => format!("{v:.4}"),
    }
}

fn printed(p: &Printed) -> String {
    if (p.high - p.low).abs() < 1e-12 {
        format!("({})", p.low)
    } else {
        format!("({}..{})", p.low, p.high)
    }
}

fn cells(t: &Table) -> String {
    let Some(first) = t.rows.first() else {
        return String::new();
    };
    let heads: Vec<String> = std::iter::once(String::new())
        .chain(
            first
                .cells
                .iter()
                .map(|c| format!("{} {}", c.name, c.unit).trim().to_owned()),
        )
        .collect();
    let rows: Vec<Vec<String>> = t
        .rows
        .iter()
        .map(|r| {
            let of = r.cells.iter().map(|c| {
                let mut ours = c.ours.map_or_else(|| "-".to_owned(), figure);
                if let Some([low, high]) = c.spread.filter(|[low, high]| low < high) {
                    let _ = write!(ours, " [{} to {}]", figure(low), figure(high));
                }
                c.paper
                    .as_ref()
                    .map_or(ours.clone(), |p| format!("{ours} {}", printed(p)))
            });
            std::iter::once(r.label.clone()).chain(of).collect()
        })
        .collect();
    let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
    table(&heads, &rows)
}
