//! `gen:NAME[,key=value…][,scale=S][,seed=N]`.

use std::fmt;
use std::str::FromStr;

use isotherm_core::policy::nearest;

use super::param::{Param, Values};
use super::registry::{Generator, generators};

/// The prefix of a specification.
pub const PREFIX: &str = "gen:";

/// The parameters that every generator has.
const SCALE: Param = Param::real("scale", 1.0, (1e-9, 1e6), "all counts and sizes times this");

/// A generator with its parameters.
#[derive(Clone, Debug)]
pub struct Spec {
    text: String,
    pub(super) generator: &'static Generator,
    pub(super) values: Values,
}

/// The reason why a specification was not understood. The message names the nearest valid name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadSpec(String);

impl Spec {
    /// The generator.
    pub fn generator(&self) -> &'static Generator {
        self.generator
    }

    /// The seed: 1 unless given.
    pub fn seed(&self) -> u64 {
        self.values.seed
    }
}

impl FromStr for Spec {
    type Err = BadSpec;

    fn from_str(text: &str) -> Result<Spec, BadSpec> {
        let rest = text.strip_prefix(PREFIX).unwrap_or(text);
        let mut words = rest.split(',');
        let name = words.next().unwrap_or_default();
        let Some(generator) = generators().iter().find(|g| g.name == name) else {
            let near = nearest(name, generators().iter().map(|g| g.name));
            return Err(BadSpec(format!(
                "unknown generator `{name}`; nearest: `{near}` (see `isotherm trace generators`)"
            )));
        };
        let mut values = Values::defaults(generator.params, generator.scale);
        let mut given = Vec::new();
        for word in words {
            let Some((key, value)) = word.split_once('=') else {
                return Err(BadSpec(format!(
                    "`{word}`: expected key=value after gen:{name}"
                )));
            };
            if given.contains(&key) {
                return Err(BadSpec(format!(
                    "`{key}` is given twice to gen:{name}: give one value"
                )));
            }
            given.push(key);
            let at = generator.params.iter().position(|p| p.name == key);
            match (key, at) {
                ("seed", _) => {
                    values.seed = value.parse().map_err(|_| {
                        BadSpec(format!(
                            "`seed={value}`: expected a whole number from 0 to {}",
                            u64::MAX
                        ))
                    })?;
                }
                ("scale", _) => values.scale = SCALE.parse(value).map_err(BadSpec)?,
                (_, Some(at)) => {
                    values.set(at, generator.params[at].parse(value).map_err(BadSpec)?);
                }
                (_, None) => {
                    let all = generator
                        .params
                        .iter()
                        .map(|p| p.name)
                        .chain(["scale", "seed"]);
                    let near = nearest(key, all);
                    return Err(BadSpec(format!(
                        "gen:{name} has no parameter `{key}`; nearest: `{near}`"
                    )));
                }
            }
        }
        Ok(Spec {
            text: text.to_owned(),
            generator,
            values,
        })
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
