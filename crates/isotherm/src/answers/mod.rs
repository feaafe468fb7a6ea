//! The answers of `status` and `why` as short pages for a person. Every key is in `--all` and `--json`.

mod checked;
pub(crate) mod drives;
pub mod files;
pub(crate) mod replacing;
mod store;

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use isotherm_answers::{
    CleaningTimeBy, Copies, Draining, KeptAwakeBy, Lost, Member, Promise, Recovery, Served, Sleep,
    Status, Why, WokenBy,
};

use crate::human::{ago, bytes, percent, time};
use crate::overview;

/// Most classes of the fastest tier's contents that the page of `status` names.
const CLASSES_SHOWN: usize = 4;

/// One line: a word in its column, and what there is to say.
fn line(word: &str, text: &str) -> String {
    format!("{word:<10} {text}\n")
}

/// The page of `isotherm status`.
pub fn status(s: &Status) -> String {
    let mut out = vec![format!("{}: {}\n", s.name, state(s))];
    if let Some(served) = &s.served {
        let causes = overview::causes(&served.health);
        out.extend(causes.iter().map(|(word, text)| line(word, text)));
    }
    out.push(line("state", s.state.word()));
    out.extend(s.uuid.as_ref().map(|id| line("id", id)));
    out.push(line("size", &size(s)));
    let goal = s.served.as_ref().and_then(|v| v.params.get("goal"));
    let goal = goal.map_or_else(String::new, |g| format!(", goal {g}"));
    out.push(line("policy", &format!("{}{goal}", s.policy)));
    for (i, m) in s.members.iter().enumerate() {
        let missing = s.missing_members.iter().any(|n| usize::from(*n) == i);
        out.push(member(m, missing));
        out.extend(m.drives.iter().flatten().filter_map(drives::row));
    }
    if let Some(served) = &s.served {
        out.extend(copies(&served.copies, s.extent_bytes));
        out.extend(served.fast_bytes_by_class.as_ref().and_then(contents));
    }
    if s.lost.bytes > 0 {
        out.push(line("lost", &lost_words(&s.lost)));
    }
    if let Some(served) = &s.served {
        out.push(line("served as", &front_ends(served)));
        let process = format!("{}, {}", served.pid, served.program);
        out.push(line("process", &process));
        out.push(line("start", &recovery(&served.recovery)));
        let replaced = served.replacing.as_ref();
        out.extend(replaced.map(|copy| line("replace", &replacing::copied(copy))));
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |t| t.as_secs());
    out.extend(s.store.iter().map(|told| store::row(told, now)));
    let checked = checked::checked(&s.data_check, now);
    out.extend(checked.map(|text| line("checked", &text)));
    let promises = s.served.iter().flat_map(|v| &v.qos);
    out.extend(promises.map(|row| line("promise", &promise(row))));
    out.concat()
}

fn size(s: &Status) -> String {
    let held = u64::from(s.mapped_extents) * s.extent_bytes;
    // In a cache volume each address has its place, so nothing is known about what holds data.
    let used = if held < s.volume_bytes {
        format!(", of which {} hold data", bytes(held))
    } else {
        String::new()
    };
    let all = bytes(s.volume_bytes);
    format!("{all}{used}, in extents of {}", bytes(s.extent_bytes))
}

/// What the volume does, and what is wrong.
fn state(s: &Status) -> String {
    if let Some(served) = &s.served {
        return overview::sentence(&served.health, served.read_only, served.elapsed_s).0;
    }
    let missing = s.missing_members.len();
    if missing > 0 {
        return format!("Not served; {missing} of its members missing.");
    }
    if s.was_clean == Some(true) {
        "Not served; it was stopped properly.".to_owned()
    } else {
        "Not served; it was not stopped properly, so the next start recovers it.".to_owned()
    }
}

fn member(m: &Member, missing: bool) -> String {
    let tier = format!("tier {}", m.tier);
    if m.removed {
        let what = "nothing: its flash was removed (`isotherm cache VOLUME add DEVICE`)";
        return line(&tier, what);
    }
    let mut parts = vec![m.path.clone()];
    parts.extend(m.tail.as_ref().map(|t| format!("with its tail {t}")));
    parts.extend(m.bytes.map(bytes));
    let model = m.paced.as_ref();
    parts.extend(model.map(|name| format!("as slow as the model {name}")));
    parts.extend(m.sheet.as_ref().map(|name| format!("data sheet {name}")));
    if missing {
        parts.push("MISSING".to_owned());
    }
    if m.asleep == Some(true) {
        let since = m.sleep.as_ref().and_then(|s| s.asleep_s);
        let since = since.map_or_else(String::new, |t| format!(" for {}", time(t)));
        parts.push(format!("asleep{since}"));
    } else if let Some(t) = m.standby_s {
        parts.push(format!("awake, sleeps after {} without use", time(t)));
    }
    parts.extend(m.sleep.iter().flat_map(slept));
    line(&tier, &parts.join(", "))
}

/// How a disk slept so far, and what that does to it.
fn slept(sleep: &Sleep) -> Vec<String> {
    let mut parts: Vec<String> = kept_awake(sleep).into_iter().collect();
    if let Some(woken) = &sleep.last_wake {
        let size = woken.bytes.map(|n| format!(" of {}", bytes(n.into())));
        let by = match woken.by {
            WokenBy::Read => "read",
            WokenBy::Write => "write",
            WokenBy::Move => "move",
            WokenBy::Metadata => "write of metadata",
            WokenBy::Discard => "discard",
        };
        parts.push(format!(
            "woken {} times, last {} by a {by}{}",
            sleep.wake_ups,
            ago(woken.age_s),
            size.unwrap_or_default()
        ));
    }
    let per_day = sleep.wake_ups_per_day;
    parts.extend(per_day.map(|n| format!("{n:.1} wake-ups per day")));
    let years = sleep.start_stop_years;
    parts.extend(years.map(|y| format!("its rated starts last {y:.1} years at that rate")));
    let starts = sleep.starts.as_ref();
    parts.extend(starts.map(|s| format!("{:.1} starts left, {:.1} more a day", s.left, s.per_day)));
    parts
}

/// The budget that keeps a disk awake, if one does.
fn kept_awake(sleep: &Sleep) -> Option<String> {
    match sleep.kept_awake_by? {
        KeptAwakeBy::Starts => {
            let next = sleep.starts.as_ref().map(|s| time(s.next_s));
            Some(format!(
                "kept awake because its starts are used up, the next is allowed in {}",
                next.unwrap_or_else(|| "-".to_owned())
            ))
        }
        KeptAwakeBy::Waits => Some("kept awake because too many requests waited for it".to_owned()),
    }
}

/// Copies on faster tiers, and what the loss of these tiers would cost.
fn copies(c: &Copies, extent: u64) -> Vec<String> {
    let waiting = match c.dirty_bytes {
        0 => "all of their data is on the slowest tier, too".to_owned(),
        n => format!("{} of their data is not on the slowest tier yet", bytes(n)),
    };
    let held = format!("{} extents; {waiting}", c.extents);
    let mut out = vec![line("copies", &held)];
    out.extend(cleaning(c).map(|how| line("dirty", &how)));
    let lost = match c.lost_with_fast_bytes {
        0 => "no data".to_owned(),
        n => bytes(n),
    };
    let loss = format!("of the faster tiers would cost {lost}");
    out.push(line("loss", &loss));
    if let Some(what) = c.draining {
        let what = match what {
            Draining::Copies => "copies",
            Draining::Homes => "homes",
            Draining::Dirty => "dirty",
        };
        let left = bytes(u64::from(c.draining_left) * extent);
        out.push(line("draining", &format!("{what}, {left} left")));
    }
    if let Some(warm) = c.warm.as_ref().filter(|w| w.end.is_none()) {
        let (done, all) = (bytes(warm.copied_bytes), bytes(warm.wanted_bytes));
        let text = format!("{done} of {all} copied to flash so far, in idle time");
        out.push(line("warming", &text));
    }
    out
}

/// The age of dirty data, and the time that cleaning takes, if something is dirty.
fn cleaning(c: &Copies) -> Option<String> {
    if c.dirty_bytes == 0 {
        return None;
    }
    let age = c
        .dirty_for_at_most_s
        .map_or("of unknown age".to_owned(), |s| {
            format!("for at most {}", time(s))
        });
    let by = match c.cleaning_takes_by {
        Some(CleaningTimeBy::Measured) => ", as measured in this session",
        _ => ", by what is known of the disks",
    };
    let takes = c.cleaning_takes_s;
    let takes = takes.map_or("-".to_owned(), |s| format!("about {}{by}", time(s)));
    let fails = if c.cleaning_fails {
        "; the slowest tier DOES NOT TAKE IT"
    } else {
        ""
    };
    let max = c.dirty_max_bytes.map_or(String::new(), |n| {
        format!("; beyond {} writes go through", bytes(n))
    });
    Some(format!("{age}; cleaning takes {takes}{fails}{max}"))
}

/// What was lost with flash.
fn lost_words(lost: &Lost) -> String {
    let ranges = lost
        .ranges
        .iter()
        .map(|r| format!("{} to {}", r.from, r.to));
    let pieces = match lost.granule_bytes {
        ..=4096 => String::new(),
        granule => format!(" (each {granule} by one request)"),
    };
    format!(
        "{} bytes with flash; reading them is an error until they are written again{pieces}: bytes {}",
        lost.bytes,
        ranges.collect::<Vec<_>>().join(", ")
    )
}

/// The largest classes of the contents of the fastest tier.
fn contents(by_class: &BTreeMap<String, u64>) -> Option<String> {
    let mut all: Vec<(&String, u64)> = by_class.iter().map(|(k, n)| (k, *n)).collect();
    let whole: u64 = all.iter().map(|c| c.1).sum();
    // Without classes there is nothing to tell apart.
    if whole == 0 || all.iter().all(|c| c.0 == "unclassified") {
        return None;
    }
    all.sort_by_key(|c| std::cmp::Reverse(c.1));
    let share = |n: u64| percent(Some(n as f64 / whole as f64));
    let mut shown: Vec<String> = all
        .iter()
        .take(CLASSES_SHOWN)
        .map(|(class, n)| format!("{class} {}", share(*n)))
        .collect();
    if let Some(rest) = all.get(CLASSES_SHOWN..).filter(|rest| !rest.is_empty()) {
        let n = rest.iter().map(|c| c.1).sum();
        shown.push(format!("{} others {}", rest.len(), share(n)));
    }
    Some(line("tier 0 has", &shown.join(", ")))
}

fn front_ends(served: &Served) -> String {
    let device = served.device.as_ref().map(|d| {
        let how = if d.zero_copy == Some(true) {
            ", zero copy"
        } else {
            ""
        };
        if d.path == d.link {
            format!("{}{how}", d.link)
        } else {
            format!("{} ({}{how})", d.link, d.path)
        }
    });
    let names = served.front_ends.iter().cloned();
    let all: Vec<String> = device.into_iter().chain(names).collect();
    if all.is_empty() {
        "nothing".to_owned()
    } else {
        all.join(", ")
    }
}

/// What the last start found.
fn recovery(r: &Recovery) -> String {
    let mut text = if r.was_clean {
        "after a proper stop".to_owned()
    } else {
        let n = r.journal_records;
        format!("after a crash: {n} records of the journal were replayed")
    };
    if r.incomplete {
        text += "; part of the journal could not be read, `isotherm check` says more";
    }
    text
}

/// One row of the promises to classes.
fn promise(row: &Promise) -> String {
    let mut parts = vec![row.row.as_ref().unwrap_or(&row.classes).clone()];
    for (held, what) in [(row.floor_held, "floor"), (row.latency_held, "latency")] {
        parts.extend(held.map(|held| {
            let not = if held { "" } else { "NOT " };
            format!("its {what} is {not}held")
        }));
    }
    parts.join("; ")
}

/// The page of `isotherm why VOLUME OFFSET`.
pub fn why(w: &Why) -> String {
    let size = u64::from(w.extent_bytes);
    let block = size / u64::from(w.blocks).max(1);
    let mut out = vec![format!(
        "byte {} is in extent {} (bytes {} to {})\n",
        w.offset,
        w.extent,
        w.extent * size,
        (w.extent + 1) * size - 1
    )];
    let place = |tier: u8, member: &Option<String>, at: u64| {
        let member = member.as_deref().unwrap_or("-");
        format!("tier {tier}, {member} at byte {at}")
    };
    if w.mapped {
        let held = bytes(u64::from(w.valid_blocks) * block);
        let at = place(
            w.tier.unwrap_or_default(),
            &w.member,
            w.member_offset.unwrap_or_default(),
        );
        let text = format!("{at}; {held} of {} were written", bytes(size));
        out.push(line("home", &text));
    } else {
        out.push(line("home", "none: nothing was written to this extent"));
    }
    if let Some(copy) = &w.copy {
        let held = bytes(u64::from(copy.blocks) * block);
        let dirty = match u64::from(copy.dirty_blocks) {
            0 => "equal to the home".to_owned(),
            n => format!("{} of it newer than the home", bytes(n * block)),
        };
        let at = place(copy.tier, &copy.member, copy.member_offset);
        out.push(line("copy", &format!("{at}; holds {held}, {dirty}")));
    } else {
        out.push(line("copy", "none"));
    }
    out.extend(w.last_access_age_s.map(|age| line("last used", &ago(age))));
    if w.moving {
        out.push(line("moving", "yes"));
    }
    out.push(line(&w.policy, &w.why));
    out.concat()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::overview::tests::status as sample;

    fn served() -> Value {
        json!({
            "name": "v", "uuid": "bc70", "state": "serving", "volume_bytes": 4u64 << 30, "extent_bytes": 65536, "policy": "benefit",
            "members": [
                {"path": "/dev/a", "tier": 0, "bytes": 1u64 << 30, "paced": null, "standby_s": null, "asleep": false, "sleep": {}},
                {"path": "/dev/b", "tier": 1, "bytes": 4u64 << 30, "paced": "exos-18tb", "standby_s": 600.0, "asleep": true, "sleep": {
                    "asleep_s": 300.0, "wake_ups": 3, "wake_ups_per_day": 12.0, "start_stop_years": 11.4,
                    "last_wake": {"age_s": 400.0, "by": "read", "offset": 4096, "bytes": 4096},
                }},
            ],
            "failure": null, "read_only": false, "missing_members": [], "mapped_extents": 1024, "params": {"goal": "fast"},
            "copies": {"extents": 7, "dirty_bytes": 8192, "dirty_for_at_most_s": 2400.0, "cleaning_takes_s": 12.0, "cleaning_takes_by": "measured", "lost_with_fast_bytes": 8192, "draining": null, "draining_left": 0},
            "fast_bytes_by_class": {"journal": 4096, "inode": 4096, "directory": 4096, "bitmap": 4096, "file-4K": 1024, "file-16K": 1024},
            "qos": [{
                "row": "noisy:ceiling=10M", "classes": "noisy", "floor_bytes_per_s": null, "ceiling_bytes_per_s": 10_000_000, "latency_s": null,
                "share": 1, "bytes": 0, "bytes_per_s": 0, "held": 0, "in_flight": 0, "waited_requests": 0, "waited_s": 0.0,
                "floor_held": null, "latency_held": false, "windows": 0, "windows_missed": 0,
            }], "front_ends": ["nbd:unix:n"],
            "device": {"path": "/dev/ublkb0", "link": "/dev/isotherm/v", "zero_copy": true}, "pid": 17, "program": "isotherm 0.1.0", "elapsed_s": 12.0,
            "recovery": {"was_clean": false, "journal_records": 5, "incomplete": false},
        })
    }

    #[test]
    fn status_is_a_page() {
        let text = status(&sample(served()));
        for line in [
            "v: Serving well for 12.0 s.",
            "state      serving",
            "size       4.00 GiB, of which 64.0 MiB hold data, in extents of 64.0 KiB",
            "policy     benefit, goal fast",
            "tier 0     /dev/a, 1.00 GiB",
            "tier 1     /dev/b, 4.00 GiB, as slow as the model exos-18tb, asleep for 5 min, woken 3 times, last 7 min ago by a read of \
             4.00 KiB, 12.0 wake-ups per day, its rated starts last 11.4 years at that rate",
            "copies     7 extents; 8.00 KiB of their data is not on the slowest tier yet",
            "dirty      for at most 40 min; cleaning takes about 12.0 s, as measured in this session",
            "loss       of the faster tiers would cost 8.00 KiB",
            "served as  /dev/isotherm/v (/dev/ublkb0, zero copy), nbd:unix:n",
            "process    17, isotherm 0.1.0",
            "start      after a crash: 5 records of the journal were replayed",
            "promise    noisy:ceiling=10M; its latency is NOT held",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\n{text}");
        }
        assert!(
            text.contains("tier 0 has") && text.contains("2 others 11.1 %"),
            "{text}"
        );
    }

    #[test]
    fn a_disk_that_a_budget_keeps_awake_says_so() {
        let mut s = served();
        let m = &mut s["members"][1];
        m["asleep"] = json!(false);
        m["sleep"] = json!({
            "asleep_s": null, "wake_ups": 3, "wake_ups_per_day": null, "start_stop_years": null, "last_wake": null,
            "starts": {"per_day": 27.378, "left": 0.25, "next_s": 2400.0}, "kept_awake_by": "starts",
        });
        let want = "tier 1     /dev/b, 4.00 GiB, as slow as the model exos-18tb, awake, sleeps after 10 min without use, kept awake because \
                    its starts are used up, the next is allowed in 40 min, 0.2 starts left, 27.4 more a day";
        let text = status(&sample(s.clone()));
        assert!(text.lines().any(|l| l == want), "{text}");
        s["members"][1]["sleep"]["kept_awake_by"] = json!("waits");
        let text = status(&sample(s.clone()));
        assert!(text.contains("because too many requests waited"), "{text}");
    }

    #[test]
    fn what_is_wrong_is_in_the_first_line_and_at_the_member() {
        let mut s = served();
        s["missing_members"] = json!([1]);
        s["health"] = json!({
            "state": "degraded", "sentence": "Degraded: 1 of its members missing.",
            "causes": [{
                "state": "degraded", "kind": "missing", "member": 1, "path": "/dev/b", "what": "1 of its members missing", "detail": "/dev/b",
                "todo": "attach it", "errno": null, "error": null, "count": null, "since_unix_s": null, "last_unix_s": null,
            }],
        });
        let text = status(&sample(s.clone()));
        let head = "v: Degraded: 1 of its members missing.\nwrong      1 of its members missing: /dev/b\nto do      attach it\nstate ";
        assert!(text.starts_with(head), "{text}");
        assert!(
            text.contains("/dev/b, 4.00 GiB, as slow as the model exos-18tb, MISSING"),
            "{text}"
        );
        s["state"] = json!("stopped");
        s["health"] = Value::Null;
        assert!(
            status(&sample(s.clone())).starts_with("v: Not served; 1 of its members missing.\n")
        );
        s["missing_members"] = json!([]);
        s["was_clean"] = json!(false);
        assert!(status(&sample(s.clone())).contains("was not stopped properly"));
    }

    #[test]
    fn why_names_the_home_and_the_copy() {
        let mut w = json!({
            "offset": 70000, "extent": 1, "extent_bytes": 65536, "mapped": true, "tier": 1, "slot": 9, "member": "/dev/b", "member_offset": 1 << 20, "in_flight": 0,
            "copy": {"tier": 0, "slot": 3, "member": "/dev/a", "member_offset": 4096, "blocks": 16, "dirty_blocks": 8},
            "valid_blocks": 128, "blocks": 128, "moving": false, "last_access_age_s": 2.0, "policy": "benefit", "why": "a dirty copy",
        });
        let text = why(&isotherm_answers::read(&w).expect("an answer"));
        for line in [
            "byte 70000 is in extent 1 (bytes 65536 to 131071)",
            "home       tier 1, /dev/b at byte 1048576; 64.0 KiB of 64.0 KiB were written",
            "copy       tier 0, /dev/a at byte 4096; holds 8.00 KiB, 4.00 KiB of it newer than the home",
            "last used  2.0 s ago",
            "benefit    a dirty copy",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\n{text}");
        }
        w["mapped"] = json!(false);
        w["copy"] = Value::Null;
        let text = why(&isotherm_answers::read(&w).expect("an answer"));
        assert!(
            text.contains("home       none") && text.contains("copy       none"),
            "{text}"
        );
    }
}
