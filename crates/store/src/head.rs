//! Creation of a store, its newest manifest, and the fence.

use crate::layout::{self, BLOCK, DESCRIPTION, Description, FORMAT, Manifest, manifest_name};
use crate::remote::{Remote, RemoteError};
use crate::spool::random_id;

/// A segment is at least as large, bytes, so that small disks have few objects.
const SEGMENT: u64 = 1 << 30;
/// At most so many segments.
const SEGMENTS: u64 = 4096;

/// The seconds since 1970.
pub fn now() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |d| d.as_secs())
}

/// What a manifest's text is.
pub fn encode(manifest: &Manifest) -> Vec<u8> {
    // A value of plain fields always has a text.
    layout::seal(&serde_json::to_string_pretty(manifest).unwrap_or_default())
}

fn decode(name: &str, bytes: &[u8]) -> Result<Manifest, RemoteError> {
    let read = layout::unseal(bytes).and_then(|text| serde_json::from_str(text).ok());
    read.ok_or_else(|| RemoteError::Damaged(name.to_owned()))
}

/// Makes a store for a disk of `bytes` bytes.
///
/// # Errors
/// The sizes are not allowed; there is something below the prefix, or it is inside of another store; the store has no conditional PUT; it is away.
pub fn create(remote: &Remote, bytes: u64, object_bytes: u64) -> Result<Description, String> {
    let id = random_id().map_err(|e| e.to_string())?;
    create_as(remote, &id, bytes, object_bytes)
}

/// As [`create`], with this id. If it was killed in the middle, the same call goes on; if all was made, it changes nothing.
///
/// # Errors
/// As [`create`]; the store there has another id or size.
pub fn create_as(
    remote: &Remote,
    id: &str,
    bytes: u64,
    object_bytes: u64,
) -> Result<Description, String> {
    if bytes == 0 || !bytes.is_multiple_of(BLOCK) {
        return Err(format!("size: {bytes} bytes is not a multiple of 4096"));
    }
    if !(1 << 20..=32 << 20).contains(&object_bytes)
        || !object_bytes.is_multiple_of(layout::GROUP * BLOCK)
    {
        return Err("object size: 1 to 32 MiB, in steps of 256 KiB".into());
    }
    let away = |e: RemoteError| e.to_string();
    let there = match remote.wait(remote.head(DESCRIPTION)) {
        Ok(_) => true,
        Err(RemoteError::Missing(_)) => false,
        Err(error) => return Err(away(error)),
    };
    if there {
        let made = describe(remote)?;
        if made.id != id {
            return Err(format!(
                "the prefix is not empty, it holds another store, of {} ({}): choose a new prefix, or start that one (`isotherm assemble --from-store`)",
                isotherm_words::size::exact(made.bytes),
                made.id
            ));
        }
        if (made.bytes, made.object_bytes) != (bytes, object_bytes) {
            return Err("the store was made with other sizes, which cannot be changed".into());
        }
    } else {
        remote.is_outermost()?;
        let probe_name = format!("probe-{id}");
        let listed = remote.list("", 1, |l| l.name != probe_name);
        if let Some(first) = remote.wait(listed).map_err(away)?.first() {
            return Err(format!(
                "the prefix is not empty, it holds {}: choose a new prefix",
                first.name
            ));
        }
        probe(remote, &probe_name)?;
    }
    let description = Description {
        format: FORMAT,
        id: id.to_owned(),
        bytes,
        object_bytes,
        segment_bytes: SEGMENT.max((bytes / SEGMENTS).next_power_of_two()),
    };
    let manifest = Manifest {
        id: id.to_owned(),
        number: 1,
        token: String::new(),
        spool: String::new(),
        epoch: 0,
        sequence: 0,
        written: now(),
        index: None,
        deltas: Vec::new(),
    };
    let text = serde_json::to_string_pretty(&description).unwrap_or_default() + "\n";
    remote
        .wait(remote.create(DESCRIPTION, text.as_bytes()))
        .map_err(away)?;
    if describe(remote)?.id != id {
        return Err("another program makes a store at this prefix at this moment".into());
    }
    // Only a store that was never taken has none; a store whose first manifest was removed has later ones.
    if newest(remote, id).is_err_and(|e| matches!(e, RemoteError::Missing(_))) {
        remote
            .wait(remote.create(&manifest_name(1), &encode(&manifest)))
            .map_err(away)?;
    }
    Ok(description)
}

/// Checks that a second conditional PUT to one name is refused.
fn probe(remote: &Remote, name: &str) -> Result<(), String> {
    // What a killed attempt has left.
    remote
        .wait(remote.delete(name))
        .map_err(|e| e.to_string())?;
    let first = remote.wait(remote.create(name, b"first"));
    let second = remote.wait(remote.create(name, b"second"));
    let there = remote.wait(remote.get(name));
    // A probe that stays makes the next creation refuse this prefix, and name it.
    let removed = remote.wait(remote.delete(name));
    match (first, second, there) {
        (Ok(true), Ok(false), Ok(bytes)) if bytes == b"first" => removed.map_err(|e| e.to_string()),
        (Ok(true), Ok(_), Ok(_)) => Err("the store has no conditional PUT (If-None-Match: *): a second writer could not be kept out".into()),
        (Err(e), ..) | (_, Err(e), _) | (.., Err(e)) => Err(e.to_string()),
        (Ok(false), ..) => Err("the store answers a PUT of a new object as if it were there".into()),
    }
}

/// Reads what the store is.
///
/// # Errors
/// There is none, it is of a later version, or the store is away.
pub fn describe(remote: &Remote) -> Result<Description, String> {
    let bytes = match remote.wait(remote.get(DESCRIPTION)) {
        Ok(bytes) => bytes,
        Err(RemoteError::Missing(_)) => {
            return Err("there is no store at this URL (isotherm-store create makes one)".into());
        }
        Err(error) => return Err(error.to_string()),
    };
    let read: Result<Description, _> = serde_json::from_slice(&bytes);
    let description = read.map_err(|e| format!("{DESCRIPTION} is damaged: {e}"))?;
    if description.format != FORMAT {
        return Err(format!(
            "the store has format {}, this program knows {FORMAT}",
            description.format
        ));
    }
    let sane = description.bytes > 0
        && description.bytes.is_multiple_of(BLOCK)
        && description.segment_bytes >= BLOCK
        && (layout::GROUP * BLOCK..=32 << 20).contains(&description.object_bytes);
    if sane {
        Ok(description)
    } else {
        Err(format!("{DESCRIPTION} is damaged: a size is out of range"))
    }
}

/// The newest manifest. A list may be older than the store, so later numbers are looked for.
///
/// # Errors
/// There is none, it is damaged, or the store is away.
pub fn newest(remote: &Remote, id: &str) -> Result<Manifest, RemoteError> {
    let listed = remote.wait(remote.list("manifest", usize::MAX, |_| true))?;
    let number = |name: &str| name.strip_prefix("manifest/")?.parse::<u64>().ok();
    let highest = listed.iter().filter_map(|l| number(&l.name)).max();
    let mut at = highest.ok_or_else(|| RemoteError::Missing("manifest/…".into()))?;
    let mut bytes = remote.wait(remote.get(&manifest_name(at)))?;
    loop {
        match remote.wait(remote.get(&manifest_name(at + 1))) {
            Ok(next) => (at, bytes) = (at + 1, next),
            Err(RemoteError::Missing(_)) => break,
            Err(other) => return Err(other),
        }
    }
    let manifest = decode(&manifest_name(at), &bytes)?;
    if manifest.number != at || manifest.id != id {
        return Err(RemoteError::Damaged(format!(
            "{} (it is another one's)",
            manifest_name(at)
        )));
    }
    Ok(manifest)
}

/// Why a manifest is not made.
#[derive(Debug)]
pub enum NoCommit {
    /// Another writer has made the one of this number: it has the store now.
    Fenced,
    /// Unknown; the same manifest may be tried again.
    Not(RemoteError),
}

/// Makes a manifest, which becomes the state if no other writer was faster. Old manifests are removed lowest first and the one before is never
/// removed by its own writer: so if that is still there afterwards, this number was never given before, however long the request has
/// taken.
///
/// # Errors
/// See [`NoCommit`].
pub fn commit(remote: &Remote, number: u64, bytes: &[u8]) -> Result<(), NoCommit> {
    match remote.wait(remote.create(&manifest_name(number), bytes)) {
        Ok(true) => {}
        Ok(false) => return Err(NoCommit::Fenced),
        Err(error) => return Err(NoCommit::Not(error)),
    }
    match remote.wait(remote.head(&manifest_name(number - 1))) {
        Ok(_) => Ok(()),
        Err(RemoteError::Missing(_)) => Err(NoCommit::Fenced),
        Err(error) => Err(NoCommit::Not(error)),
    }
}

/// Takes the fence: makes the next manifest, with the same state and a token of its own.
///
/// # Errors
/// The store is away or damaged, or other writers take the fence again and again.
pub fn take_fence(remote: &Remote, before: &Manifest, spool: &str) -> Result<Manifest, NoCommit> {
    let nonce = random_id().map_err(|e| NoCommit::Not(RemoteError::Away(e.to_string())))?;
    let number = before.number + 1;
    let manifest = Manifest {
        number,
        token: format!("{number:012}-{}", &nonce[..8]),
        spool: spool.to_owned(),
        written: now(),
        ..before.clone()
    };
    commit(remote, number, &encode(&manifest))?;
    Ok(manifest)
}
