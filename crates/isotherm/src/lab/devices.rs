//! `devices`: lists the models, and checks whether they meet the figures that manufacturers publish.

use isotherm_models::measure::{Comparison, validate};
use isotherm_models::{Sheet, Sleep};
use serde_json::{Value, json};

use crate::Failure;
use crate::json::{JsonArg, to_stdout};
use crate::lab::args::{DevicesArgs, DevicesCommand, ValidateArgs};
use crate::table::table;

/// A model is wrong if a figure deviates by more than this.
const TOLERANCE: f64 = 0.10;

/// `isotherm devices`.
///
/// # Errors
/// See [`Failure`]; [`Failure::Bad`] if a model misses a published figure.
pub fn run(args: &DevicesArgs) -> Result<(), Failure> {
    match &args.command {
        None => list(&args.json),
        Some(DevicesCommand::Show(s)) => show(&s.preset),
        Some(DevicesCommand::Validate(v)) => check(v),
        Some(DevicesCommand::Measure(m)) => super::measure::run(m),
    }
}

fn list(json: &JsonArg) -> Result<(), Failure> {
    let sheets = isotherm_models::presets().map_err(|e| Failure::failed(e.to_string()))?;
    let break_even = |s: &Sheet| Sleep::of_sheet(s).and_then(|s| s.break_even_s());
    let list: Vec<Value> = sheets
        .iter()
        .map(|s| {
            json!({
                "name": s.name, "kind": s.kind(), "capacity_bytes": s.capacity(), "what": s.description,
                "price_usd": s.price_usd, "break_even_s": break_even(s),
            })
        })
        .collect();
    json.print(&list, || {
        let rows: Vec<_> = sheets
            .iter()
            .map(|s| {
                vec![
                    s.name.clone(),
                    s.kind().to_owned(),
                    format!("{:.0}", s.capacity() as f64 / 1e9),
                    break_even(s).map_or_else(|| "-".to_owned(), |t| format!("{t:.1}")),
                    s.description.clone(),
                ]
            })
            .collect();
        table(
            &["device", "kind", "GB", "sleep pays after s", "what"],
            &rows,
        )
    })
}

/// Prints the text of a valid sheet, with its comments: they name the source of each number.
fn show(preset: &str) -> Result<(), Failure> {
    let wrong = |e: isotherm_models::SheetError| Failure::usage(e.to_string());
    isotherm_models::sheet(preset).map_err(wrong)?;
    to_stdout(&isotherm_models::sheet_text(preset).map_err(wrong)?)
}

fn check(args: &ValidateArgs) -> Result<(), Failure> {
    let sheets = if args.presets.is_empty() {
        isotherm_models::presets().map_err(|e| Failure::failed(e.to_string()))?
    } else {
        let named = args.presets.iter().map(|p| isotherm_models::sheet(p));
        named
            .collect::<Result<_, _>>()
            .map_err(|e| Failure::usage(e.to_string()))?
    };
    let mut figures = Vec::new();
    for sheet in &sheets {
        figures.extend(validate(sheet).map_err(|e| Failure::failed(e.to_string()))?);
    }
    let bad = figures.iter().filter(|c| !holds(c)).count();
    let outside = || figures.iter().filter(|c| !c.published.fitted);
    let (independent, missed) = (outside().count(), outside().filter(|c| !holds(c)).count());
    let list: Vec<Value> = figures.iter().map(as_json).collect();
    let answer = json!({
        "tolerance": TOLERANCE, "figures": list, "wrong": bad,
        "independent": independent, "independent_wrong": missed,
    });
    args.json.print(&answer, || {
        let rows: Vec<_> = figures.iter().map(as_row).collect();
        let verdict = format!(
            "{independent} figures from outside the sheets of {} devices count; {missed} of them more than {:.0} % off\n\
             {} fitted figures only show that the models do what the sheets say; {} of them more than {:.0} % off",
            sheets.len(),
            TOLERANCE * 100.0,
            figures.len() - independent,
            bad - missed,
            TOLERANCE * 100.0
        );
        format!("{}\n{verdict}\n", table(&COLUMNS, &rows))
    })?;
    // A model that misses the figures of its own sheet is faulty. One that misses independent figures is only as accurate as stated.
    if bad > missed {
        Err(Failure::Bad)
    } else {
        Ok(())
    }
}

/// Whether the model is close enough to the published figure.
fn holds(c: &Comparison) -> bool {
    c.error().abs() <= TOLERANCE
}

fn as_json(c: &Comparison) -> Value {
    json!({
        "device": c.device, "figure": c.published.what.name(), "depth": c.published.depth,
        "length": c.published.length,
        "published": c.published.value, "modelled": c.modelled, "error": c.error(),
        "holds": holds(c), "source": c.published.source, "fitted": c.published.fitted,
        "flash": c.flash.map(isotherm_models::FlashState::name),
    })
}

const COLUMNS: [&str; 9] = [
    "device",
    "figure",
    "depth",
    "published",
    "modelled",
    "error",
    "",
    "figure is",
    "source",
];

fn as_row(c: &Comparison) -> Vec<String> {
    vec![
        c.device.clone(),
        c.published.what.name().to_owned(),
        c.published.depth.to_string(),
        format!("{:.1}", c.published.value),
        format!("{:.1}", c.modelled),
        format!("{:+.1}%", c.error() * 100.0),
        if holds(c) { "" } else { "WRONG" }.to_owned(),
        if c.published.fitted {
            "fitted"
        } else {
            "outside"
        }
        .to_owned(),
        c.published.source.clone(),
    ]
}
