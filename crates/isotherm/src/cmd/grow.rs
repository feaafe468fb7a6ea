//! `isotherm grow`: lets a volume grow to the present size of its devices.

use isotherm_answers::{Changed, Grown, Noted};
use isotherm_live::Volume;

use crate::Failure;
use crate::args::GrowArgs;
use crate::control::Request;

/// Lets a volume grow. If it is served, its server does this.
///
/// # Errors
/// The volume cannot be opened, or none of its devices has become larger.
pub fn run(args: &GrowArgs) -> Result<(), Failure> {
    let args = &args.of;
    let server = super::server_of(&args.volume)?;
    let served = server.is_some();
    let grown = if let Some(mut server) = server {
        server.ask_for(&Request::Grow)?
    } else {
        let grown = Volume::grow(&args.volume).map_err(|e| Failure::failed(e.to_string()))?;
        let what = isotherm_control::change::growth(&grown);
        let notes = grown.notes;
        Noted { what, notes }
    };
    let result = Changed {
        volume: args.volume.to_string_lossy().into_owned(),
        what: super::told(grown),
        served,
    };
    args.json.print(&result, || in_words(&result))
}

fn in_words(grown: &Changed<Grown>) -> String {
    let gib = |n: u64| n as f64 / f64::from(1 << 30);
    let (v, what) = (&grown.volume, &grown.what);
    let mut text = vec![format!(
        "{v}: {} bytes ({:.2} GiB), formerly {:.2} GiB",
        what.volume_bytes,
        gib(what.volume_bytes),
        gib(what.volume_bytes_before)
    )];
    for (i, m) in what.members.iter().enumerate() {
        let (before, now) = (m.slots_before, m.slots);
        if before != now {
            text.push(format!("  member {i}: {now} extents, formerly {before}"));
        }
    }
    text.extend(what.front_ends.iter().map(|front| format!("  {front}")));
    let when = if grown.served {
        ""
    } else {
        " after the next start"
    };
    text.push(format!(
        "  the file system on it must grow by itself{when} (resize2fs, xfs_growfs)"
    ));
    text.join("\n") + "\n"
}
