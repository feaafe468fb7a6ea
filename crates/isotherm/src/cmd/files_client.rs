//! Queries to a mounted file system, through extended attributes of its files.

use std::path::Path;

use isotherm_answers::files::Status;
use rustix::fs::XattrFlags;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::Failure;
use crate::failure::reason;

/// The attribute of a query.
fn name(what: &str) -> String {
    format!("user.isotherm.{what}")
}

/// The bytes of an answer.
///
/// # Errors
/// As for `getxattr`.
pub(crate) fn fetch(path: &Path, what: &str) -> Result<Vec<u8>, rustix::io::Errno> {
    let mut buffer = vec![0; isotherm_files::control::ANSWER_MAX];
    let n = rustix::fs::getxattr(path, name(what), &mut buffer[..])?;
    buffer.truncate(n);
    Ok(buffer)
}

/// The answer to a query.
///
/// # Errors
/// There is no mount of this program, or its server has ended.
pub(super) fn ask<T: DeserializeOwned>(path: &Path, what: &str) -> Result<T, Failure> {
    let answer = fetch(path, what).map_err(|e| match e {
        rustix::io::Errno::NODATA | rustix::io::Errno::OPNOTSUPP => Failure::failed(format!(
            "{}: no tiering file system is mounted there (see `isotherm mount --help`)",
            path.display()
        )),
        rustix::io::Errno::NOTCONN => Failure::failed(format!(
            "{0}: the server of this file system has ended: `umount -l {0}`, then mount it again",
            path.display()
        )),
        e => Failure::file(path, "ask", &e.into()),
    })?;
    serde_json::from_slice(&answer).map_err(|e| {
        Failure::failed(format!(
            "{}: answers something else than Isotherm does: {e}",
            path.display()
        ))
    })
}

/// Changes something; `what` and `value` are the words of the query.
///
/// # Errors
/// The same as for [`ask`], and the reason if the server refuses.
pub(crate) fn order(path: &Path, what: &str, value: &str) -> Result<(), Failure> {
    // Only a mount of this program answers this query. Without the check, the attribute would be set on a plain file.
    ask::<Value>(path, "where")?;
    rustix::fs::setxattr(path, name(what), value.as_bytes(), XattrFlags::empty()).map_err(|e| {
        let status = ask::<Status>(path, "status").ok();
        let said = status.and_then(|s| s.said.into_iter().next());
        let why = match (e, said) {
            (rustix::io::Errno::INVAL, Some(said)) => said,
            (e, _) => reason(&e.into()),
        };
        let what = match (what, value) {
            ("pin", "") => "unpin".into(),
            ("pin", tier) => format!("pin to {tier}"),
            ("policy", "") => "remove its policy".into(),
            ("policy", policy) => format!("set policy {policy}"),
            (what, value) => format!("{what} {value}"),
        };
        Failure::failed(format!("{}: cannot {what}: {why}", path.display()))
    })
}

/// Removes the pin or the policy (`what`) of a path. The path need not exist any more, because pins and policies belong to paths: then the
/// nearest directory above it is asked.
///
/// # Errors
/// The same as for [`order`]; or there is neither such a file nor such a pin or policy.
pub(super) fn withdraw(path: &Path, what: &str) -> Result<(), Failure> {
    use rustix::io::Errno;
    use std::os::unix::ffi::OsStrExt;
    if !matches!(fetch(path, "where"), Err(Errno::NOENT | Errno::NOTDIR)) {
        return order(path, what, "");
    }
    let gone = || {
        Failure::failed(format!(
            "{}: there is no such file, and this path has no {what}",
            path.display()
        ))
    };
    for above in path.ancestors().skip(1) {
        let at = if above.as_os_str().is_empty() {
            Path::new(".")
        } else {
            above
        };
        if !at.is_dir() {
            continue;
        }
        ask::<Value>(at, "where")?;
        let rest = path.strip_prefix(above).map_err(|_| gone())?;
        let bytes = rest.as_os_str().as_bytes();
        let done = rustix::fs::setxattr(at, name(&format!("un{what}")), bytes, XattrFlags::empty());
        return done.map_err(|e| match e {
            Errno::NODATA => gone(),
            e => Failure::file(path, &format!("remove its {what}"), &e.into()),
        });
    }
    Err(gone())
}
