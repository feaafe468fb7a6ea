//! Builds a policy from its name and parameters.

use super::registry::{PRESETS, WRITE_MODE};
use super::write_mode::{Moded, RANGE, WriteMode};
use super::{ParamError, Policy};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

/// Reason why a policy could not be built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BuildError {
    /// There is no preset of that name; holds the nearest name.
    UnknownPolicy(String),
    /// A parameter is wrong.
    Param(String, ParamError),
}

/// A parameter's value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ParamValue<'a> {
    /// A number.
    Number(f64),
    /// A name (for example of a write mode) or a rule.
    Name(&'a str),
}

/// Builds a preset with numeric parameters.
pub fn build<'a>(
    name: &str,
    params: impl Iterator<Item = (&'a str, f64)>,
) -> Result<Box<dyn Policy>, BuildError> {
    build_with(name, params.map(|(k, v)| (k, ParamValue::Number(v))))
}

/// Builds a preset with parameters. Every caching preset also takes `write-mode`.
pub fn build_with<'a>(
    name: &str,
    params: impl Iterator<Item = (&'a str, ParamValue<'a>)>,
) -> Result<Box<dyn Policy>, BuildError> {
    let preset = PRESETS
        .iter()
        .find(|p| p.name == name)
        .ok_or_else(|| BuildError::UnknownPolicy(nearest(name, PRESETS.iter().map(|p| p.name))))?;
    let mut policy = (preset.make)();
    for (k, v) in params {
        let set = match v {
            _ if k == WRITE_MODE && preset.is_caching() => {
                let mode = match v {
                    ParamValue::Name(n) => WriteMode::parse(n),
                    ParamValue::Number(_) => Err(ParamError::Range(RANGE)),
                };
                match mode {
                    Ok(m) => {
                        policy = Box::new(Moded::new(policy, m));
                        Ok(())
                    }
                    Err(e) => Err(e),
                }
            }
            ParamValue::Number(n) => policy.set(k, n),
            ParamValue::Name(n) => policy.set_name(k, n),
        };
        set.map_err(|e| match e {
            // The policy suggests only one of its own parameters. This suggestion also considers those that all caching presets share.
            ParamError::Unknown(_) => {
                ParamError::Unknown(nearest(k, preset.parameters().map(|p| p.name)))
            }
            e => e,
        })
        .map_err(|e| BuildError::Param(String::from(k), e))?;
    }
    Ok(policy)
}

/// The valid name with the smallest edit distance to `name`, ignoring case.
pub fn nearest<'a>(name: &str, valid: impl Iterator<Item = &'a str>) -> String {
    valid
        .min_by_key(|v| distance(name, v))
        .map(String::from)
        .unwrap_or_default()
}

fn distance(a: &str, b: &str) -> usize {
    let b: Vec<u8> = b.bytes().map(|c| c.to_ascii_lowercase()).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = core::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let change = diagonal + usize::from(x.to_ascii_lowercase() != *y);
            diagonal = row[j + 1];
            row[j + 1] = change.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_and_buildable() {
        assert!(PRESETS.windows(2).all(|w| w[0].name < w[1].name));
        for p in PRESETS {
            assert_eq!(
                build(p.name, core::iter::empty()).map(|b| b.name()),
                Ok(p.name)
            );
        }
    }

    #[test]
    fn the_list_of_parameters_is_complete() {
        for p in PRESETS {
            let policy = (p.make)();
            let (numbers, names) = (policy.params(), policy.names());
            for q in p.params {
                let named = names.iter().any(|x| x.0 == q.name);
                // The parameter has no value until one is given.
                let rows = ["rule", "class", "without"].contains(&q.name);
                let known = numbers.iter().any(|x| x.0 == q.name) || named || rows;
                assert!(known, "{} lists {}", p.name, q.name);
            }
            for (key, value) in &numbers {
                let listed = p.params.iter().any(|q| q.name == *key);
                assert!(listed, "{} does not list {key}", p.name);
                let built = build(p.name, core::iter::once((*key, *value)));
                assert!(built.is_ok(), "{} refuses its own {key}={value}", p.name);
            }
            for (key, value) in &names {
                let listed = p.params.iter().any(|q| q.name == *key);
                assert!(listed, "{} does not list {key}", p.name);
                let named = |v| build_with(p.name, core::iter::once((*key, ParamValue::Name(v))));
                assert!(named(value).is_ok(), "{} refuses {key}={value}", p.name);
                assert!(named("no such").is_err(), "{} takes any {key}", p.name);
            }
            let modes = p.parameters().filter(|q| q.name == WRITE_MODE).count();
            assert_eq!(modes == 1, p.is_caching(), "{}", p.name);
        }
    }

    #[test]
    fn wrong_names_get_the_nearest() {
        assert_eq!(nearest("grendm", PRESETS.iter().map(|p| p.name)), "greendm");
        assert!(
            matches!(build_with("lru", [("write-mod", ParamValue::Name("write-back"))].into_iter()), Err(BuildError::Param(_, ParamError::Unknown(n))) if n == WRITE_MODE)
        );
        assert!(
            matches!(build_with("lru", [(WRITE_MODE, ParamValue::Name("write-arund"))].into_iter()), Err(BuildError::Param(_, ParamError::Value(_, n))) if n == "write-around")
        );
        assert!(
            matches!(build("greendm", [("PTT", 1.0)].into_iter()), Err(BuildError::Param(_, ParamError::Unknown(n))) if n == "PT")
        );
        assert!(matches!(
            build("greendm", [("PT", 0.0)].into_iter()),
            Err(BuildError::Param(_, ParamError::Range(_)))
        ));
        assert!(
            build(
                "greendm",
                [("LT", 8.0), ("HT", 16.0), ("MCML", 4.0), ("TW", 30.0)].into_iter()
            )
            .is_ok()
        );
    }
}
