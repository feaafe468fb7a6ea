//! `isotherm grow`: lets a volume grow to the present size of its devices.

use isotherm_live::Volume;
use serde_json::{Value, json};

use crate::Failure;
use crate::args::GrowArgs;
use crate::control::Request;
use crate::control::client::Client;

/// Lets a volume grow. If it is served, its server does this.
///
/// # Errors
/// The volume cannot be opened, or none of its devices has become larger.
pub fn run(args: &GrowArgs) -> Result<(), Failure> {
    let args = &args.of;
    let mut result = match super::server_of(&args.volume)? {
        Some(server) => by_server(server)?,
        None => offline(&args.volume)?,
    };
    result["volume"] = json!(args.volume.to_string_lossy());
    super::take_notes(&mut result);
    args.json.print(&result, || {
        in_words(&args.volume.to_string_lossy(), &result)
    })
}

fn by_server(mut server: Client) -> Result<Value, Failure> {
    let mut grown = server.ask(&Request::Grow)?;
    grown["served"] = json!(true);
    Ok(grown)
}

fn offline(volume: &std::path::Path) -> Result<Value, Failure> {
    let grown = Volume::grow(volume).map_err(|e| Failure::failed(e.to_string()))?;
    let mut shown = isotherm_control::change::growth(&grown);
    shown["served"] = json!(false);
    Ok(shown)
}

fn in_words(v: &str, grown: &Value) -> String {
    let number = |v: &Value| v.as_u64().unwrap_or_default();
    let gib = |v: &Value| number(v) as f64 / f64::from(1 << 30);
    let mut text = vec![format!(
        "{v}: {} bytes ({:.2} GiB), formerly {:.2} GiB",
        number(&grown["volume_bytes"]),
        gib(&grown["volume_bytes"]),
        gib(&grown["volume_bytes_before"])
    )];
    let members = grown["members"].as_array();
    for (i, m) in members.into_iter().flatten().enumerate() {
        let (before, now) = (number(&m["slots_before"]), number(&m["slots"]));
        if before != now {
            text.push(format!("  member {i}: {now} extents, formerly {before}"));
        }
    }
    let fronts = grown["front_ends"].as_array();
    for front in fronts.into_iter().flatten() {
        text.push(format!("  {}", front.as_str().unwrap_or_default()));
    }
    let when = if grown["served"] == json!(true) {
        ""
    } else {
        " after the next start"
    };
    text.push(format!(
        "  the file system on it must grow by itself{when} (resize2fs, xfs_growfs)"
    ));
    text.join("\n") + "\n"
}
