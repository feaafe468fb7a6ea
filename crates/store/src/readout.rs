//! Reads a whole disk out of a store, without a writer: the newest state at this moment.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use crate::cache::Cache;
use crate::head;
use crate::layout::BLOCK;
use crate::remote::{Remote, patiently};
use crate::state::State;

/// Blocks that are read at once: 4 MiB.
const STEP: u64 = 1024;
/// For how long a store that is away is waited for.
const WAIT: Duration = Duration::from_secs(60);

/// Writes the disk to the new sparse file `image`. Returns its bytes and those that hold data.
///
/// # Errors
/// An object is missing or damaged (its name is said), `image` exists, or cannot be written.
pub fn read_out(remote: &Remote, image: &Path) -> Result<(u64, u64), String> {
    let description = head::describe(remote)?;
    let manifest =
        patiently(WAIT, || head::newest(remote, &description.id)).map_err(|e| e.to_string())?;
    let bytes = description.bytes;
    let state = patiently(WAIT, || {
        State::load(remote, description.clone(), manifest.clone())
    })
    .map_err(|e| e.to_string())?;
    let failed = |e: std::io::Error| format!("{}: {e}", image.display());
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(image)
        .map_err(failed)?;
    let cache = Cache::new(64 << 20);
    for (start, blocks, place) in state.map.iter() {
        let object = state.get(place.object).ok_or("an object is unknown")?;
        let mut at = 0;
        while at < blocks {
            let part = STEP.min(blocks - at);
            let mut data = vec![0; (part * BLOCK) as usize];
            cache
                .read(remote, WAIT, &object, place.block + at, &mut data)
                .map_err(|e| e.to_string())?;
            file.write_all_at(&data, (start + at) * BLOCK)
                .map_err(failed)?;
            at += part;
        }
    }
    // Last, so that an image that is not whole has not its size.
    file.set_len(bytes)
        .and_then(|()| file.sync_all())
        .map_err(failed)?;
    Ok((bytes, state.map.blocks() * BLOCK))
}
