//! `devices`: lists the models, and checks whether they meet the figures that manufacturers publish.

use isotherm_models::measure::{Comparison, validate};
use isotherm_models::{Sheet, Sleep};
use serde::Serialize;

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

/// A device in `isotherm devices --json`.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Listed<'a> {
    /// Its name.
    name: &'a str,
    /// Its kind.
    #[cfg_attr(test, schemars(extend("enum" = ["hdd", "smr", "ssd", "remote"])))]
    kind: &'static str,
    /// Its capacity.
    capacity_bytes: u64,
    /// What it is.
    what: &'a str,
    /// Its price, if its sheet states one.
    price_usd: Option<f64>,
    /// The idle time from which sleep pays; null if its sheet does not state what waking up takes.
    #[cfg_attr(test, schemars(range(min = 0)))]
    break_even_s: Option<f64>,
}

fn list(json: &JsonArg) -> Result<(), Failure> {
    let sheets = isotherm_models::presets().map_err(|e| Failure::failed(e.to_string()))?;
    let break_even = |s: &Sheet| Sleep::of_sheet(s).and_then(|s| s.break_even_s());
    let list: Vec<Listed> = sheets
        .iter()
        .map(|s| Listed {
            name: &s.name,
            kind: s.kind(),
            capacity_bytes: s.capacity(),
            what: &s.description,
            price_usd: s.price_usd,
            break_even_s: break_even(s),
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
    let answer = Validation {
        tolerance: TOLERANCE,
        figures: figures.iter().map(compared).collect(),
        wrong: bad,
        independent,
        independent_wrong: missed,
    };
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

/// `isotherm devices validate --json`.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Validation<'a> {
    /// The largest error with which a figure holds.
    tolerance: f64,
    /// All figures.
    figures: Vec<Compared<'a>>,
    /// Those that do not hold.
    wrong: usize,
    /// Those that do not come from the sheets.
    independent: usize,
    /// Those of them that do not hold.
    independent_wrong: usize,
}

/// A published figure and that of the model.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Compared<'a> {
    /// The device.
    device: &'a str,
    /// What is measured.
    figure: &'static str,
    /// Requests at a time.
    #[cfg_attr(test, schemars(range(min = 1)))]
    depth: u32,
    /// Bytes of a request; null: as usual for the figure.
    #[cfg_attr(test, schemars(range(min = 512)))]
    length: Option<u32>,
    /// The published figure.
    published: f64,
    /// That of the model.
    modelled: f64,
    /// Its relative error.
    error: f64,
    /// Whether that is within the tolerance.
    holds: bool,
    /// Where it was published.
    source: &'a str,
    /// Whether the sheet was made to fit it.
    fitted: bool,
    /// The state of the flash, if the figure depends on it.
    flash: Option<&'static str>,
}

fn compared(c: &Comparison) -> Compared<'_> {
    Compared {
        device: &c.device,
        figure: c.published.what.name(),
        depth: c.published.depth,
        length: c.published.length,
        published: c.published.value,
        modelled: c.modelled,
        error: c.error(),
        holds: holds(c),
        source: &c.published.source,
        fitted: c.published.fitted,
        flash: c.flash.map(isotherm_models::FlashState::name),
    }
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
