//! `isotherm grow`: lets a volume grow to the present size of its devices.

use isotherm_live::Volume;
use isotherm_live::volume::Grown;
use serde_json::{Value, json};

use crate::Failure;
use crate::args::GrowArgs;

/// Lets a volume that is not served grow.
///
/// # Errors
/// The volume is served or cannot be opened, or none of its devices has become larger.
pub fn run(args: &GrowArgs) -> Result<(), Failure> {
    let args = &args.of;
    super::must_not_be_served(&args.volume)?;
    let v = args.volume.display();
    let grown = Volume::grow(&args.volume).map_err(|e| Failure::failed(e.to_string()))?;
    for note in &grown.notes {
        eprintln!("isotherm: {note}");
    }
    let members: Vec<Value> = grown
        .slots
        .iter()
        .map(|(before, now)| json!({"slots_before": before, "slots": now}))
        .collect();
    let result = json!({
        "volume": args.volume.to_string_lossy(), "volume_bytes_before": grown.before,
        "volume_bytes": grown.volume_bytes, "members": members, "moved_bytes": grown.moved_bytes,
    });
    args.json
        .print(&result, || in_words(&v.to_string(), &grown))
}

fn in_words(v: &str, grown: &Grown) -> String {
    let gib = |n: u64| n as f64 / f64::from(1 << 30);
    let mut text = vec![format!(
        "{v}: {} bytes ({:.2} GiB), formerly {:.2} GiB",
        grown.volume_bytes,
        gib(grown.volume_bytes),
        gib(grown.before)
    )];
    for (i, (before, now)) in grown.slots.iter().enumerate() {
        if before != now {
            text.push(format!("  member {i}: {now} extents, formerly {before}"));
        }
    }
    text.push(
        "  the file system on it must grow by itself after the next start (resize2fs, xfs_growfs)"
            .into(),
    );
    text.join("\n") + "\n"
}
