//! An object store as the slow member, by the account of its process.

use isotherm_answers::Store;
use isotherm_words::printable::printable;

use crate::human::{ago, bytes};

/// The line of `status`; `now` is in seconds since 1970.
pub(super) fn row(store: &Store, now: u64) -> String {
    let since = |t: u64| ago(now.saturating_sub(t) as f64);
    let mut parts = vec![store.url.clone()];
    if !store.serving {
        parts.push("NOT SERVED: no process isotherm-store has it; what needs it waits".into());
    }
    if store.fenced {
        parts.push("TAKEN by another writer".into());
    }
    let why = store
        .away_why
        .as_deref()
        .map_or_else(String::new, printable);
    parts.extend(
        store
            .away_since
            .map(|t| format!("AWAY since {}: {why}", since(t))),
    );
    let waiting = store.waiting_bytes > 0;
    parts.push(if waiting {
        format!(
            "{} wait to be uploaded, for {} s",
            bytes(store.waiting_bytes),
            store.waiting_s
        )
    } else {
        "nothing waits to be uploaded".into()
    });
    let limit = bytes(store.spool_limit_bytes);
    parts.extend(
        store
            .stalled_since
            .map(|t| format!("WRITERS WAIT since {}: the spool has its {limit}", since(t))),
    );
    parts.extend(
        store
            .damage
            .as_deref()
            .map(|d| format!("DAMAGED: {}", printable(d))),
    );
    super::line("store", &parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_a_store_is_in_its_line() {
        let well = Store {
            url: "s3://b/p".into(),
            serving: true,
            ..Store::default()
        };
        assert_eq!(
            row(&well, 100),
            "store      s3://b/p, nothing waits to be uploaded\n"
        );
        let bad = Store {
            serving: false,
            away_since: Some(40),
            away_why: Some("no \u{1b}route".into()),
            waiting_bytes: 8 << 20,
            waiting_s: 60,
            stalled_since: Some(90),
            spool_limit_bytes: 16 << 20,
            fenced: true,
            damage: Some("map/x".into()),
            ..well
        };
        let said = row(&bad, 100);
        for words in [
            "NOT SERVED",
            "TAKEN",
            "AWAY since",
            "8.00 MiB wait",
            "for 60 s",
            "WRITERS WAIT",
            "16.0 MiB",
            "map/x",
        ] {
            assert!(said.contains(words), "{words}: {said}");
        }
        assert!(!said.contains('\u{1b}'), "{said}");
    }
}
