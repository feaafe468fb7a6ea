//! `--slow s3://BUCKET/PREFIX:SIZE`: the store is made, described and served before the volume is made on its disk.
//!
//! The description comes first, with the identity that the store will have. So whatever was killed in the middle, the same command goes on.

use std::path::{Path, PathBuf};

use isotherm_live::config::{Size as LiveSize, StoreConfig, is_store};
use isotherm_live::volume::description;

use crate::args::CreateArgs;
use crate::control::beside;
use crate::policy_spec::PolicySpec;
use crate::size::Size;
use crate::store::{self, Running};
use crate::{Failure, place};

/// The policy of a volume over a store, unless another one is asked for: the store has all that the flash has.
const POLICY: &str = "lru,write-mode=write-through-all";

/// If the slow tier is a store: makes it, and puts its disk in the place of its URL. After an error the description stays for the next attempt,
/// with these options or others.
///
/// # Errors
/// The options are wrong; there is another store, or none can be made there; it cannot be served.
pub fn make(args: &mut CreateArgs) -> Result<Option<Running>, Failure> {
    let is_url = |m: &crate::member::MemberSpec| m.path.to_str().is_some_and(is_store);
    if args
        .fast
        .iter()
        .chain(args.tier.iter().map(|t| &t.1))
        .any(is_url)
    {
        return Err(Failure::usage(
            "an object store is the slowest tier: give it with --slow",
        ));
    }
    let Some(at) = args.slow.iter().position(is_url) else {
        if args.store.is_empty() {
            return Ok(None);
        }
        return Err(Failure::usage(
            "--store: the slow tier is no object store (--slow s3://BUCKET/PREFIX:SIZE)",
        ));
    };
    if args.slow.len() > 1 {
        return Err(Failure::usage(
            "an object store is the whole slow tier: give one --slow",
        ));
    }
    let wanted = wanted(args, at)?;
    super::name_for(&args.volume)?;
    let file = description(&args.volume);
    if file.exists() && !args.force {
        return Err(Failure::failed(format!(
            "{}: exists already: choose another name, or remove it",
            file.display()
        )));
    }
    let config = described(&args.volume, wanted)?;
    let place = StoreConfig::place(&args.volume);
    store::ask(&["make".as_ref(), place.as_os_str()])?;
    let running = store::start_here(&args.volume, config.clone(), &[])?;
    args.slow[at].path = config.disk();
    args.slow[at].size = None;
    if args.policy.is_none() && args.goal.is_none() && args.capacity.is_none() {
        args.policy = Some(POLICY.parse::<PolicySpec>().map_err(Failure::failed)?);
    }
    Ok(Some(running))
}

/// The store that the options ask for, without an identity.
fn wanted(args: &CreateArgs, at: usize) -> Result<StoreConfig, Failure> {
    let member = &args.slow[at];
    let url = member.path.to_string_lossy().into_owned();
    let place = url.split_once("://").map_or("", |(_, place)| place);
    let host = place.split('/').next().unwrap_or_default();
    // Before the URL goes to a file or a message.
    if host.contains('@') || url.contains('?') {
        return Err(Failure::usage(
            "the URL of a store holds no credentials and no query: set them in the environment",
        ));
    }
    let Some(size) = member.size.and_then(Size::bytes) else {
        return Err(Failure::usage(format!(
            "{url}: give the size of the disk, as in {url}:100T"
        )));
    };
    let (dir, spool) = places(&args.volume)?;
    let plain = StoreConfig {
        url,
        size: LiveSize(size),
        dir,
        spool,
        ..StoreConfig::default()
    };
    plain
        .with(&args.store)
        .map_err(|e| Failure::usage(format!("--store: {e}")))
}

/// Where the disk appears, and the spool.
pub fn places(volume: &Path) -> Result<(PathBuf, PathBuf), Failure> {
    let volume =
        std::path::absolute(volume).map_err(|e| Failure::file(volume, "find its place", &e))?;
    let name = volume.file_name().unwrap_or_default();
    if volume.parent() == Some(Path::new(place::SYSTEM_CONFIG)) {
        let [run, lib] = ["/run/isotherm-store", "/var/lib/isotherm-store"].map(Path::new);
        return Ok((run.join(name), lib.join(name)));
    }
    Ok((beside(&volume, ".disk"), beside(&volume, ".spool")))
}

/// Writes the description, or finds that of an attempt that was killed.
fn described(volume: &Path, wanted: StoreConfig) -> Result<StoreConfig, Failure> {
    let failed = |e: &dyn std::fmt::Display| Failure::failed(e.to_string());
    let place = StoreConfig::place(volume);
    if let Some(old) = store::of(volume)? {
        let id = old.id.clone();
        if old
            == (StoreConfig {
                id,
                ..wanted.clone()
            })
        {
            return Ok(old);
        }
        // A spool is made when the store is taken.
        if old.spool.exists() {
            return Err(failed(&format!(
                "{}: describes another store, {}, with the spool {}: choose another name, or remove both if nothing there is needed",
                place.display(),
                old.url,
                old.spool.display()
            )));
        }
    }
    let config = StoreConfig {
        id: StoreConfig::new_id().map_err(|e| failed(&e))?,
        ..wanted
    };
    config.save(&place).map_err(|e| failed(&e))?;
    Ok(config)
}
