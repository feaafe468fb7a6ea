//! Members and values in the form in which the command line has them.

use std::path::PathBuf;
use std::str::FromStr;

use isotherm_core::policy::{PRESETS, build};

use crate::policy_spec::Param;
use crate::size::Size;

/// `PATH[:SIZE]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberSpec {
    /// Device or file.
    pub path: PathBuf,
    /// The size to use; the whole device if absent.
    pub size: Option<Size>,
}

impl FromStr for MemberSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<MemberSpec, String> {
        let plain = || MemberSpec {
            path: text.into(),
            size: None,
        };
        if text.is_empty() {
            return Err("the path of a device or file is missing".into());
        }
        // Names such as pci-0000:00:1f.2 have colons. If the whole text is the name of an existing file, it is taken as that.
        match text.rsplit_once(':') {
            Some((path, size))
                if !path.is_empty() && !size.contains('/') && !plain().path.exists() =>
            {
                let size = size
                    .parse::<Size>()
                    .map_err(|e| format!("{e} (in PATH:SIZE)"))?;
                if size.bytes().is_some_and(|n| i64::try_from(n).is_err()) {
                    return Err(format!(
                        "`{text}`: too large: files and devices have less than 8E (2^63 bytes)"
                    ));
                }
                Ok(MemberSpec {
                    path: path.into(),
                    size: Some(size),
                })
            }
            _ => Ok(plain()),
        }
    }
}

/// A duration: `90s`, `10m`, `1h`, or seconds without a unit.
///
/// # Errors
/// The message says what to write.
pub fn duration(text: &str) -> Result<f64, String> {
    let wrong = || format!("`{text}`: write a time from 1s to 7d, as in 90s, 10m or 1h");
    let (number, unit) = match text.char_indices().next_back() {
        Some((at, c)) if c.is_ascii_alphabetic() => (&text[..at], c),
        _ => (text, 's'),
    };
    let factor = match unit {
        's' => 1.0,
        'm' => 60.0,
        'h' => 3600.0,
        'd' => 86_400.0,
        _ => return Err(wrong()),
    };
    let seconds = number.parse::<f64>().map_err(|_| wrong())? * factor;
    if (1.0..=604_800.0).contains(&seconds) {
        Ok(seconds)
    } else {
        Err(wrong())
    }
}

/// An interval in seconds: 0.1 to a day.
///
/// # Errors
/// The message says what to write.
pub fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(s) if (0.1..=86_400.0).contains(&s) => Ok(s),
        _ => Err(format!("`{text}`: write seconds, from 0.1 to 86400")),
    }
}

/// `N=PATH[:SIZE]`.
///
/// # Errors
/// The message says what to write.
pub fn tier(text: &str) -> Result<(u8, MemberSpec), String> {
    let (n, member) = text
        .split_once('=')
        .ok_or_else(|| format!("`{text}`: write N=PATH[:SIZE], as in 2=disk.img:1T"))?;
    match n.parse() {
        Ok(n @ 0..=7) => Ok((n, member.parse()?)),
        _ => Err(format!(
            "`{n}` is no tier: tiers are numbered from 0 (fastest) to 7"
        )),
    }
}

/// `TIER=PRESET`.
///
/// # Errors
/// The message says what to write, or names the nearest preset.
pub fn paced(text: &str) -> Result<(String, String), String> {
    let (tier, preset) = of_tier(text, "TIER=PRESET, as in slow=wd5000aaks")?;
    isotherm_models::preset(preset, &isotherm_models::Options::default())
        .map_err(|e| format!("{e} (see `isotherm devices`)"))?;
    Ok((tier.to_owned(), preset.to_owned()))
}

/// `TIER=SHEET`. The path of a file becomes absolute.
///
/// # Errors
/// The message says what to write, or names the nearest preset.
pub fn sheet(text: &str) -> Result<(String, String), String> {
    let (tier, name) = of_tier(text, "TIER=SHEET, as in slow=exos-18tb or slow=mine.toml")?;
    isotherm_models::sheet(name).map_err(|e| format!("{e} (see `isotherm devices`)"))?;
    let path = std::path::Path::new(name);
    let name = match std::path::absolute(path) {
        Ok(p) if path.extension().is_some_and(|e| e == "toml") => {
            p.to_str().map_or_else(|| name.to_owned(), str::to_owned)
        }
        _ => name.to_owned(),
    };
    Ok((tier.to_owned(), name))
}

/// The two parts of `TIER=WHAT`.
fn of_tier<'a>(text: &'a str, form: &str) -> Result<(&'a str, &'a str), String> {
    let (tier, what) = text
        .split_once('=')
        .ok_or_else(|| format!("`{text}`: write {form}"))?;
    if !matches!(tier, "fast" | "slow") && !matches!(tier.parse(), Ok(0..=7u8)) {
        return Err(format!(
            "`{tier}` is no tier: write fast, slow or a number from 0 to 7"
        ));
    }
    Ok((tier, what))
}

/// An offset in the volume, written like a size; zero is allowed.
///
/// # Errors
/// The message says what to write.
pub fn offset(text: &str) -> Result<u64, String> {
    if !text.is_empty() && text.bytes().all(|b| b == b'0') {
        return Ok(0);
    }
    match text.parse() {
        Ok(Size::Bytes(n)) => Ok(n),
        Ok(Size::Share(_)) => Err(format!("`{text}`: give a byte of the volume, not a share")),
        Err(e) => Err(e.to_string()),
    }
}

/// `KEY=VALUE`, where the value is a number or a size.
///
/// # Errors
/// The message says what to write.
pub fn knob(text: &str) -> Result<(String, f64), String> {
    let sized = text
        .split_once('=')
        .and_then(|(k, v)| Some((k.to_owned(), v.parse::<Size>().ok()?.bytes()? as f64)));
    match sized {
        Some((k, v)) if !k.is_empty() => Ok((k, v)),
        _ => match crate::policy_spec::name_and_value(text)? {
            (k, Param::Number(v)) => Ok((k, v)),
            _ => Err(format!(
                "`{text}`: the value of a parameter is a number, as in PT=2"
            )),
        },
    }
}

/// `KEY=VALUE`, both as text.
///
/// # Errors
/// The message says what to write.
pub fn key_and_value(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(key, _)| !key.is_empty());
    pair.map(|(key, value)| (key.to_owned(), value.to_owned()))
        .ok_or_else(|| format!("`{text}`: write KEY=VALUE"))
}

/// A change that `isotherm set` makes.
#[derive(Clone, Debug, PartialEq)]
pub enum Setting {
    /// A parameter or knob.
    Knob(String, f64),
    /// A parameter whose value is a name.
    Word(String, String),
    /// The policy itself.
    Policy(crate::policy_spec::PolicySpec),
}

/// Whether `key` is a knob of the engine, or a parameter of some preset, with numbers as values.
fn is_number(key: &str) -> bool {
    let of_preset = |p: &isotherm_core::policy::Preset| {
        let policy = build(p.name, core::iter::empty());
        // A shared parameter is listed only while it is in use, but it takes 0, which turns it off. A parameter whose
        // value is a name refuses each number.
        policy.is_ok_and(|mut p| {
            p.params().iter().any(|(name, _)| *name == key) || p.set(key, 0.0).is_ok()
        })
    };
    isotherm_core::engine::is_knob(key) || PRESETS.iter().any(of_preset)
}

/// `KEY=VALUE` as in [`knob`], or with a name as the value, or `policy=NAME,KEY=VALUE,…`.
///
/// # Errors
/// The message says what to write.
pub fn setting(text: &str) -> Result<Setting, String> {
    match text.strip_prefix("policy=") {
        Some(spec) => spec.parse().map(Setting::Policy),
        None => match knob(text) {
            Ok((k, v)) => Ok(Setting::Knob(k, v)),
            Err(_) => match crate::policy_spec::name_and_value(text)? {
                (_, Param::Name(v)) if v.contains(',') => Err(format!(
                    "`{text}`: one KEY=VALUE at a time, with spaces between them"
                )),
                (k, Param::Name(v)) if is_number(&k) => Err(format!(
                    "`{k}={v}`: the value of `{k}` is a number, as in PT=2"
                )),
                (k, Param::Name(v)) => Ok(Setting::Word(k, v)),
                (k, Param::Number(v)) => Ok(Setting::Knob(k, v)),
            },
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members() {
        let parse = |t: &str| t.parse::<MemberSpec>();
        let member = |path: &str, size| {
            Ok(MemberSpec {
                path: path.into(),
                size,
            })
        };
        assert_eq!(parse("a.img"), member("a.img", None));
        assert_eq!(
            parse("a.img:1G"),
            member("a.img", Some(Size::Bytes(1 << 30)))
        );
        assert_eq!(parse("a:b:10%"), member("a:b", Some(Size::Share(100_000))));
        assert_eq!(parse("/by-path/pci:0/x"), member("/by-path/pci:0/x", None));
        for bad in ["", "a:0", "a:64Q", "a:", "a:-1", "a:99999999999T"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        let dir = tempfile::tempdir().expect("a directory");
        let odd = dir.path().join("pci:1f.2");
        std::fs::write(&odd, "").expect("written");
        let text = odd.to_str().expect("text");
        assert_eq!(parse(text), member(text, None));
    }

    #[test]
    fn tiers_paces_offsets_knobs() {
        assert!(
            tier("2=a:1G").is_ok()
                && tier("8=a").is_err()
                && tier("a").is_err()
                && tier("x=a").is_err()
        );
        assert!(paced("slow=wd5000aaks").is_ok() && paced("1=wd5000aaks").is_ok());
        assert!(paced("slow=wd5000aax").is_err_and(|e| e.contains("wd5000aaks")));
        assert!(paced("slo=wd5000aaks").is_err() && paced("slow").is_err());
        assert_eq!((offset("0"), offset("64K")), (Ok(0), Ok(65536)));
        assert!(offset("").is_err() && offset("10%").is_err());
        assert_eq!(knob("a=50M"), Ok(("a".into(), f64::from(50 << 20))));
        assert_eq!(knob("a=0.5"), Ok(("a".into(), 0.5)));
        assert_eq!(knob("a=0"), Ok(("a".into(), 0.0)));
        assert!(matches!(setting("policy=lru"), Ok(Setting::Policy(p)) if p.name == "lru"));
        assert!(setting("policy=lrv").is_err_and(|e| e.contains("lru")));
        assert_eq!(setting("a=1"), Ok(Setting::Knob("a".into(), 1.0)));
        assert_eq!(
            setting("rule=all:slow:40"),
            Ok(Setting::Word("rule".into(), "all:slow:40".into())),
            "a list of rules is text, although numbers are refused as out of range"
        );
        assert!(setting("metadata_share=much").is_err_and(|e| e.contains("is a number")));
        assert_eq!(
            setting("write-mode=write-around"),
            Ok(Setting::Word("write-mode".into(), "write-around".into()))
        );
        assert!(setting("a").is_err() && setting("=x").is_err() && setting("a=x,b=y").is_err());
        assert!(knob("a").is_err() && knob("=1").is_err() && knob("a=x").is_err());
    }
}
