//! `isotherm replay-events`: replays a recorded run and compares the decisions.

use isotherm_events::{Decision, Reader};
use isotherm_lab::parity::{Difference, describe, replay};
use serde_json::{Value, json};

use crate::Failure;
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
    let result = json!({
        "file": args.file.to_string_lossy(), "program": origin.program, "volume": origin.volume, "policy": origin.policy,
        "events": parity.events, "requests": parity.requests, "decisions": parity.decisions,
        "span_s": parity.span.as_secs_f64(), "wall_s": wall,
        "ending": parity.end.as_ref().map(|e| e.ending.name()),
        "equal": difference.is_none(), "difference": difference.map(figures),
    });
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

fn figures(d: &Difference) -> Value {
    json!({
        "event": d.event, "time_s": d.now.as_secs_f64(), "call": d.call.as_ref().map(describe),
        "what": d.what, "recorded": lines(&d.recorded), "replayed": lines(&d.replayed),
    })
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
