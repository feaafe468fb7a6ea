//! `isotherm release`: gives the disks of a cache volume back as plain disks.

use isotherm_answers::{Noted, Released, ReleasedDisk};
use isotherm_live::volume::description;
use isotherm_live::{Volume, VolumeConfig};

use crate::Failure;
use crate::args::ReleaseArgs;

/// Releases a volume that is not served.
///
/// # Errors
/// The volume is served, is no cache volume, cannot be opened, or a device fails.
pub fn run(args: &ReleaseArgs) -> Result<(), Failure> {
    let v = args.of.volume.to_string_lossy().into_owned();
    super::must_not_be_served(&args.of.volume)?;
    let what = format!(
        "{v}: its disks become plain disks with what the volume shows, and its flash becomes empty"
    );
    super::confirm(&what, args.yes)?;
    if let Ok(config) = VolumeConfig::load(&description(&args.of.volume)) {
        super::serve::device::clear_of_killed(&config);
    }
    let released = Volume::release_with(&args.of.volume, args.accept_loss)
        .map_err(|e| Failure::failed(e.to_string()))?;
    let disk = |d: &isotherm_live::volume::ReleasedDisk| ReleasedDisk {
        path: d.path.to_string_lossy().into_owned(),
        from: d.bytes.0,
        to: d.bytes.1,
    };
    let result = super::told(Noted {
        what: Released {
            volume: v,
            disks: released.disks.iter().map(disk).collect(),
            written_home_bytes: released.written_home,
            went_on: released.went_on,
        },
        notes: released.notes,
    });
    if let Some(store) = crate::store::of(&args.of.volume)? {
        let (v, disk) = (&result.volume, store.disk());
        crate::log::note(format_args!(
            "isotherm: the disk stays in {}: `isotherm-store run {v}.store` shows it as {}; without need of it, remove the objects there, {v}.store and {}",
            store.url,
            disk.display(),
            store.spool.display()
        ));
    }
    args.of.json.print(&result, || {
        let mut text = vec![format!(
            "{}: released; {} bytes were written home",
            result.volume, result.written_home_bytes
        )];
        for d in &result.disks {
            text.push(format!(
                "  {}: bytes {} to {} of the volume, from its first byte on",
                d.path, d.from, d.to
            ));
        }
        if result.disks.len() > 1 {
            text.push(
                "  the parts together are the volume: join them with dm-linear, in this order"
                    .into(),
            );
        }
        text.join("\n") + "\n"
    })
}
