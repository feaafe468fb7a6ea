//! Queries and commands for a mounted file system: extended attributes `user.isotherm.*` of its files, which are stored nowhere.
//!
//! | attribute | on | reading gives | writing |
//! |---|---|---|---|
//! | `status`, `stats` | any node | figures, JSON | - |
//! | `where`, `why` | a file or directory | its place; the reason for it | - |
//! | `pin` | a file or directory | its pin | a tier; empty: removes the pin |
//! | `policy` | a directory | its policy | `PRESET:SHARE`; empty: removes it |
//! | `unpin`, `unpolicy` | a directory | - | the rest of a path, whose pin or policy is removed; it need not exist |
//! | `migrate` | any node | the moves that are wanted | `now`: plan and move now |
//! | `record` | any node | the next operations of a recording, binary; only for those who may give commands | `start`; `stop` |
//! | `check` | any node | names and attributes compared with the tiers | `repair` |
//!
//! Only root and the owner of the mount may give commands. Queries of others are answered with counts (`counts.rs`).

use crate::catalogue::NodeId;
use crate::path_key::PathKey;
use crate::placement::Wanted;
use crate::policy_state::DIRS_MAX;
pub use crate::recording::ANSWER_MAX;
use crate::rules::WhichTier;
use crate::store::Store;
use crate::sync::lock;
use crate::tree::{Tier, disks_in, join, wall};
use rustix::io::Errno;
use serde_json::{Value, json};
use std::sync::atomic::Ordering;

/// Maximum number of moves or findings that are listed; further ones are only counted.
const LIST_MAX: usize = 200;

/// The name of the query, if the attribute is one of these.
pub fn query_name(name: &[u8]) -> Option<&str> {
    name.strip_prefix(b"user.isotherm.")
        .and_then(|n| std::str::from_utf8(n).ok())
}

/// Answers a query about a node.
///
/// # Errors
/// There is no such query.
pub fn answer(store: &Store, id: NodeId, what: &str) -> Result<Vec<u8>, Errno> {
    if what == "record" {
        return store.recording.take();
    }
    short_enough(value(store, id, what)?)
}

/// The answer to a query, which may be too long.
///
/// # Errors
/// There is no such query.
pub(crate) fn value(store: &Store, id: NodeId, what: &str) -> Result<Value, Errno> {
    Ok(match what {
        "status" => status(store),
        "stats" => stats(store),
        "where" => place(store, id)?,
        "why" => why(store, id)?,
        "migrate" => moves(store, &store.would_move()),
        "check" => crate::check::check(store, false),
        "pin" => json!(place(store, id)?["pinned_to"]),
        "policy" => json!(place(store, id)?["policy"]),
        _ => return Err(Errno::NODATA),
    })
}

/// The text of an answer. Lists that would make it longer than an attribute can be are cut, and `left_out` says so.
pub(crate) fn short_enough(mut value: Value) -> Result<Vec<u8>, Errno> {
    let (mut most, mut left_out) = (LIST_MAX, 0);
    loop {
        let text = serde_json::to_vec(&value).map_err(|_| Errno::IO)?;
        if text.len() <= ANSWER_MAX {
            return Ok(text);
        }
        let map = value.as_object_mut().filter(|_| most > 0);
        let Some(map) = map else {
            return Ok(br#"{"error":"the answer is too long"}"#.to_vec());
        };
        for key in ["said", "findings", "moves", "pins"] {
            let before = match map.get_mut(key) {
                Some(Value::Array(list)) => {
                    let n = list.len();
                    list.truncate(most);
                    n
                }
                Some(Value::Object(all)) => {
                    let n = all.len();
                    *all = std::mem::take(all).into_iter().take(most).collect();
                    n
                }
                _ => continue,
            };
            left_out += before.saturating_sub(most);
        }
        map.insert("left_out".into(), json!(left_out));
        most /= 2;
    }
}

/// Carries out a command.
///
/// # Errors
/// There is no such command, or it failed; the reason in words is in `status` under `said`.
pub fn command(store: &Store, id: NodeId, what: &str, value: &[u8]) -> Result<(), Errno> {
    if let "unpin" | "unpolicy" = what {
        return forget(store, id, what, value);
    }
    let value = std::str::from_utf8(value).map_err(|_| Errno::INVAL)?.trim();
    let path = || store.cat().path(id).map(PathKey).ok_or(Errno::NOENT);
    match (what, value) {
        ("pin", "") => {
            let path = path()?;
            change(store, |r| {
                r.pins.remove(&path);
            })
        }
        ("pin", tier) => {
            let tiers = store.layout.tiers();
            let Some(to) = WhichTier::parse(tier).and_then(|t| t.of(tiers)) else {
                let tiers = tiers - 1;
                return refused(
                    store,
                    &format!("{tier} is no tier: fast, slow or 0 to {tiers}"),
                );
            };
            let path = path()?;
            change(store, |r| {
                r.pins.insert(path, to);
            })
        }
        ("policy", "") => {
            let path = path()?;
            change(store, |r| {
                r.policies.remove(&path);
            })
        }
        ("policy", text) => policy(store, id, path()?, text),
        ("record", "start") => store.recording.begin(),
        ("record", "stop") => {
            store.recording.end();
            Ok(())
        }
        ("migrate", "now") => {
            store.placement.request_moves();
            Ok(())
        }
        ("check", "repair") => {
            crate::check::check(store, true);
            Ok(())
        }
        _ => Err(Errno::INVAL),
    }
}

fn change(
    store: &Store,
    f: impl FnOnce(&mut crate::policy_state::PlacementSettings),
) -> Result<(), Errno> {
    store.change_settings(f).or_else(|e| refused(store, &e.0))
}

/// Refuses a command; who gave it finds the reason in `status`.
fn refused(store: &Store, why: &str) -> Result<(), Errno> {
    store.say(why);
    Err(Errno::INVAL)
}

/// Removes the pin or the policy of a path below a directory that need not exist any more: pins and policies belong to paths.
fn forget(store: &Store, dir: NodeId, what: &str, below: &[u8]) -> Result<(), Errno> {
    let above = store.cat().path(dir).ok_or(Errno::NOENT)?;
    let path = PathKey(join(&above, below));
    let mut found = false;
    change(store, |r| {
        found = if what == "unpin" {
            r.pins.remove(&path).is_some()
        } else {
            r.policies.remove(&path).is_some()
        };
    })?;
    if found { Ok(()) } else { Err(Errno::NODATA) }
}

fn policy(store: &Store, id: NodeId, path: PathKey, text: &str) -> Result<(), Errno> {
    if store.cat().get(id).is_none_or(|n| n.dir().is_none()) {
        return Err(Errno::NOTDIR);
    }
    let (preset, share) = text.rsplit_once(':').unwrap_or((text, "20"));
    let Some(share) = share.parse().ok().filter(|s: &u8| *s <= 100) else {
        return refused(store, "the share is a whole number of per cent, 0 to 100");
    };
    // Its own message is clearer than that of all policies together.
    if let Err(e) = crate::policy_state::policy(preset) {
        return refused(store, &e.0);
    }
    let mut too_many = false;
    let preset = preset.to_owned();
    change(store, |r| {
        let others = r.policies.iter().filter(|p| *p.0 != path);
        let taken: u32 = others.clone().map(|p| u32::from(p.1.1)).sum();
        if taken + u32::from(share) > 100 || others.count() >= DIRS_MAX {
            too_many = true;
        } else {
            r.policies.insert(path, (preset, share));
        }
    })?;
    if too_many {
        let why = "policies of directories: their shares are over 100 per cent, or there are more than 15";
        return refused(store, why);
    }
    Ok(())
}

/// The figures of one disk; `number` is called `called`.
fn disk(store: &Store, d: Tier, (called, number): (&str, Tier), marked: bool) -> Value {
    let (free, all) = store.room(d);
    let files = store.cat().files_on(d);
    let mut disk = json!({
        called: number, "path": store.tier_name(d), "files": files,
        "bytes": store.bytes_on[usize::from(d)].load(Ordering::Relaxed), "free_bytes": free, "room_bytes": all,
        "above_mark": marked && store.is_full(d),
    });
    if let (Some(disk), Value::Object(health)) = (
        disk.as_object_mut(),
        store.health_of(d, |node| store.cat().shown_path(node)),
    ) {
        disk.extend(health);
        if store.open.io.get() == Some(&crate::settings::Io::Passthrough) {
            let figures = store.kernel_writes(d).figures();
            disk.insert("kernel_writes".into(), figures);
        }
    }
    disk
}

/// A tier of several disks: sums, the newest events, and `true` for what is so of any disk.
fn several(store: &Store, t: Tier) -> Value {
    let all = store.layout.disks_of(t);
    let disks = all.clone().map(|d| disk(store, d, ("disk", d), true));
    let disks: Vec<Value> = disks.collect();
    let mut tier = disk(store, all.start, ("tier", t), false);
    for key in ["files", "bytes", "errors"] {
        tier[key] = json!(disks.iter().filter_map(|d| d[key].as_u64()).sum::<u64>());
    }
    let (free, room) = store.room_of_tier(t);
    (tier["free_bytes"], tier["room_bytes"]) = (json!(free), json!(room));
    for key in ["missing", "failing", "read_only"] {
        tier[key] = json!(disks.iter().any(|d| d[key] == true));
    }
    for key in ["last_error", "last_opened", "waiting"] {
        let known = disks.iter().map(|d| &d[key]).filter(|v| v.is_object());
        // Of the disks with calls that wait, the first one stands for all.
        let newest = known.min_by_key(|v| v["ago_s"].as_u64());
        tier[key] = newest.cloned().unwrap_or_default();
    }
    if let Some(tier) = tier.as_object_mut() {
        tier.remove("kernel_writes");
    }
    tier["disks"] = json!(disks);
    tier
}

fn tiers(store: &Store) -> Value {
    let slowest = store.layout.slowest();
    let tier = |t: Tier| {
        if t == slowest && store.layout.has_several() {
            several(store, t)
        } else {
            disk(store, t, ("tier", t), t < slowest)
        }
    };
    (0..=slowest).map(tier).collect()
}

fn copies(store: &Store) -> Value {
    let c = &store.copies;
    json!({
        "on": c.on, "files": c.count(), "bytes": c.bytes.load(Ordering::Relaxed), "made": c.made.load(Ordering::Relaxed),
        "dropped": c.dropped.load(Ordering::Relaxed), "reads": c.reads.load(Ordering::Relaxed), "heads": c.heads.figures(),
    })
}

fn state(store: &Store) -> &'static str {
    if store.is_stuck() {
        "stuck"
    } else if (0..store.roots.len()).any(|t| !store.is_healthy(t as Tier)) {
        "degraded"
    } else {
        "serving"
    }
}

fn status(store: &Store) -> Value {
    let moving =
        store.placement.moving.now().map(
            |(path, copied, bytes)| json!({"path": path, "copied_bytes": copied, "bytes": bytes}),
        );
    let said = lock(&store.said);
    let said: Vec<&String> = said.iter().rev().take(20).collect();
    let (policy, settings) = {
        let policy = lock(&store.placement.policy);
        (policy.preset(), policy.settings.clone())
    };
    json!({
        "state": state(store),
        "policy": policy, "moves": store.placement.moves,
        "migrating": store.placement.moves_requested(),
        "marks_percent": [store.marks().0, store.marks().1],
        "tiers": tiers(store), "moving": moving, "copies": copies(store), "io": store.open.io.get().map_or("none", |io| io.name()), "in_use": store.open.count(),
        "pins": settings.pins, "policies": settings.policies,
        "rules": store.placement.rules.iter().map(|r| &r.text).collect::<Vec<_>>(),
        "recovered": {"finished": store.recovered.finished, "dropped": store.recovered.dropped, "temps": store.recovered.temps},
        "said": said,
    })
}

fn stats(store: &Store) -> Value {
    let p = &store.placement;
    let policy_bytes = lock(&p.policy).bytes();
    let done = |i: usize| p.done[i].load(Ordering::Relaxed);
    json!({
        "files": store.cat().files(), "accesses": p.accesses.load(Ordering::Relaxed),
        "unheard": p.dropped.load(Ordering::Relaxed),
        "moves": {"done": done(0), "refused": done(1), "failed": done(2)},
        "policy_bytes": policy_bytes, "copies": copies(store), "tiers": tiers(store),
    })
}

fn place(store: &Store, id: NodeId) -> Result<Value, Errno> {
    let facts = store.facts(id)?;
    let cat = store.cat();
    let n = cat.get(id).ok_or(Errno::NOENT)?;
    let path = cat.path(id).ok_or(Errno::NOENT)?;
    let text = String::from_utf8_lossy(&path).into_owned();
    let disks: Vec<Tier> = disks_in(n.on()).collect();
    let mut on: Vec<Tier> = disks.iter().map(|d| store.layout.tier_of(*d)).collect();
    on.dedup();
    let links = n.links();
    drop(cat);
    let policy = lock(&store.placement.policy);
    let own = policy.settings.policies.get(&PathKey(path.clone()));
    Ok(json!({
        "path": text, "tier": on[0], "on": on, "disks": disks,
        "below": disks.iter().map(|d| store.root(*d).path.join(&text).to_string_lossy().into_owned()).collect::<Vec<_>>(),
        "bytes": facts.size, "names": links, "copy": store.copies.has(id), "head": store.copies.has_head(id),
        "pinned_to": policy.settings.pin(&path),
        "policy": own.map(|(p, share)| format!("{p}:{share}")),
    }))
}

fn why(store: &Store, id: NodeId) -> Result<Value, Errno> {
    store.feed_policy();
    let mut value = place(store, id)?;
    let (facts, path, is_file) = {
        let cat = store.cat();
        let n = cat.get(id).ok_or(Errno::NOENT)?;
        (n.facts, cat.path(id).ok_or(Errno::NOENT)?, n.is_file())
    };
    let rule = store
        .placement
        .rules
        .iter()
        .find(|r| r.matches(&path, &facts, wall()));
    let open = store.open.get(id);
    let mut policy = lock(&store.placement.policy);
    let now = store.placement.now(&policy);
    let decided = if value["pinned_to"].is_null() {
        if rule.is_some() { "rule" } else { "policy" }
    } else {
        "pin"
    };
    value["decided_by"] = json!(decided);
    value["rule"] = json!(rule.map(|r| &r.text));
    value["in_use"] = json!(open.is_some());
    value["passthrough"] = json!(open.is_some_and(|l| l.had_passthrough.load(Ordering::SeqCst)));
    value["last_access_s"] = json!(policy.last(id).map(|then| (wall() - then).max(0)));
    value["policy_says"] = json!(is_file.then(|| policy.explain(now, id)));
    Ok(value)
}

pub(crate) fn moves(store: &Store, wanted: &[Wanted]) -> Value {
    let cat = store.cat();
    let one = |w: &Wanted| {
        let path = cat.path(w.node)?;
        let bytes = cat.get(w.node)?.facts.size;
        Some(json!({
            "path": String::from_utf8_lossy(&path), "from": w.from, "to": w.to, "how": w.how.words(), "bytes": bytes, "wanted_by": w.why,
        }))
    };
    let bytes: u64 = wanted
        .iter()
        .filter_map(|w| cat.get(w.node))
        .map(|n| n.facts.size)
        .sum();
    json!({
        "files": wanted.len(), "bytes": bytes,
        "moves": wanted.iter().filter_map(one).take(LIST_MAX).collect::<Vec<_>>(),
    })
}
