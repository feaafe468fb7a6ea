//! The answers of `status` and `why` as short pages for a person. Every key is in `--all` and `--json`.

mod checked;
pub mod files;
pub(crate) mod replacing;

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::human::{ago, bytes, percent, time};
use crate::overview::{self, int, items};

/// Most classes of the fastest tier's contents that the page of `status` names.
const CLASSES_SHOWN: usize = 4;

/// One line: a word in its column, and what there is to say.
fn line(word: &str, text: &str) -> String {
    format!("{word:<10} {text}\n")
}

/// The page of `isotherm status`, from the answer of a server or the description of a volume that is not served. A server of another
/// version may not send every key; lines without one are left out.
pub fn status(s: &Value) -> String {
    let served = s["state"] != "stopped";
    let name = s["name"].as_str().or(s["volume"].as_str()).unwrap_or("-");
    let mut out = vec![format!("{name}: {}\n", state(s, served))];
    out.extend((overview::causes(s).iter()).map(|(word, text)| line(word, text)));
    for (word, key) in [("state", "state"), ("id", "uuid")] {
        out.extend(s[key].as_str().map(|text| line(word, text)));
    }
    out.push(line("size", &size(s)));
    let goal = s["params"]["goal"].as_str();
    let goal = goal.map_or_else(String::new, |g| format!(", goal {g}"));
    let policy = s["policy"].as_str();
    out.extend(policy.map(|p| line("policy", &format!("{p}{goal}"))));
    for (i, m) in items(&s["members"]).enumerate() {
        let missing = items(&s["missing_members"]).any(|n| n.as_u64() == Some(i as u64));
        out.push(member(m, missing));
    }
    if s["copies"].is_object() {
        out.extend(copies(&s["copies"], int(&s["extent_bytes"])));
    }
    out.extend(contents(&s["fast_bytes_by_class"]));
    let lost = int(&s["lost"]["bytes"]);
    if lost > 0 {
        out.push(line("lost", &lost_words(lost, &s["lost"])));
    }
    if served {
        out.push(line("served as", &front_ends(s)));
    }
    if let (Some(pid), Some(program)) = (s["pid"].as_u64(), s["program"].as_str()) {
        out.push(line("process", &format!("{pid}, {program}")));
    }
    if s["recovery"].is_object() {
        out.push(line("start", &recovery(&s["recovery"])));
    }
    if s["replacing"].is_object() {
        out.push(line("replace", &replacing::copied(&s["replacing"])));
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |t| t.as_secs());
    let checked = checked::checked(&s["data_check"], now);
    out.extend(checked.map(|text| line("checked", &text)));
    out.extend(items(&s["qos"]).map(|row| line("promise", &promise(row))));
    out.concat()
}

fn size(s: &Value) -> String {
    let mut text = bytes(int(&s["volume_bytes"]));
    if let Some(extent) = s["extent_bytes"].as_u64() {
        let (all, held) = (int(&s["volume_bytes"]), int(&s["mapped_extents"]) * extent);
        // In a cache volume each address has its place, so nothing is known about what holds data.
        let used = if held < all {
            format!(", of which {} hold data", bytes(held))
        } else {
            String::new()
        };
        text = format!("{text}{used}, in extents of {}", bytes(extent));
    }
    text
}

/// What the volume does, and what is wrong.
fn state(s: &Value, served: bool) -> String {
    if served {
        return overview::sentence(s, s).0;
    }
    let missing = items(&s["missing_members"]).count();
    if missing > 0 {
        return format!("Not served; {missing} of its members missing.");
    }
    if s["was_clean"].as_bool() == Some(true) {
        "Not served; it was stopped properly.".to_owned()
    } else {
        "Not served; it was not stopped properly, so the next start recovers it.".to_owned()
    }
}

fn member(m: &Value, missing: bool) -> String {
    if m["removed"].as_bool() == Some(true) {
        let what = "nothing: its flash was removed (`isotherm cache VOLUME add DEVICE`)";
        return line(&format!("tier {}", int(&m["tier"])), what);
    }
    let sleep = &m["sleep"];
    let mut parts = vec![m["path"].as_str().unwrap_or("-").to_owned()];
    let tail = m["tail"].as_str();
    parts.extend(tail.map(|t| format!("with its tail {t}")));
    parts.extend(m["bytes"].as_u64().map(bytes));
    let model = m["paced"].as_str();
    parts.extend(model.map(|name| format!("as slow as the model {name}")));
    let sheet = m["sheet"].as_str();
    parts.extend(sheet.map(|name| format!("data sheet {name}")));
    if missing {
        parts.push("MISSING".to_owned());
    }
    if m["asleep"].as_bool() == Some(true) {
        let since = sleep["asleep_s"]
            .as_f64()
            .map(|t| format!(" for {}", time(t)));
        parts.push(format!("asleep{}", since.unwrap_or_default()));
    } else if let Some(t) = m["standby_s"].as_f64() {
        parts.push(format!("awake, sleeps after {} without use", time(t)));
    }
    parts.extend(kept_awake(sleep));
    let woken = &sleep["last_wake"];
    if woken.is_object() {
        let size = woken["bytes"].as_u64().map(|n| format!(" of {}", bytes(n)));
        parts.push(format!(
            "woken {} times, last {} by a {}{}",
            int(&sleep["wake_ups"]),
            ago(woken["age_s"].as_f64().unwrap_or(0.0)),
            woken["by"].as_str().unwrap_or("-"),
            size.unwrap_or_default()
        ));
    }
    let per_day = sleep["wake_ups_per_day"].as_f64();
    parts.extend(per_day.map(|n| format!("{n:.1} wake-ups per day")));
    let years = sleep["start_stop_years"].as_f64();
    parts.extend(years.map(|y| format!("its rated starts last {y:.1} years at that rate")));
    let starts = &sleep["starts"];
    if let (Some(left), Some(per_day)) = (starts["left"].as_f64(), starts["per_day"].as_f64()) {
        parts.push(format!("{left:.1} starts left, {per_day:.1} more a day"));
    }
    line(&format!("tier {}", int(&m["tier"])), &parts.join(", "))
}

/// The budget that keeps a disk awake, if one does.
fn kept_awake(sleep: &Value) -> Option<String> {
    let next = sleep["starts"]["next_s"].as_f64().map(time);
    match sleep["kept_awake_by"].as_str()? {
        "starts" => Some(format!(
            "kept awake because its starts are used up, the next is allowed in {}",
            next.unwrap_or_else(|| "-".to_owned())
        )),
        _ => Some("kept awake because too many requests waited for it".to_owned()),
    }
}

/// Copies on faster tiers, and what the loss of these tiers would cost.
fn copies(c: &Value, extent: u64) -> Vec<String> {
    let (dirty, lost) = (int(&c["dirty_bytes"]), int(&c["lost_with_fast_bytes"]));
    let waiting = match dirty {
        0 => "all of their data is on the slowest tier, too".to_owned(),
        n => format!("{} of their data is not on the slowest tier yet", bytes(n)),
    };
    let mut out = vec![line(
        "copies",
        &format!("{} extents; {waiting}", int(&c["extents"])),
    )];
    out.extend(cleaning(c).map(|how| line("dirty", &how)));
    let lost = if lost == 0 {
        "no data".to_owned()
    } else {
        bytes(lost)
    };
    out.push(line(
        "loss",
        &format!("of the faster tiers would cost {lost}"),
    ));
    if let Some(what) = c["draining"].as_str() {
        let left = bytes(int(&c["draining_left"]) * extent);
        out.push(line("draining", &format!("{what}, {left} left")));
    }
    let warm = &c["warm"];
    if warm.is_object() && warm["end"].is_null() {
        let (done, all) = (
            bytes(int(&warm["copied_bytes"])),
            bytes(int(&warm["wanted_bytes"])),
        );
        out.push(line(
            "warming",
            &format!("{done} of {all} copied to flash so far, in idle time"),
        ));
    }
    out
}

/// The age of dirty data, and the time that cleaning takes, if something is dirty.
fn cleaning(c: &Value) -> Option<String> {
    if int(&c["dirty_bytes"]) == 0 {
        return None;
    }
    let age = c["dirty_for_at_most_s"].as_f64();
    let age = age.map_or("of unknown age".to_owned(), |s| {
        format!("for at most {}", time(s))
    });
    let by = match c["cleaning_takes_by"].as_str() {
        Some("measured") => ", as measured in this session",
        _ => ", by what is known of the disks",
    };
    let takes = c["cleaning_takes_s"].as_f64();
    let takes = takes.map_or("-".to_owned(), |s| format!("about {}{by}", time(s)));
    let fails = match c["cleaning_fails"].as_bool() {
        Some(true) => "; the slowest tier DOES NOT TAKE IT",
        _ => "",
    };
    let max = c["dirty_max_bytes"].as_u64();
    let max = max.map_or(String::new(), |n| {
        format!("; beyond {} writes go through", bytes(n))
    });
    Some(format!("{age}; cleaning takes {takes}{fails}{max}"))
}

/// What was lost with flash.
fn lost_words(bytes: u64, lost: &Value) -> String {
    let range = |r: &Value| format!("{} to {}", int(&r["from"]), int(&r["to"]));
    let ranges: Vec<String> = items(&lost["ranges"]).map(range).collect();
    let pieces = match int(&lost["granule_bytes"]) {
        ..=4096 => String::new(),
        granule => format!(" (each {granule} by one request)"),
    };
    format!(
        "{bytes} bytes with flash; reading them is an error until they are written again{pieces}: bytes {}",
        ranges.join(", ")
    )
}

/// The largest classes of the contents of the fastest tier.
fn contents(by_class: &Value) -> Option<String> {
    let mut all: Vec<(&String, u64)> = by_class
        .as_object()?
        .iter()
        .map(|(k, v)| (k, int(v)))
        .collect();
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

fn front_ends(s: &Value) -> String {
    let device = &s["device"];
    let how = match device["zero_copy"].as_bool() {
        Some(true) => ", zero copy",
        _ => "",
    };
    let device = device["link"]
        .as_str()
        .map(|link| match device["path"].as_str() {
            Some(path) if path != link => format!("{link} ({path}{how})"),
            _ => format!("{link}{how}"),
        });
    let names = items(&s["front_ends"])
        .filter_map(Value::as_str)
        .map(str::to_owned);
    let all: Vec<String> = device.into_iter().chain(names).collect();
    if all.is_empty() {
        "nothing".to_owned()
    } else {
        all.join(", ")
    }
}

/// What the last start found.
fn recovery(r: &Value) -> String {
    let mut text = if r["was_clean"].as_bool() == Some(true) {
        "after a proper stop".to_owned()
    } else {
        let n = int(&r["journal_records"]);
        format!("after a crash: {n} records of the journal were replayed")
    };
    if r["incomplete"].as_bool() == Some(true) {
        text += "; part of the journal could not be read, `isotherm check` says more";
    }
    text
}

/// One row of the promises to classes.
fn promise(row: &Value) -> String {
    let said = row["row"].as_str().or(row["classes"].as_str());
    let mut parts = vec![said.unwrap_or("-").to_owned()];
    for (key, what) in [("floor_held", "floor"), ("latency_held", "latency")] {
        parts.extend(row[key].as_bool().map(|held| {
            let not = if held { "" } else { "NOT " };
            format!("its {what} is {not}held")
        }));
    }
    parts.join("; ")
}

/// The page of `isotherm why VOLUME OFFSET`.
pub fn why(w: &Value) -> String {
    let size = int(&w["extent_bytes"]);
    let block = size / int(&w["blocks"]).max(1);
    let mut out = vec![format!(
        "byte {} is in extent {} (bytes {} to {})\n",
        int(&w["offset"]),
        int(&w["extent"]),
        int(&w["extent"]) * size,
        (int(&w["extent"]) + 1) * size - 1
    )];
    let place = |p: &Value| {
        format!(
            "tier {}, {} at byte {}",
            int(&p["tier"]),
            p["member"].as_str().unwrap_or("-"),
            int(&p["member_offset"])
        )
    };
    if w["mapped"].as_bool() == Some(true) {
        let held = bytes(int(&w["valid_blocks"]) * block);
        out.push(line(
            "home",
            &format!("{}; {held} of {} were written", place(w), bytes(size)),
        ));
    } else {
        out.push(line("home", "none: nothing was written to this extent"));
    }
    let copy = &w["copy"];
    if copy.is_object() {
        let held = bytes(int(&copy["blocks"]) * block);
        let dirty = match int(&copy["dirty_blocks"]) {
            0 => "equal to the home".to_owned(),
            n => format!("{} of it newer than the home", bytes(n * block)),
        };
        out.push(line(
            "copy",
            &format!("{}; holds {held}, {dirty}", place(copy)),
        ));
    } else {
        out.push(line("copy", "none"));
    }
    if let Some(age) = w["last_access_age_s"].as_f64() {
        out.push(line("last used", &ago(age)));
    }
    if w["moving"].as_bool() == Some(true) {
        out.push(line("moving", "yes"));
    }
    out.push(line(
        w["policy"].as_str().unwrap_or("policy"),
        w["why"].as_str().unwrap_or("-"),
    ));
    out.concat()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
            "qos": [{"row": "noisy:ceiling=10M", "floor_held": null, "latency_held": false}], "front_ends": ["nbd:unix:n"],
            "device": {"path": "/dev/ublkb0", "link": "/dev/isotherm/v", "zero_copy": true}, "pid": 17, "program": "isotherm 0.1.0", "elapsed_s": 12.0,
            "recovery": {"was_clean": false, "journal_records": 5, "incomplete": false},
        })
    }

    #[test]
    fn status_is_a_page() {
        let text = status(&served());
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
        let text = status(&s);
        assert!(text.lines().any(|l| l == want), "{text}");
        s["members"][1]["sleep"]["kept_awake_by"] = json!("waits");
        let text = status(&s);
        assert!(text.contains("because too many requests waited"), "{text}");
    }

    #[test]
    fn what_is_wrong_is_in_the_first_line_and_at_the_member() {
        let mut s = served();
        s["missing_members"] = json!([1]);
        s["health"] = json!({
            "state": "degraded", "sentence": "Degraded: 1 of its members missing.",
            "causes": [{"what": "1 of its members missing", "detail": "/dev/b", "todo": "attach it"}],
        });
        let text = status(&s);
        let head = "v: Degraded: 1 of its members missing.\nwrong      1 of its members missing: /dev/b\nto do      attach it\nstate ";
        assert!(text.starts_with(head), "{text}");
        assert!(
            text.contains("/dev/b, 4.00 GiB, as slow as the model exos-18tb, MISSING"),
            "{text}"
        );
        s["state"] = json!("stopped");
        s["health"] = Value::Null;
        assert!(status(&s).starts_with("v: Not served; 1 of its members missing.\n"));
        s["missing_members"] = json!([]);
        s["was_clean"] = json!(false);
        assert!(status(&s).contains("was not stopped properly"));
    }

    #[test]
    fn a_server_of_another_version_may_send_less() {
        let s = json!({"volume": "v", "state": "serving", "volume_bytes": 4096});
        let text =
            "v: Serving well.\nstate      serving\nsize       4.00 KiB\nserved as  nothing\n";
        assert_eq!(status(&s), text);
    }

    #[test]
    fn why_names_the_home_and_the_copy() {
        let mut w = json!({
            "offset": 70000, "extent": 1, "extent_bytes": 65536, "mapped": true, "tier": 1, "member": "/dev/b", "member_offset": 1 << 20,
            "copy": {"tier": 0, "member": "/dev/a", "member_offset": 4096, "blocks": 16, "dirty_blocks": 8},
            "valid_blocks": 128, "blocks": 128, "moving": false, "last_access_age_s": 2.0, "policy": "benefit", "why": "a dirty copy",
        });
        let text = why(&w);
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
        let text = why(&w);
        assert!(
            text.contains("home       none") && text.contains("copy       none"),
            "{text}"
        );
    }
}
