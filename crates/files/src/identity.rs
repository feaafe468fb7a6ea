//! Checks that directories belong together: each tier has an id, and the fastest tier has the ids of all.
//!
//! A disk that is not mounted leaves an empty directory at the place of its tier. Without this check its files would appear to be deleted,
//! and new files would go to the disk below and be hidden when the tier comes back.

use crate::disk::{NewFile, Root, write_all};
use crate::store::{Refused, refuse};
use rustix::fs::OFlags;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

const FILE: &[u8] = b".isotherm/identity.json";

/// The record that is stored on a tier.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Identity {
    /// The id of this tier, in hexadecimal.
    id: String,
    /// On tier 0: the ids of all tiers, the fastest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tiers: Vec<String>,
}

fn read(root: &Root) -> Result<Option<Identity>, Refused> {
    let shown = format!("{}/.isotherm/identity.json", root.path.display());
    let fd = match root.open_at(FILE, OFlags::RDONLY, 0) {
        Err(Errno::NOENT) => return Ok(None),
        Err(e) => return refuse(format!("{shown}: cannot read: {e}")),
        Ok(fd) => fd,
    };
    let text = std::io::read_to_string(std::fs::File::from(fd))
        .map_err(|e| Refused(format!("{shown}: cannot read: {e}")))?;
    serde_json::from_str(&text).map(Some).map_err(|e| {
        Refused(format!(
            "{shown}: {e}: mend it, or mount with --accept-tiers to write it anew"
        ))
    })
}

fn write(root: &Root, identity: &Identity) -> Result<(), Errno> {
    let text = serde_json::to_vec(identity).map_err(|_| Errno::INVAL)?;
    let new = NewFile::make(root, b"identity.json")?;
    write_all(&new.fd, &text, 0).and_then(|()| new.publish())
}

fn number() -> Result<String, Refused> {
    let mut bytes = [0u8; 8];
    let random = std::fs::File::open("/dev/urandom");
    random
        .and_then(|mut f| std::io::Read::read_exact(&mut f, &mut bytes))
        .map_err(|e| Refused(format!("/dev/urandom: {e}")))?;
    Ok(format!("{:016x}", u64::from_le_bytes(bytes)))
}

/// Checks that these are the tiers that tier 0 lists. With `accept` they become those tiers. An absent tier is assumed to be the listed
/// one. Returns the ids, and a message for people if a full tier has no room for its id: as long as no tier has one, the next mount tries
/// again.
///
/// # Errors
/// A message in words: a directory is not the tier that it was.
pub(crate) fn check(
    roots: &Arc<Vec<Root>>,
    accept: bool,
) -> Result<(Vec<Option<String>>, Option<String>), Refused> {
    let present = |t: &usize| !roots[*t].absent;
    let mut ids: Vec<Option<String>> = vec![None; roots.len()];
    for t in (0..roots.len()).filter(present) {
        let identity = match read(&roots[t]) {
            Err(_) if accept => None,
            other => other?,
        };
        ids[t] = identity.map(|m| m.id);
    }
    let known = read(&roots[0])
        .unwrap_or_default()
        .map_or(Vec::new(), |m| m.tiers);
    let same = known.len() == roots.len()
        && (0..roots.len()).filter(present).all(|t| {
            let id = ids[t].as_ref();
            id.is_some_and(|id| known.contains(id))
        });
    if same {
        let mut others: Vec<_> = known
            .iter()
            .filter(|k| !ids.contains(&Some((*k).clone())))
            .collect();
        others.reverse();
        for id in ids.iter_mut().filter(|id| id.is_none()) {
            *id = others.pop().cloned();
        }
        return Ok((ids, None));
    }
    if !present(&0) || (0..roots.len()).any(|t| !present(&t)) {
        return refuse(
            "tiers are missing, and the fast tier does not know which: mount it once with all of them",
        );
    }
    // A directory without an id, although the fast tier lists the same number of tiers: most likely its disk is not mounted.
    let lost = (1..roots.len()).find(|t| ids[*t].as_ref().is_none_or(|id| !known.contains(id)));
    if let Some(t) = lost.filter(|_| !accept && known.len() == roots.len()) {
        return refuse(format!(
            "{}: is not the directory that was this tier the last time: is its disk mounted? If it is to be a tier from now on: --accept-tiers; to serve without it: --degraded",
            roots[t].path.display()
        ));
    }
    let mut all: Vec<String> = Vec::new();
    for id in &ids {
        all.push(match id {
            Some(id) if !all.contains(id) => id.clone(),
            _ => number()?,
        });
    }
    // Tier 0 comes last, because its list is what completes the change.
    for t in (0..roots.len()).rev() {
        let tiers = if t == 0 { all.clone() } else { Vec::new() };
        let id = all[t].clone();
        let shown = roots[t].path.display();
        match write(&roots[t], &Identity { id, tiers }) {
            Err(Errno::NOENT | Errno::NOSPC | Errno::DQUOT)
                if t > 0 && known.is_empty() && roots[t].local =>
            {
                return Ok((
                    ids,
                    Some(format!(
                        "{shown}: is full: it has no room to store that it is this tier, so the next mount would not notice if its disk were not mounted; the first mount that finds room stores it"
                    )),
                ));
            }
            done => done.map_err(|e| {
                Refused(format!(
                    "{shown}: cannot write .isotherm/identity.json: {e}"
                ))
            })?,
        }
    }
    Ok((all.into_iter().map(Some).collect(), None))
}

/// Whether the directory may be the tier that the fast tier lists. This is asked only for a directory that exists but may be an empty mount
/// point.
pub(crate) fn is_known(fast: &Root, root: &Root) -> bool {
    let known = read(fast).ok().flatten().map_or(Vec::new(), |m| m.tiers);
    known.is_empty()
        || read(root)
            .ok()
            .flatten()
            .is_some_and(|m| known.contains(&m.id))
}
