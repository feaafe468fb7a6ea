//! What a check found, in words, and the reason why a superblock cannot be used.

use isotherm_answers::Checked;
use isotherm_core::store::superblock::SuperblockError;

/// What `check` says about it.
pub(super) fn words(error: SuperblockError) -> String {
    match error {
        SuperblockError::Foreign => "there is none".into(),
        SuperblockError::Newer(v) => {
            format!("of format version {v}, which this program does not know")
        }
        SuperblockError::Older(v) => {
            format!("of format version {v}, which this program no longer reads")
        }
        SuperblockError::Damaged => "damaged".into(),
        SuperblockError::Unreadable(error) => format!(
            "cannot be read: {}",
            std::io::Error::from_raw_os_error(error)
        ),
        SuperblockError::Impossible(what) => format!("impossible: {what}"),
    }
}

/// The findings, one per line, and a last line for the whole volume.
pub(super) fn in_words(answer: &Checked, members: usize) -> String {
    let lines = |list: &[String], what: &str| -> Vec<String> {
        list.iter().map(|f| format!("{what}: {f}")).collect()
    };
    let mut text = lines(&answer.mended, "mended");
    text.extend(lines(&answer.findings, "damaged"));
    let verdict = if answer.ok {
        "no damage found"
    } else {
        "damaged"
    };
    let mapped = match answer.mapped_extents {
        None => "its map cannot be read".to_owned(),
        Some(n) => format!("{n} extents mapped"),
    };
    let closed = match answer.was_clean {
        Some(true) => "closed cleanly",
        Some(false) => "not closed cleanly: the next serve recovers",
        None => "whether it was closed cleanly is not known",
    };
    let read = answer.data.as_ref().map(|d| d.read_bytes);
    let read = read.map_or(String::new(), |n| format!(", {n} bytes of data read"));
    text.push(format!(
        "{}: {verdict}; {members} members, {mapped}{read}, {closed}",
        answer.volume
    ));
    text.join("\n") + "\n"
}
