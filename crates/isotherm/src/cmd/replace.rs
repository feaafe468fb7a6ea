//! `isotherm replace`: puts another device in the place of a member.

use isotherm_live::Volume;
use isotherm_live::volume::{ReplaceHow, Replaced};
use serde_json::json;

use crate::Failure;
use crate::args::ReplaceArgs;
use crate::progress::Progress;

/// Replaces a member of a volume that is not served.
///
/// # Errors
/// The volume is served or cannot be opened, no member is meant, or the new device cannot be used.
pub fn run(args: &ReplaceArgs) -> Result<(), Failure> {
    super::must_not_be_served(&args.volume)?;
    let size = args.new.size.map(|s| {
        s.bytes().ok_or_else(|| {
            Failure::usage("the size of the new device is a number of bytes, as in PATH:1G")
        })
    });
    let how = ReplaceHow {
        member: args.member.clone(),
        size: size.transpose()?,
        empty: args.empty,
        force: args.force,
        accept_loss: args.accept_loss,
    };
    let progress = Progress::files();
    let name = args.new.path.display().to_string();
    let made = Volume::replace(&args.volume, &args.new.path, &how, &mut |done, all| {
        progress.file(&name, done, all);
    });
    progress.finish();
    let made = made.map_err(|e| Failure::failed(e.to_string()))?;
    for note in &made.notes {
        eprintln!("isotherm: {note}");
    }
    let result = json!({
        "volume": args.volume.to_string_lossy(), "member": made.place, "tier": made.tier,
        "old": made.old.to_string_lossy(), "new": made.new.to_string_lossy(),
        "slots_before": made.slots.0, "slots": made.slots.1,
        "copied_bytes": made.copied_bytes, "already": made.already,
    });
    args.json.print(&result, || in_words(args, &made))
}

fn in_words(args: &ReplaceArgs, made: &Replaced) -> String {
    let (v, new, place) = (args.volume.display(), made.new.display(), made.place);
    if made.already {
        return format!("{v}: {new} is member {place} already; its description names it now\n");
    }
    let old = made.old.display();
    let how = match made.copied_bytes {
        0 => "it begins empty".to_owned(),
        n => format!("{n} bytes were copied"),
    };
    let (before, after) = made.slots;
    let size = match after.cmp(&before) {
        std::cmp::Ordering::Equal => format!("{after} extents"),
        _ => format!("{after} extents, formerly {before}"),
    };
    format!(
        "{v}: member {place} (tier {}) is {new} now, formerly {old}: {how}; {size}\n",
        made.tier
    )
}
