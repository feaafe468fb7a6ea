//! What users learn who may not give commands: counts. Names, pins, programs and the like may be of files in directories that these users
//! cannot read.

use crate::catalogue::NodeId;
use crate::control::{self, Answer};
use crate::store::Store;
use rustix::io::Errno;
use serde_json::{Map, Value, json};

/// Texts that are shown to everybody. All others are cut, also those of questions that are added later.
const WORDS: [&str; 6] = ["state", "policy", "io", "call", "how", "drain"];
/// Lists and maps by path, of which everybody learns the lengths.
const LISTS: [&str; 7] = [
    "said", "findings", "moves", "pins", "policies", "rules", "below",
];
/// Values that say something about one path or program.
const PRIVATE: [&str; 5] = [
    "last_opened",
    "last_error",
    "pinned_to",
    "rule",
    "decided_by",
];

/// Answers a query of a user who may not give commands. The question changes nothing, and a check is made at most once a minute.
///
/// # Errors
/// There is no such query, or it is not for everybody; `EAGAIN`: ask again later.
pub(crate) fn answer(store: &Store, id: NodeId, what: &str) -> Result<Vec<u8>, Errno> {
    let answer = match what {
        "record" => return Err(Errno::PERM),
        "check" => Answer::Check(crate::check::recent(store)?),
        "migrate" => {
            let _turn = store.checks.turn()?;
            let wanted = store.wanted(true);
            store.placement.search_again();
            Answer::Migrate(control::moves(store, &wanted))
        }
        "pin" => Answer::Pin(None),
        "policy" => Answer::Policy(None),
        _ => control::value(store, id, what)?,
    };
    let mut value = isotherm_answers::json(&answer);
    let mut counts = Map::new();
    cut(&mut value, &mut counts);
    if let (Value::Object(map), false) = (&mut value, counts.is_empty()) {
        map.insert("counts".into(), Value::Object(counts));
    }
    serde_json::to_vec(&value).map_err(|_| Errno::IO)
}

fn cut(value: &mut Value, counts: &mut Map<String, Value>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let key = key.as_str();
                if PRIVATE.contains(&key) {
                    *value = Value::Null;
                } else if let (true, Some(len)) = (LISTS.contains(&key), length(value)) {
                    *value = if value.is_array() {
                        json!([])
                    } else {
                        json!({})
                    };
                    counts.insert(key.into(), json!(len));
                } else if !(WORDS.contains(&key) && value.is_string()) {
                    cut(value, counts);
                }
            }
        }
        Value::Array(all) => all.iter_mut().for_each(|v| cut(v, counts)),
        Value::String(text) => text.clear(),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The length of a list or map; of a map of numbers (`moves` of `stats`) there is nothing to cut.
fn length(value: &Value) -> Option<usize> {
    match value {
        Value::Array(all) => Some(all.len()),
        Value::Object(all) if all.keys().any(|k| k == "done") => None,
        Value::Object(all) => Some(all.len()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever a question answers, no text of a file, pin, rule, message or program is in what everybody learns.
    #[test]
    fn everybody_learns_only_counts() {
        let dir = tempfile::tempdir().unwrap();
        let (store, node, live) = crate::store::with_a_file(dir.path());
        store
            .rename((0, b"f"), (0, b"secret"), crate::names::IfPresent::Refuse)
            .unwrap();
        control::command(&store, node, "pin", b"slow").unwrap();
        control::command(&store, 0, "policy", b"lru:10").unwrap();
        store.say("secret: said");
        store.device_error(1, b"secret", Errno::IO);
        assert_eq!(store.move_file(node, 1), crate::mover::Outcome::Done);
        store.names.used_by(&store.tiers, node, std::process::id());
        std::fs::write(dir.path().join("fast/secret2"), "").unwrap();
        let whole = |what| String::from_utf8(control::answer(&store, node, what).unwrap()).unwrap();
        let program = std::fs::read_to_string("/proc/self/comm").unwrap();
        let words = ["secret", &dir.path().display().to_string(), program.trim()];
        for what in [
            "status", "stats", "where", "why", "migrate", "check", "pin", "policy", "disks",
        ] {
            let text = String::from_utf8(answer(&store, node, what).unwrap()).unwrap();
            for word in words {
                assert!(!text.contains(word), "{what}: {word}: {text}");
            }
        }
        assert!(words.iter().all(|w| whole("status").contains(w)));
        let value = |what| -> Value {
            serde_json::from_slice(&answer(&store, node, what).unwrap()).unwrap()
        };
        assert_eq!(value("check")["counts"]["findings"], 1);
        let status = value("status");
        assert_eq!(
            (&status["pins"], &status["counts"]["pins"]),
            (&json!({}), &json!(1))
        );
        assert_eq!(status["tiers"][1]["files"], 1);
        assert_eq!(value("stats")["moves"]["done"], 1);
        assert_eq!(answer(&store, node, "record"), Err(Errno::PERM));
        // A new check would find nothing more or less; the old one is shared.
        std::fs::write(dir.path().join("fast/secret3"), "").unwrap();
        assert_eq!(value("check")["counts"]["findings"], 1);
        store.release(&live);
    }
}
