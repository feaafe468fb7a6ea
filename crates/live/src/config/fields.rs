//! The keys of a description in one table: their names, their valid values, and their text in `docs/reference.md`.
//!
//! ```text
//!  [io] ─┬─ keys of the engine: KNOBS of the core, the names that `isotherm set` takes
//!        └─ keys that only a start can change: IO
//! ```

use isotherm_core::engine::KNOBS;
use isotherm_core::policy::nearest;

/// A key of a description that is not a knob of the engine.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// Unit and range, in the words of error messages.
    pub range: &'static str,
    /// Lowest and highest value, if it is a number whose range does not depend on other keys.
    pub limits: Option<(f64, f64)>,
    /// The default, in words.
    pub default: &'static str,
    /// Its meaning.
    pub what: &'static str,
}

const fn field(
    name: &'static str,
    range: &'static str,
    default: &'static str,
    what: &'static str,
) -> Field {
    Field {
        name,
        range,
        limits: None,
        default,
        what,
    }
}

const fn number(
    name: &'static str,
    (range, low, high): (&'static str, f64, f64),
    default: &'static str,
    what: &'static str,
) -> Field {
    Field {
        limits: Some((low, high)),
        ..field(name, range, default, what)
    }
}

/// Keys at the top.
pub const TOP: &[Field] = &[
    field(
        "name",
        "1 to 100 bytes, without `/` and control characters",
        "required",
        "name of the volume: of the block file, the NBD export, `/dev/isotherm/NAME`",
    ),
    field(
        "uuid",
        "32 hexadecimal digits",
        "`create` assigns it",
        "identity of the volume; its members are found by it",
    ),
    field(
        "extent",
        "a power of two from 4K to 4M",
        "`\"64K\"`",
        "unit of placement; `create` fixes it",
    ),
    field(
        "policy",
        "`NAME,KEY=VALUE,...`",
        "required",
        "policy that decides the placement of data; `isotherm policies` lists names and parameters",
    ),
    field(
        "qos",
        "a list of `CLASSES+KEY=VALUE...` with the keys `floor`, `ceiling`, `latency`, `share`, and `depth=N`",
        "no promises",
        "bandwidth, latency and shares of classes, [serving.md](serving.md#promises-to-classes); `isotherm classes set` changes it",
    ),
];

/// Keys of one `[[members]]` entry.
pub const MEMBER: &[Field] = &[
    field(
        "path",
        "a file or block device, relative to the directory of the description",
        "required",
        "a hint: a member is identified by its superblock, not by its path",
    ),
    field(
        "tail",
        "a file or block device, relative to the directory of the description",
        "none",
        "device that continues a disk which was adopted whole (`adopt --tail`); a hint, it is identified by its label",
    ),
    field(
        "tier",
        "0 (fastest) to 7, without gaps",
        "required",
        "tier that the member belongs to",
    ),
    field(
        "size",
        "at least 1M",
        "the whole device",
        "bytes to use; `create` makes a file that does not exist with this size",
    ),
    field(
        "paced",
        "a name of `isotherm devices`",
        "not paced",
        "completions are delayed to the times that the model of this device gives",
    ),
    field(
        "sheet",
        "a name of `isotherm devices`, or a file that ends in `.toml`; without `paced`",
        "that of the model if it is paced, else unknown",
        "data sheet of the real device: its energy, wear, starts and power; nothing is delayed",
    ),
    field(
        "span",
        "`full`, or the first byte as a size; with `paced`",
        "`full`",
        "part of the modelled drive that the member represents",
    ),
    field(
        "standby_s",
        "1 to 10^7 seconds",
        "never",
        "the disk is put into standby after this time without use",
    ),
    field(
        "removed",
        "`true`; a flash device of a cache volume",
        "`false`",
        "it was taken out of the volume (`isotherm cache remove`): its place waits for new flash",
    ),
    field(
        "spare",
        "a file or block device, relative to the directory of the description; of a flash device of a cache volume",
        "none",
        "takes the place of this device if it fails (`isotherm cache spare`)",
    ),
];

/// Keys under `[io]` that are read at the start of serving, beside the engine's [`KNOBS`].
pub const IO: &[Field] = &[
    number(
        "buffers",
        ("from 4M to 16G", 4_194_304.0, 17_179_869_184.0),
        "64M",
        "memory for requests, locked and registered",
    ),
    number(
        "move_buffers",
        ("from 1 to 1024", 1.0, 1024.0),
        "16 MiB of extents, 16 to 128",
        "extent-sized buffers for moves, and so the maximum number of moves in progress, including those that wait for their record",
    ),
    number(
        "queue_depth",
        ("from 8 to 4096", 8.0, 4096.0),
        "256",
        "entries of the submission queue",
    ),
    number(
        "spin_us",
        ("from 0 to 1000", 0.0, 1000.0),
        "100",
        "maximum time in microseconds for which the engine's thread polls for work before it sleeps; it polls this long only if work has recently come within this time and, while no device is busy, if it has measured that this serves clients faster; 0: it sleeps at once",
    ),
    field(
        "fuse_ring",
        "true or false",
        "true",
        "requests of the block file come through io_uring if the kernel supports this, it is enabled, and there are at most 32 processors",
    ),
    field(
        "direct",
        "true or false",
        "true",
        "bypass the page cache where the file system allows it",
    ),
    number(
        "stage_blocks",
        ("from 16 to 65536", 16.0, 65536.0),
        "1024",
        "journal blocks (4 KiB) kept in memory until they are written to the mirror",
    ),
    field(
        "pass_discards",
        "true or false",
        "true",
        "discards of freed slots are passed down to the devices",
    ),
    field(
        "wear_years",
        "more than 0 years; instead of `wear_bytes_per_day`",
        "no wear budget",
        "years that the fastest tier must last",
    ),
    field(
        "wear_tbw",
        "terabytes (10^12 bytes); with `wear_years`",
        "the data sheets of the members",
        "terabytes that may be written to the fastest tier in its life",
    ),
    field(
        "start_stop_years",
        "from 0.01 to 1000 years; instead of `sleep_starts_per_day`",
        "5",
        "years for which the start-stop cycles of each sleeping disk must last, by its data sheet",
    ),
    field(
        "classes_off",
        "a list of `front-end`, `ranges`, `database`, `files`, `layout`",
        "all are used",
        "sources of classes that are not used",
    ),
    field(
        "classes_on",
        "a list of `guess`",
        "none",
        "sources of classes that are used only if they are named: `guess` gives writes of unknown data a class by the length of their run",
    ),
];

/// Tables at the top level.
const TABLES: [&str; 2] = ["io", "members"];

/// Keys under `[io]` of earlier versions: the old name, the present name and, if the unit changed, the factor.
const RENAMED: [(&str, &str, Option<f64>); 4] = [
    ("commit_interval_ms", "commit_interval_s", Some(1e-3)),
    ("move_rate", "move_bytes_per_s", None),
    ("p99_limit_ms", "p99_limit_s", Some(1e-3)),
    ("wear_per_day", "wear_bytes_per_day", None),
];

/// Gives keys of descriptions of earlier versions their present names. Returns true if there was one.
///
/// # Errors
/// Both names are present.
pub(super) fn renamed(table: &mut toml::Table) -> Result<bool, String> {
    let Some(toml::Value::Table(io)) = table.get_mut("io") else {
        return Ok(false);
    };
    let mut any = false;
    for (old, new, factor) in RENAMED {
        let Some(value) = io.remove(old) else {
            continue;
        };
        if io.contains_key(new) {
            return Err(format!(
                "[io]: `{old}` is the old name of `{new}`: leave it out"
            ));
        }
        let value = match (value, factor) {
            (toml::Value::Integer(n), Some(factor)) => toml::Value::Float(n as f64 * factor),
            (toml::Value::Float(x), Some(factor)) => toml::Value::Float(x * factor),
            (other, _) => other,
        };
        io.insert(new.to_owned(), value);
        any = true;
    }
    Ok(any)
}

/// Checks that every key of a description is one of those above.
///
/// # Errors
/// An unknown key, with the nearest known one.
pub(super) fn known(table: &toml::Table) -> Result<(), String> {
    let names = |fields: &[Field]| fields.iter().map(|f| f.name).collect::<Vec<_>>();
    let top = [&names(TOP)[..], &TABLES].concat();
    among(table, &top, "")?;
    if let Some(toml::Value::Table(io)) = table.get("io") {
        let knobs: Vec<&str> = KNOBS.iter().map(|k| k.name).collect();
        among(io, &[names(IO), knobs].concat(), "[io]: ")?;
    }
    let members = table.get("members").and_then(toml::Value::as_array);
    for (i, m) in members.into_iter().flatten().enumerate() {
        if let toml::Value::Table(m) = m {
            among(m, &names(MEMBER), &format!("member {i}: "))?;
        }
    }
    Ok(())
}

fn among(table: &toml::Table, valid: &[&str], place: &str) -> Result<(), String> {
    match table.keys().find(|k| !valid.contains(&k.as_str())) {
        None => Ok(()),
        Some(k) => Err(format!(
            "{place}unknown field `{k}`: did you mean `{}`?",
            nearest(k, valid.iter().copied())
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{IoConfig, VolumeConfig};
    use super::*;
    use std::path::Path;

    #[test]
    fn the_defaults_that_the_table_states_are_those_that_hold() {
        let toml::Value::Table(usual) = toml::Value::try_from(IoConfig::default()).unwrap() else {
            panic!("[io] is a table");
        };
        for f in IO.iter().filter(|f| f.name != "move_buffers") {
            match usual.get(f.name) {
                Some(toml::Value::String(text)) => assert_eq!(text, f.default, "{}", f.name),
                Some(value) => assert_eq!(value.to_string(), f.default, "{}", f.name),
                None => assert!(f.limits.is_none(), "{} has a default", f.name),
            }
        }
        known(&usual).unwrap_err();
        let under_io = toml::Table::from_iter([("io".to_owned(), toml::Value::Table(usual))]);
        known(&under_io).unwrap();
    }

    #[test]
    fn descriptions_of_earlier_versions_are_read() {
        let read = |io: &str| {
            let text = format!(
                "name = \"v\"\npolicy = \"lru\"\n[io]\n{io}\n[[members]]\npath = \"f\"\ntier = 0\n"
            );
            VolumeConfig::parse(&text, Path::new("v.toml"))
        };
        let old = "commit_interval_ms = 200\nmove_rate = \"50M\"\np99_limit_ms = 5.5\nwear_per_day = \"1G\"";
        let new = "commit_interval_s = 0.2\nmove_bytes_per_s = \"50M\"\np99_limit_s = 0.0055\nwear_bytes_per_day = \"1G\"";
        assert_eq!(read(old), read(new));
        let both = read("move_rate = 5\nmove_bytes_per_s = 5").unwrap_err();
        assert!(both.to_string().contains("old name of `move_bytes_per_s`"));
        assert!(read("commit_interval_ms = \"x\"").is_err());
    }
}
