//! `check --data` of a volume that is served: its server reads the data and says how far it is.

use std::path::Path;
use std::time::Duration;

use isotherm_answers::{CheckResult, CheckSays, Checked, Checking, WaitsFor};

use super::data::in_findings;
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
    let result = loop {
        match isotherm_answers::read(&answer).map_err(Failure::failed)? {
            CheckSays::Progress(p) => shown(&progress, &p),
            CheckSays::Result(result) => break result,
        }
        answer = client.next_answer()?;
    };
    progress.finish();
    let answer = whole(volume, result);
    args.of.json.print(&answer, || in_words(&answer))?;
    if answer.ok { Ok(()) } else { Err(Failure::Bad) }
}

fn shown(progress: &Progress, p: &Checking) {
    let what = match (&p.stalled, p.waits_for) {
        (Some(stalled), _) => format!(
            "data: member {} does not answer for {} s",
            stalled.member, stalled.seconds
        ),
        (None, Some(WaitsFor::Turn)) => "data: slowly, the devices are in use".to_owned(),
        (None, Some(what)) => format!("data: waits for a {}", isotherm_answers::word(what)),
        (None, None) => "data".to_owned(),
    };
    progress.file(&what, p.read_bytes, p.total_bytes);
}

/// The answer in the form that the check of a stopped volume has.
fn whole(volume: &Path, result: CheckResult) -> Checked {
    let mut findings = result.bad_places;
    let data = result.data;
    findings.extend(in_findings(&data.lost, &data.differing));
    Checked {
        volume: volume.to_string_lossy().into_owned(),
        ok: findings.is_empty() && result.ended.is_none(),
        findings,
        served: true,
        ended: result.ended,
        members_found: Some(result.members_found),
        mapped_extents: Some(result.mapped_extents),
        data: Some(data),
        copied_extents: Some(result.copied_extents),
        dirty_extents: Some(result.dirty_extents),
        ..Checked::default()
    }
}

fn in_words(answer: &Checked) -> String {
    let mut text: Vec<String> = (answer.findings.iter())
        .map(|f| format!("damaged: {f}"))
        .collect();
    for r in answer.data.iter().flat_map(|d| &d.not_compared) {
        text.push(format!(
            "not compared: bytes {} to {} of the volume, which were written or moved all the time",
            r.from, r.to
        ));
    }
    let verdict = match (&answer.ended, text.is_empty(), answer.ok) {
        (Some(why), ..) => format!("not complete: {why}"),
        (None, false, false) => "damaged".to_owned(),
        _ => "no damage found".to_owned(),
    };
    let count = |n: Option<u64>| n.map_or("-".to_owned(), |n| n.to_string());
    text.push(format!(
        "{}: {verdict}; {} members, {} extents mapped, {} bytes of data read while it was served",
        answer.volume,
        count(answer.members_found.map(|n| n as u64)),
        count(answer.mapped_extents.map(u64::from)),
        count(answer.data.as_ref().map(|d| d.read_bytes))
    ));
    text.join("\n") + "\n"
}
