//! Commands that ask a served volume: `stop`, `status`, `set`.

use std::path::Path;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use isotherm_answers::{Brief, IsStopped, Param, Set, Status, Stopped};
use isotherm_control::PROGRAM;
use isotherm_control::data_check::DataChecks;
use isotherm_control::figures;
use isotherm_control::settings::members as members_of;
use isotherm_core::store::superblock::State;
use isotherm_live::members::{
    self,
    probe::{Second, probe},
};
use isotherm_live::volume::description;
use isotherm_live::{OpenMode, Volume, VolumeConfig};
use serde_json::Value;

use crate::Failure;
use crate::answers;
use crate::args::{SetArgs, StatusArgs, StopArgs};
use crate::control::Request;
use crate::control::client::{Client, PATIENCE, connect, served};
use crate::member::Setting;
use crate::patience::each_time;

/// Time limit for the exit of a serving process that has already written everything.
const EXIT: Duration = Duration::from_secs(10);

/// `isotherm stop`: returns after the checkpoint.
///
/// # Errors
/// Not served, in use, the last writes failed, or it did not end within the given time.
pub fn stop(args: &StopArgs) -> Result<(), Failure> {
    let (kill, limit) = (args.within.is_some(), args.within.unwrap_or(args.wait));
    let (limit, args) = (Duration::from_secs(limit), &args.of);
    let begun = Instant::now();
    let mut client = served(&args.volume)?.with_limit(limit);
    let reporting = report_waiting(&args.volume);
    let answered = client.ask_for::<Stopped>(&Request::Stop);
    drop(reporting);
    let answer = match answered {
        Ok(answer) => answer,
        // Another command, or a signal, has stopped it at the same time.
        Err(e) => match connect(&args.volume) {
            Ok(None) if was_closed(&args.volume) => Stopped {
                volume: args.volume.to_string_lossy().into_owned(),
                state: IsStopped::Stopped,
            },
            Ok(Some(_)) if begun.elapsed() >= limit => {
                return Err(if kill {
                    end_at_once(&args.volume, client, begun.elapsed())
                } else {
                    goes_on(&args.volume, begun.elapsed())
                });
            }
            _ => return Err(e),
        },
    };
    client.wait_for_end(EXIT);
    args.json
        .print(&answer, || format!("{}: stopped\n", args.volume.display()))
}

/// The volume did not end in time, and is left to itself.
fn goes_on(volume: &Path, waited: Duration) -> Failure {
    let v = volume.display();
    let why = waits_for(volume).map_or_else(String::new, |why| format!(" ({why})"));
    Failure::failed(format!(
        "{v}: did not end within {} s{why}; it goes on ending, and `isotherm status {v}` shows whether it has; `isotherm stop {v} --within SECONDS` kills its server after that time: what was flushed is safe",
        waited.as_secs()
    ))
}

/// Kills the server of a volume that did not end in time.
fn end_at_once(volume: &Path, client: Client, waited: Duration) -> Failure {
    let v = volume.display();
    let why = waits_for(volume).map_or_else(String::new, |why| format!(" ({why})"));
    let s = waited.as_secs();
    match client.kill_server() {
        Ok(process) => {
            client.wait_for_end(EXIT);
            Failure::failed(format!(
                "{v}: did not end within {s} s{why}: process {process} was killed: what was flushed is safe, and the next `isotherm serve {v}` recovers"
            ))
        }
        Err(e) => Failure::failed(format!(
            "{v}: did not end within {s} s{why}, and its process cannot be killed: {e}"
        )),
    }
}

/// What a volume that is being stopped waits for; `None` if it has ended.
fn waits_for(volume: &Path) -> Option<String> {
    // A volume that is closing answers this with the reason. One that does not answer at all waits for its front ends.
    let asked = match connect(volume) {
        Ok(Some(client)) => client.with_limit(PATIENCE).status(),
        _ => return None,
    };
    Some(match asked {
        Ok(status) => format!(
            "not yet closing: {}",
            status.served.map_or(String::new(), |v| v.health.sentence)
        ),
        Err(e) => e.to_string(),
    })
}

/// If a stop takes long, says on standard error what it waits for, until the result is dropped.
fn report_waiting(volume: &Path) -> Option<Sender<()>> {
    let volume = volume.to_owned();
    each_time(move || {
        if let Some(words) = waits_for(&volume) {
            crate::log::note(format_args!("isotherm: {}: {words}", volume.display()));
        }
    })
}

/// Whether all members of a volume that is not served were closed cleanly.
fn was_closed(volume: &Path) -> bool {
    let file = description(volume);
    let Ok(mut config) = VolumeConfig::load(&file) else {
        return false;
    };
    members::find(&mut config, &file).is_ok()
        && config.members.iter().all(|m| {
            let read = probe(&m.path, Second::At(&[]));
            read.is_ok_and(|sb| sb.is_ok_and(|sb| sb.state == State::Clean))
        })
}

/// Which program serves. Programs before this key was added do not send it.
#[derive(serde::Deserialize)]
struct Server {
    program: Option<String>,
}

/// `isotherm status`, of a served volume or of one that is not served.
///
/// # Errors
/// No such volume, or it cannot be opened.
pub fn status(args: &StatusArgs) -> Result<(), Failure> {
    let volume = &args.of.volume;
    let answer = match connect(volume)? {
        Some(client) => {
            let answer = client.with_limit(PATIENCE).ask(&Request::Status)?;
            let server: Server = isotherm_answers::read(&answer).map_err(Failure::failed)?;
            if server.program.as_deref() != Some(PROGRAM) {
                let theirs = server.program.as_deref().unwrap_or("an older one");
                crate::log::note(format_args!(
                    "isotherm: served by a program of another version ({theirs}; this is {PROGRAM}): stop the volume and serve it again to change over"
                ));
            }
            answer
        }
        None => isotherm_answers::json(&offline(volume)?),
    };
    args.of.json.print(&answer, || shown(&answer, args.all))
}

/// The page, or all keys. A server of another version may not have those that the page needs: then there is what it has.
fn shown(answer: &Value, all: bool) -> String {
    match isotherm_answers::read_status(answer) {
        Ok(status) if !all => answers::status(&status),
        _ => lines(answer, ""),
    }
}

pub(super) fn offline(volume: &Path) -> Result<Status, Failure> {
    if !description(volume).exists() {
        // This error has the same text in all commands.
        served(volume)?;
    }
    let opened =
        Volume::open(volume, OpenMode::ReadOnly).map_err(|e| Failure::failed(e.to_string()))?;
    let (config, r) = (opened.config(), opened.report());
    let is_removed = |m: u8| (config.members.get(usize::from(m))).is_some_and(|m| m.removed);
    let mut missing: Vec<u8> = r.missing.iter().map(|m| m.0).collect();
    missing.retain(|m| !is_removed(*m));
    Ok(Status {
        volume: volume.to_string_lossy().into_owned(),
        name: config.name.clone(),
        uuid: config.uuid.clone(),
        state: isotherm_answers::State::Stopped,
        volume_bytes: opened.volume_bytes(),
        extent_bytes: config.extent.0,
        policy: config.policy.clone(),
        paced: config.members.iter().any(|m| m.paced.is_some()),
        members: members_of(config, &opened.member_bytes()),
        failure: None,
        mapped_extents: r.mapped,
        degraded: !missing.is_empty(),
        missing_members: missing,
        lost: figures::listed(&opened.listed()),
        data_check: DataChecks::load(volume, config.uuid.as_deref()).figures(),
        store: isotherm_control::store::of(volume),
        was_clean: Some(r.was_clean),
        served: None,
    })
}

/// `isotherm set`.
///
/// # Errors
/// The volume is not served, or a parameter is unknown or out of range; then none is set.
pub fn set(args: &SetArgs) -> Result<(), Failure> {
    let mut client = served(&args.volume)?;
    let before = client.brief()?;
    let answer: Set = match args.values.as_slice() {
        [Setting::Policy(spec)] => {
            let policy = spec.to_string();
            let answer = client.ask_for(&Request::Policy {
                policy: policy.clone(),
            })?;
            if let Some(gone) = before.policy.as_ref().and_then(|b| gone(b, &policy)) {
                crate::log::note(format_args!(
                    "isotherm: the settings of the previous policy hold no more: {gone}"
                ));
            }
            answer
        }
        all => {
            let (mut values, mut words) = (Vec::new(), Vec::new());
            for s in all {
                match s {
                    Setting::Knob(k, v) => values.push((k.clone(), *v)),
                    Setting::Word(k, v) => words.push((k.clone(), v.clone())),
                    Setting::Policy(p) => {
                        return Err(Failure::usage(format!(
                            "policy={p}: set the policy by itself, its parameters behind its name: policy={},KEY=VALUE",
                            p.name
                        )));
                    }
                }
            }
            client.ask_for(&Request::Set { values, words })?
        }
    };
    let named: Vec<&str> = (args.values.iter())
        .filter_map(|s| match s {
            Setting::Knob(k, _) | Setting::Word(k, _) => Some(k.as_str()),
            Setting::Policy(_) => None,
        })
        .collect();
    args.json
        .print(&answer, || changes(&before, &answer, &named))
}

/// What a change has changed, one line each. Parameters that were named are told although they had that value before.
fn changes(before: &Brief, answer: &Set, named: &[&str]) -> String {
    // A policy is told whole, with the parameters that it does not have by default.
    if named.is_empty() {
        let now = answer.policy.as_deref().unwrap_or_default();
        return change("policy", before.policy.clone(), now);
    }
    let old = |k: &String| before.params.as_ref().and_then(|p| p.get(k));
    let changed =
        (answer.params.iter()).filter(|(k, v)| named.contains(&k.as_str()) || old(k) != Some(*v));
    changed
        .map(|(k, v)| change(k, old(k).map(Param::to_string), &v.to_string()))
        .collect()
}

/// A line about a value, and the value before.
fn change(name: &str, old: Option<String>, new: &str) -> String {
    let old = match old {
        None => String::new(),
        Some(old) if old == new => " (as before)".to_owned(),
        Some(old) => format!(" (was {old})"),
    };
    format!("{name}  {new}{old}\n")
}

/// The settings in the description of a policy that its successor's description lacks.
fn gone(before: &str, now: &str) -> Option<String> {
    let kept: Vec<&str> = now.split(',').skip(1).collect();
    let gone = before.split(',').skip(1).filter(|p| !kept.contains(p));
    let gone: Vec<&str> = gone.collect();
    (!gone.is_empty()).then(|| gone.join(", "))
}

/// A JSON object as lines of `name value`, with nested names joined by dots.
pub fn lines(value: &Value, prefix: &str) -> String {
    let name = |k: &str| {
        if prefix.is_empty() {
            k.to_owned()
        } else {
            format!("{prefix}.{k}")
        }
    };
    match value {
        Value::Object(map) => map.iter().map(|(k, v)| lines(v, &name(k))).collect(),
        Value::Array(list) if list.iter().any(Value::is_object) => list
            .iter()
            .enumerate()
            .map(|(i, v)| lines(v, &name(&i.to_string())))
            .collect(),
        Value::Null => format!("{prefix}  -\n"),
        Value::String(s) => format!("{prefix}  {s}\n"),
        other => format!("{prefix}  {other}\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn settings_that_a_new_policy_lacks_are_named() {
        let before = "benefit,move_price=2,class=1-7+pin,write-mode=read-only";
        let all = "move_price=2, class=1-7+pin, write-mode=read-only";
        assert_eq!(gone(before, "lru").as_deref(), Some(all));
        let now = "benefit,class=1-7+pin,move_price=2,w_read=1";
        assert_eq!(gone(before, now).as_deref(), Some("write-mode=read-only"));
        assert_eq!(gone("lru", "lru,write-mode=read-only"), None);
    }

    #[test]
    fn a_change_is_told_and_nothing_else() {
        let params = json!({"a": 1, "b": 2, "mode": "x", "c": 3});
        let before = Brief {
            policy: Some("lru".to_owned()),
            params: Some(isotherm_answers::read(&params).expect("values")),
            ..Brief::default()
        };
        let read = |answer| isotherm_answers::read::<Set>(&answer).expect("an answer");
        let answer = read(json!({"params": {"a": 5, "b": 2, "mode": "x", "c": 3}}));
        let text = "a  5.0 (was 1.0)\nb  2.0 (as before)\n";
        assert_eq!(changes(&before, &answer, &["a", "b"]), text);
        let answer = read(
            json!({"policy": "lru,mode=y", "params": {"a": 1, "b": 2, "mode": "y", "new": 7.5, "c": 3}}),
        );
        let text = "mode  y (was x)\nnew  7.5\n";
        assert_eq!(changes(&before, &answer, &["mode"]), text);
        let answer = read(json!({"policy": "arc,k=1", "params": {"k": 1}}));
        assert_eq!(
            changes(&before, &answer, &[]),
            "policy  arc,k=1 (was lru)\n"
        );
    }

    #[test]
    fn objects_are_flattened() {
        let v = json!({"a": 1, "b": {"c": "x", "d": null}, "e": [{"f": 2}], "g": [1, 2]});
        assert_eq!(lines(&v, ""), "a  1\nb.c  x\nb.d  -\ne.0.f  2\ng  [1,2]\n");
    }

    #[test]
    fn a_server_of_another_version_may_send_less() {
        let text = include_str!("../../../answers/samples/status.json");
        let mut answer: Value = serde_json::from_str(text).expect("JSON");
        assert!(shown(&answer, false).starts_with("v: Serving well"));
        assert!(shown(&answer, true).starts_with("volume"));
        answer.as_object_mut().expect("keys").remove("recovery");
        let text = shown(&answer, false);
        assert!(
            text.starts_with("volume") && !text.contains("Not served"),
            "{text}"
        );
    }
}
