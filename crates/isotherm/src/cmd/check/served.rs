//! `check --data` of a volume that is served: its server reads the data and says how far it is.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::data::{in_findings, ranges};
use crate::Failure;
use crate::args::CheckArgs;
use crate::control::Request;
use crate::control::client::Client;
use crate::progress::Progress;

/// A server sends a message at least twice a second. One that is silent for this time hangs.
const SILENT: Duration = Duration::from_secs(60);

/// Asks a server to read all data, and prints what it found.
///
/// # Errors
/// [`Failure::Bad`] if something is damaged or the check is incomplete, which is then printed; or the server refused or went away.
pub(super) fn run(args: &CheckArgs, client: Client) -> Result<(), Failure> {
    let volume = &args.of.volume;
    if args.repair {
        let v = volume.display();
        return Err(Failure::failed(format!(
            "{v}: is being served: --repair needs it stopped (`isotherm stop {v}`); `isotherm check {v} --data` works meanwhile"
        )));
    }
    if args.rate == Some(0) {
        return Err(Failure::usage(
            "--rate 0: nothing would be read: give bytes per second, such as 100M",
        ));
    }
    let mut client = client.with_limit(SILENT);
    let mut answer = client.ask(&Request::Check {
        rate: args.rate,
        wake: args.wake,
    })?;
    let progress = Progress::files();
    while answer["result"].is_null() {
        shown(&progress, &answer["progress"]);
        answer = client.next_answer()?;
    }
    progress.finish();
    let answer = whole(volume, &answer["result"]);
    args.of.json.print(&answer, || in_words(volume, &answer))?;
    if answer["ok"] == json!(true) {
        Ok(())
    } else {
        Err(Failure::Bad)
    }
}

fn shown(progress: &Progress, p: &Value) {
    let number = |key: &str| p[key].as_u64().unwrap_or(0);
    let stalled = &p["stalled"];
    let what = match (stalled["member"].as_u64(), p["waits_for"].as_str()) {
        (Some(m), _) => format!(
            "data: member {m} does not answer for {} s",
            stalled["seconds"]
        ),
        (None, Some("turn")) => "data: slowly, the devices are in use".to_owned(),
        (None, Some(what)) => format!("data: waits for a {what}"),
        (None, None) => "data".to_owned(),
    };
    progress.file(&what, number("read_bytes"), number("total_bytes"));
}

/// The answer in the form that the check of a stopped volume has.
fn whole(volume: &Path, result: &Value) -> Value {
    let strings = result["bad_places"].as_array().into_iter().flatten();
    let mut findings: Vec<String> = strings.filter_map(Value::as_str).map(Into::into).collect();
    let data = &result["data"];
    findings.extend(in_findings(
        &ranges(&data["lost"]),
        &ranges(&data["differing"]),
    ));
    let ok = findings.is_empty() && result["ended"].is_null();
    json!({
        "volume": volume.to_string_lossy(), "ok": ok, "findings": findings, "served": true,
        "ended": result["ended"], "was_clean": null, "members_found": result["members_found"],
        "mapped_extents": result["mapped_extents"], "mended": [], "data": data,
        "copied_extents": result["copied_extents"], "dirty_extents": result["dirty_extents"],
    })
}

fn in_words(volume: &Path, answer: &Value) -> String {
    let findings = answer["findings"].as_array().into_iter().flatten();
    let mut text: Vec<String> = (findings.filter_map(Value::as_str))
        .map(|f| format!("damaged: {f}"))
        .collect();
    for (from, to) in ranges(&answer["data"]["not_compared"]) {
        text.push(format!(
            "not compared: bytes {from} to {to} of the volume, which were written or moved all the time"
        ));
    }
    let verdict = match (
        answer["ended"].as_str(),
        text.is_empty(),
        answer["ok"].as_bool(),
    ) {
        (Some(why), ..) => format!("not complete: {why}"),
        (None, false, Some(false)) => "damaged".to_owned(),
        _ => "no damage found".to_owned(),
    };
    text.push(format!(
        "{}: {verdict}; {} members, {} extents mapped, {} bytes of data read while it was served",
        volume.display(),
        answer["members_found"],
        answer["mapped_extents"],
        answer["data"]["read_bytes"]
    ));
    text.join("\n") + "\n"
}
