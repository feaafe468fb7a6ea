//! Commands that ask a served volume: `stop`, `status`, `set`.

use std::path::Path;

use isotherm_control::PROGRAM;
use isotherm_control::settings::describe;
use isotherm_live::volume::description;
use isotherm_live::{OpenMode, Volume};
use serde_json::{Value, json};

use crate::Failure;
use crate::answers;
use crate::args::{SetArgs, StatusArgs, VolumeArgs};
use crate::control::Request;
use crate::control::client::{connect, served};
use crate::member::Setting;

/// Time limit for the exit of a serving process that has already written everything.
const EXIT: std::time::Duration = std::time::Duration::from_secs(10);

/// `isotherm stop`: returns after the checkpoint.
///
/// # Errors
/// Not served, in use, or the last writes failed.
pub fn stop(args: &VolumeArgs) -> Result<(), Failure> {
    let mut client = served(&args.volume)?;
    let answer = client.ask(&Request::Stop)?;
    client.wait_for_end(EXIT);
    args.json
        .print(&answer, || format!("{}: stopped\n", args.volume.display()))
}

/// `isotherm status`, of a served volume or of one that is not served.
///
/// # Errors
/// No such volume, or it cannot be opened.
pub fn status(args: &StatusArgs) -> Result<(), Failure> {
    let volume = &args.of.volume;
    let answer = match connect(volume)? {
        Some(mut client) => {
            let answer = client.ask(&Request::Status)?;
            // Programs before this key was added do not send their version.
            if answer["program"] != json!(PROGRAM) {
                let theirs = answer["program"].as_str().unwrap_or("an older one");
                eprintln!(
                    "isotherm: served by a program of another version ({theirs}; this is {PROGRAM}): stop the volume and serve it again to change over"
                );
            }
            answer
        }
        None => offline(volume)?,
    };
    args.of.json.print(&answer, || {
        if args.all {
            lines(&answer, "")
        } else {
            answers::status(&answer)
        }
    })
}

fn offline(volume: &Path) -> Result<Value, Failure> {
    if !description(volume).exists() {
        // This error has the same text in all commands.
        served(volume)?;
    }
    let opened =
        Volume::open(volume, OpenMode::ReadOnly).map_err(|e| Failure::failed(e.to_string()))?;
    let mut status = describe(volume, opened.config());
    let r = opened.report();
    status["state"] = json!("stopped");
    status["failure"] = Value::Null;
    status["volume_bytes"] = json!(opened.volume_bytes());
    status["mapped_extents"] = json!(r.mapped);
    status["was_clean"] = json!(r.was_clean);
    status["degraded"] = json!(!r.missing.is_empty());
    status["missing_members"] = json!(r.missing.iter().map(|m| m.0).collect::<Vec<_>>());
    Ok(status)
}

/// `isotherm set`.
///
/// # Errors
/// The volume is not served, or a parameter is unknown or out of range; then none is set.
pub fn set(args: &SetArgs) -> Result<(), Failure> {
    let mut client = served(&args.volume)?;
    let answer = match args.values.as_slice() {
        [Setting::Policy(spec)] => client.ask(&Request::Policy {
            policy: spec.to_string(),
        })?,
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
            client.ask(&Request::Set { values, words })?
        }
    };
    args.json.print(&answer, || lines(&answer["params"], ""))
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

    #[test]
    fn objects_are_flattened() {
        let v = json!({"a": 1, "b": {"c": "x", "d": null}, "e": [{"f": 2}], "g": [1, 2]});
        assert_eq!(lines(&v, ""), "a  1\nb.c  x\nb.d  -\ne.0.f  2\ng  [1,2]\n");
    }
}
