//! `isotherm replay-events`: replays a recorded run and compares the decisions.

use isotherm_answers::EventsEnding;
use isotherm_events::{Decision, Reader};
use isotherm_lab::parity::{Difference, describe, replay};
use serde::Serialize;

use crate::Failure;
use crate::cmd::record_events::ending;
use crate::lab::args::ReplayEventsArgs;

/// Replays and compares.
///
/// # Errors
/// [`Failure::Bad`] if a decision differs, which is then printed; or the file cannot be replayed.
pub fn run(args: &ReplayEventsArgs) -> Result<(), Failure> {
    let failed =
        |e: &dyn std::fmt::Display| Failure::failed(format!("{}: {e}", args.file.display()));
    let reader = Reader::open(&args.file).map_err(|e| failed(&e))?;
    let origin = reader.origin().clone();
    let begun = std::time::Instant::now();
    let parity = replay(reader).map_err(|e| failed(&e))?;
    let wall = begun.elapsed().as_secs_f64();
    let difference = parity.difference.as_ref();
    let result = Replayed {
        file: args.file.to_string_lossy().into_owned(),
        program: &origin.program,
        volume: &origin.volume,
        policy: &origin.policy,
        events: parity.events,
        requests: parity.requests,
        decisions: parity.decisions,
        span_s: parity.span.as_secs_f64(),
        wall_s: wall,
        ending: parity.end.as_ref().map(|e| ending(e.ending)),
        equal: difference.is_none(),
        difference: difference.map(figures),
    };
    args.json.print(&result, || {
        let head = format!(
            "{}: {} events, {} requests, {} decisions of `{}` under {}, recorded by {}",
            args.file.display(),
            parity.events,
            parity.requests,
            parity.decisions,
            origin.volume,
            origin.policy,
            origin.program
        );
        match difference {
            None => format!("{head}: equal\n"),
            Some(d) => format!("{head}: equal up to there\n{}", words(d)),
        }
    })?;
    if difference.is_some() {
        return Err(Failure::Bad);
    }
    Ok(())
}

fn lines(decisions: &[Decision]) -> Vec<String> {
    decisions
        .iter()
        .map(|d| match d.meta {
            0 => format!("{:?}", d.effect),
            meta => format!("{:?} of metadata {meta:016x}", d.effect),
        })
        .collect()
}

/// `isotherm replay-events --json`.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Replayed<'a> {
    /// The recording.
    file: String,
    /// The program that recorded it.
    program: &'a str,
    /// The volume.
    volume: &'a str,
    /// Its policy with its parameters.
    policy: &'a str,
    /// Events that were replayed.
    events: u64,
    /// Those that are requests.
    requests: u64,
    /// Decisions that were compared.
    decisions: u64,
    /// Time that the recording took.
    #[cfg_attr(test, schemars(range(min = 0)))]
    span_s: f64,
    /// Time that the replay took.
    #[cfg_attr(test, schemars(range(min = 0)))]
    wall_s: f64,
    /// Why the recording ended; null if it was cut off.
    ending: Option<EventsEnding>,
    /// Whether all decisions were equal.
    equal: bool,
    /// The first one that was not.
    difference: Option<Differing>,
}

/// The first decision that differs.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Differing {
    /// The number of the event.
    event: u64,
    /// Its time.
    #[cfg_attr(test, schemars(range(min = 0)))]
    time_s: f64,
    /// The event; null: the end of the recording.
    call: Option<String>,
    /// What differs.
    what: String,
    /// The recorded decisions.
    recorded: Vec<String>,
    /// The replayed ones.
    replayed: Vec<String>,
}

fn figures(d: &Difference) -> Differing {
    Differing {
        event: d.event,
        time_s: d.now.as_secs_f64(),
        call: d.call.as_ref().map(describe),
        what: d.what.clone(),
        recorded: lines(&d.recorded),
        replayed: lines(&d.replayed),
    }
}

fn words(d: &Difference) -> String {
    let call = d.call.as_ref().map_or("the end".into(), describe);
    let mut text = vec![format!(
        "event {} at {:.6} s, {call}: {}",
        d.event,
        d.now.as_secs_f64(),
        d.what
    )];
    for (who, decisions) in [("recorded", &d.recorded), ("replayed", &d.replayed)] {
        if d.call.is_some() && decisions.is_empty() {
            text.push(format!("  {who}: nothing"));
        }
        text.extend(lines(decisions).iter().map(|l| format!("  {who}: {l}")));
    }
    text.join("\n") + "\n"
}
