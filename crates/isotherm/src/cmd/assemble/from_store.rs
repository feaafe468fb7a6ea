//! `isotherm assemble --from-store`: a volume whose machine is gone goes on here, with what its object store has.
//!
//! If this is killed, the same command goes on.

use std::path::Path;

use isotherm_live::config::{Size, StoreConfig};
use isotherm_live::volume::description;
use isotherm_live::{OpenMode, Volume};

use crate::args::AssembleArgs;
use crate::cmd::create::store::places;
use crate::{Failure, store};

/// What `isotherm-store describe` prints.
#[derive(serde::Deserialize)]
struct Seen {
    id: String,
    bytes: u64,
    object_bytes: u64,
}

/// Takes the store, and describes it and the volume on it.
///
/// # Errors
/// There is no store, or it has no volume; the volume's name is taken.
pub fn run(args: &AssembleArgs, url: &str, volume: &Path) -> Result<(), Failure> {
    let failed = |e: &dyn std::fmt::Display| Failure::failed(e.to_string());
    let file = description(volume);
    if file.exists() {
        let what = "exists already: choose another name, or remove it";
        return Err(failed(&format!("{}: {what}", file.display())));
    }
    let told = store::ask(&["describe".as_ref(), url.as_ref()])?;
    let seen: Seen = serde_json::from_slice(&told).map_err(|e| failed(&format!("{url}: {e}")))?;
    let (dir, spool) = places(volume)?;
    let config = match store::of(volume)? {
        Some(old) if old.id == seen.id => old,
        Some(old) => {
            let place = StoreConfig::place(volume);
            let what = format!("{}: describes another store, {}", place.display(), old.url);
            return Err(failed(&what));
        }
        None => StoreConfig {
            url: url.to_owned(),
            id: seen.id,
            size: Size(seen.bytes),
            object_size: Some(Size(seen.object_bytes)),
            dir,
            spool,
            ..StoreConfig::default()
        },
    };
    let what = format!(
        "{url}: this machine takes the store; one that still serves it can write no more, and what only that one has is missing here"
    );
    super::super::confirm(&what, args.yes)?;
    config
        .save(&StoreConfig::place(volume))
        .map_err(|e| failed(&e))?;
    let running = store::start_here(volume, config.clone(), &["--new-spool"])?;
    let found = super::super::find::of_disk(&config.disk()).map_err(|e| {
        failed(&format!(
            "{e}: a volume that was never served has nothing in its store"
        ))
    })?;
    found.save(&file).map_err(|e| failed(&e))?;
    let opened = Volume::open_without_flash(volume, OpenMode::ListLoss);
    let opened = opened.map_err(|e| failed(&e))?;
    for note in opened.notes() {
        crate::log::note(format_args!("isotherm: {note}"));
    }
    drop(opened);
    let list = [super::judge(volume, &found)];
    drop(running);
    args.json.print(&list, || super::text(&list))
}
