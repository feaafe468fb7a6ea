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
//! | `disks` | any node | the disks, and what moves from one to another | - |
//! | `drain`, `undrain` | any node | - | a disk, by its number or path: its files move away; it takes files again |
//! | `add` | any node | - | the path of a directory that becomes a disk of the slowest tier |
//! | `balance` | any node | - | a number of per cent, or `even`, or `stop` |
//! | `check` | any node | names and attributes compared with the tiers | `repair` |
//!
//! Only root and the owner of the mount may give commands. Queries of others are answered with counts (`counts.rs`).

use crate::catalogue::NodeId;
pub use crate::figures::disks;
use crate::figures::{moving, tiers};
use crate::path_key::PathKey;
use crate::placement::Wanted;
use crate::policy_state::DIRS_MAX;
pub use crate::recording::ANSWER_MAX;
use crate::rules::WhichTier;
use crate::settings::Refused;
use crate::store::Store;
use crate::sync::lock;
use crate::tree::{Tier, disks_in, join, wall};
use isotherm_answers::files::{
    Check, Copies, Cut, DecidedBy, Disks, Io, Moves, Recovered, State, Stats, Status, WantedMove,
    WantedMoves, Where, Why,
};
use rustix::io::Errno;
use serde::Serialize;
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

/// The answer to a query.
#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum Answer {
    Status(Box<Status>),
    Stats(Box<Stats>),
    Where(Where),
    Why(Why),
    Migrate(WantedMoves),
    Disks(Disks),
    Check(Check),
    Pin(Option<u8>),
    Policy(Option<String>),
}

impl Answer {
    /// Cuts the lists that can be long to `most` items each; `left_out` says how many were cut.
    fn cut(&mut self, most: usize) {
        let cut = |list: &mut Vec<String>| {
            let n = list.len().saturating_sub(most);
            list.truncate(most);
            n
        };
        let (n, left_out) = match self {
            Answer::Status(s) => {
                let pins = s.pins.len().saturating_sub(most);
                s.pins = std::mem::take(&mut s.pins).into_iter().take(most).collect();
                (pins + cut(&mut s.said), &mut s.cut.left_out)
            }
            Answer::Check(c) => (cut(&mut c.findings), &mut c.cut.left_out),
            Answer::Disks(d) => {
                let n = d.disks.len().saturating_sub(most);
                d.disks.truncate(most);
                (n, &mut d.cut.left_out)
            }
            Answer::Migrate(m) => {
                let n = m.moves.len().saturating_sub(most);
                m.moves.truncate(most);
                (n, &mut m.cut.left_out)
            }
            _ => return,
        };
        *left_out = Some(left_out.unwrap_or(0) + n);
    }
}

/// The answer to a query, which may be too long.
///
/// # Errors
/// There is no such query.
pub(crate) fn value(store: &Store, id: NodeId, what: &str) -> Result<Answer, Errno> {
    Ok(match what {
        "status" => Answer::Status(Box::new(status(store))),
        "stats" => Answer::Stats(Box::new(stats(store))),
        "where" => Answer::Where(place(store, id)?),
        "why" => Answer::Why(why(store, id)?),
        "disks" => Answer::Disks(disks(store)),
        "migrate" => Answer::Migrate(moves(store, &store.would_move())),
        "check" => Answer::Check(crate::check::checked(store, false)),
        "pin" => Answer::Pin(place(store, id)?.pinned_to),
        "policy" => Answer::Policy(place(store, id)?.policy),
        _ => return Err(Errno::NODATA),
    })
}

/// The text of an answer. Lists that would make it longer than an attribute can be are cut, and `left_out` says so.
fn short_enough(mut answer: Answer) -> Result<Vec<u8>, Errno> {
    let mut most = LIST_MAX;
    loop {
        let text = serde_json::to_vec(&answer).map_err(|_| Errno::IO)?;
        if text.len() <= ANSWER_MAX {
            return Ok(text);
        }
        if most == 0 {
            return Ok(br#"{"error":"the answer is too long"}"#.to_vec());
        }
        answer.cut(most);
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
            let tiers = store.layout().tiers();
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
        ("drain", disk) => told(store, store.order_drain(disk)),
        ("undrain", disk) => told(store, store.end_drain(disk)),
        ("add", path) => told(store, store.order_join(path)),
        ("balance", "stop") => told(store, store.end_balance()),
        ("balance", "even") => told(store, store.order_balance(None)),
        ("balance", aim) => match aim.parse() {
            Ok(aim @ 1..=100) => told(store, store.order_balance(Some(aim))),
            _ => refused(store, "the aim is a whole number of per cent, 1 to 100"),
        },
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
    told(store, store.change_settings(f))
}

/// The answer to a command.
fn told(store: &Store, done: Result<(), Refused>) -> Result<(), Errno> {
    done.or_else(|e| refused(store, &e.0))
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

fn copies(store: &Store) -> Copies {
    let c = &store.copies;
    Copies {
        on: c.on,
        files: c.count(),
        bytes: (c.bytes.load(Ordering::Relaxed))
            .saturating_sub(c.ranges.used.load(Ordering::Relaxed)),
        made: c.made.load(Ordering::Relaxed),
        dropped: c.dropped.load(Ordering::Relaxed),
        reads: c.reads.load(Ordering::Relaxed),
        heads: c.heads.figures(),
        ranges: c.ranges.figures(),
    }
}

fn state(store: &Store) -> State {
    if store.is_stuck() {
        State::Stuck
    } else if (0..store.roots.len()).any(|t| !store.is_healthy(t as Tier)) {
        State::Degraded
    } else {
        State::Serving
    }
}

fn status(store: &Store) -> Status {
    let said = lock(&store.said);
    let said: Vec<String> = said.iter().rev().take(20).cloned().collect();
    let (policy, settings) = {
        let policy = lock(&store.placement.policy);
        (policy.preset(), policy.settings.clone())
    };
    let pins = settings.pins.iter().map(|(p, t)| (p.text(), *t));
    let policies = settings.policies.iter();
    Status {
        state: state(store),
        policy,
        moves: store.placement.moves,
        migrating: store.placement.moves_requested(),
        marks_percent: [store.marks().0, store.marks().1],
        tiers: tiers(store),
        moving: moving(store),
        copies: copies(store),
        io: store.open.io.get().map_or(Io::None, |io| io.answer()),
        in_use: store.open.count(),
        pins: pins.collect(),
        policies: policies.map(|(p, own)| (p.text(), own.clone())).collect(),
        rules: store
            .placement
            .rules
            .iter()
            .map(|r| r.text.clone())
            .collect(),
        recovered: Recovered {
            finished: store.recovered.finished,
            dropped: store.recovered.dropped,
            temps: store.recovered.temps,
        },
        said,
        cut: Cut::default(),
    }
}

/// The answer of `stats`.
pub fn stats(store: &Store) -> Stats {
    let p = &store.placement;
    let policy_bytes = lock(&p.policy).bytes();
    let [done, refused, failed] = [0, 1, 2].map(|i| p.done[i].load(Ordering::Relaxed));
    Stats {
        files: store.cat().files(),
        accesses: p.accesses.load(Ordering::Relaxed),
        unheard: p.dropped.load(Ordering::Relaxed),
        moves: Moves {
            done,
            refused,
            failed,
        },
        policy_bytes,
        copies: copies(store),
        tiers: tiers(store),
    }
}

fn place(store: &Store, id: NodeId) -> Result<Where, Errno> {
    let facts = store.facts(id)?;
    let cat = store.cat();
    let n = cat.get(id).ok_or(Errno::NOENT)?;
    let path = cat.path(id).ok_or(Errno::NOENT)?;
    let text = String::from_utf8_lossy(&path).into_owned();
    let disks: Vec<Tier> = disks_in(n.on()).collect();
    let mut on: Vec<Tier> = disks.iter().map(|d| store.layout().tier_of(*d)).collect();
    on.dedup();
    let links = n.links();
    drop(cat);
    let policy = lock(&store.placement.policy);
    let own = policy.settings.policies.get(&PathKey(path.clone()));
    let below = disks.iter().map(|d| {
        let below = store.root(*d).path.join(&text);
        below.to_string_lossy().into_owned()
    });
    Ok(Where {
        tier: on[0],
        on,
        below: below.collect(),
        bytes: facts.size,
        names: links,
        copy: store.copies.has(id),
        head: store.copies.has_head(id),
        pinned_to: policy.settings.pin(&path),
        policy: own.map(|(p, share)| format!("{p}:{share}")),
        path: text,
        disks,
        counts: None,
    })
}

fn why(store: &Store, id: NodeId) -> Result<Why, Errno> {
    store.feed_policy();
    let place = place(store, id)?;
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
    let all = &store.copies.ranges;
    let large = is_file && all.takes(place.disks[0], facts.size);
    let ranges = large.then(|| all.of(id).unwrap_or_default());
    let mut policy = lock(&store.placement.policy);
    let now = store.placement.now(&policy);
    let decided_by = match (place.pinned_to, rule) {
        (Some(_), _) => DecidedBy::Pin,
        (None, Some(_)) => DecidedBy::Rule,
        (None, None) => DecidedBy::Policy,
    };
    let age = |then: i64| (wall() - then).max(0).unsigned_abs();
    Ok(Why {
        place,
        decided_by: Some(decided_by),
        rule: rule.map(|r| r.text.clone()),
        in_use: open.is_some(),
        passthrough: open.is_some_and(|l| l.had_passthrough.load(Ordering::SeqCst)),
        last_access_s: policy.last(id).map(age),
        policy_says: is_file.then(|| match &ranges {
            Some(_) => "it is large: it stays where it is, and what is used most of it is kept on the fast tier".into(),
            None => policy.explain(now, id),
        }),
        ranges,
    })
}

pub(crate) fn moves(store: &Store, wanted: &[Wanted]) -> WantedMoves {
    let cat = store.cat();
    let one = |w: &Wanted| {
        let path = cat.path(w.node)?;
        Some(WantedMove {
            path: String::from_utf8_lossy(&path).into_owned(),
            from: w.from,
            to: w.to,
            how: w.how.answer(),
            bytes: cat.get(w.node)?.facts.size,
            wanted_by: w.why,
        })
    };
    let nodes = wanted.iter().filter_map(|w| cat.get(w.node));
    WantedMoves {
        files: wanted.len(),
        bytes: nodes.map(|n| n.facts.size).sum(),
        moves: wanted.iter().filter_map(one).take(LIST_MAX).collect(),
        cut: Cut::default(),
    }
}
