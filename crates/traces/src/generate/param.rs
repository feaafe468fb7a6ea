//! Parameters of generators: declared once, with unit, range, default and source, and read from a specification.

use serde::Serialize;

/// The unit of a parameter, which also determines how it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// A whole number.
    Count,
    /// Bytes, with K, M, G, T as powers of 1024.
    Bytes,
    /// A real number.
    Real,
    /// Seconds, real.
    Seconds,
    /// 0 or 1.
    Switch,
}

/// One parameter.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Param {
    /// The name to type.
    pub name: &'static str,
    /// The meaning, and the source of the default.
    pub what: &'static str,
    /// The unit of its value.
    pub unit: Unit,
    /// The value if the parameter is not given.
    pub default: f64,
    /// Smallest value allowed.
    pub min: f64,
    /// Largest value allowed.
    pub max: f64,
}

impl Param {
    /// A whole number of `min..=max`.
    pub(super) const fn count(
        name: &'static str,
        default: u64,
        range: (u64, u64),
        what: &'static str,
    ) -> Param {
        Param {
            name,
            what,
            unit: Unit::Count,
            default: default as f64,
            min: range.0 as f64,
            max: range.1 as f64,
        }
    }

    /// Bytes.
    pub(super) const fn bytes(
        name: &'static str,
        default: u64,
        range: (u64, u64),
        what: &'static str,
    ) -> Param {
        Param {
            unit: Unit::Bytes,
            ..Param::count(name, default, range, what)
        }
    }

    /// A real number.
    pub(super) const fn real(
        name: &'static str,
        default: f64,
        range: (f64, f64),
        what: &'static str,
    ) -> Param {
        Param {
            name,
            what,
            unit: Unit::Real,
            default,
            min: range.0,
            max: range.1,
        }
    }

    /// Seconds.
    pub(super) const fn seconds(
        name: &'static str,
        default: f64,
        range: (f64, f64),
        what: &'static str,
    ) -> Param {
        Param {
            unit: Unit::Seconds,
            ..Param::real(name, default, range, what)
        }
    }

    /// 0 or 1.
    pub(super) const fn switch(name: &'static str, default: bool, what: &'static str) -> Param {
        Param {
            unit: Unit::Switch,
            ..Param::count(name, default as u64, (0, 1), what)
        }
    }

    /// The same parameter with another default, for a preset.
    pub(super) const fn or(self, default: f64) -> Param {
        Param { default, ..self }
    }

    /// A value as text in its unit.
    pub fn show(&self, value: f64) -> String {
        let units = [
            (1u64 << 40, "T"),
            (1 << 30, "G"),
            (1 << 20, "M"),
            (1 << 10, "K"),
        ];
        match self.unit {
            Unit::Bytes => {
                let v = value as u64;
                units
                    .iter()
                    .find(|(size, _)| v >= *size && v.is_multiple_of(*size))
                    .map_or_else(
                        || v.to_string(),
                        |(size, letter)| format!("{}{letter}", v / size),
                    )
            }
            Unit::Count | Unit::Switch => format!("{value:.0}"),
            Unit::Real | Unit::Seconds => format!("{value}"),
        }
    }

    /// Parses a value as the user typed it.
    pub(super) fn parse(&self, text: &str) -> Result<f64, String> {
        let range = || {
            format!(
                "{} from {} to {}",
                self.kind(),
                self.show(self.min),
                self.show(self.max)
            )
        };
        let bad = || format!("`{}={text}`: expected {}", self.name, range());
        let value = match self.unit {
            Unit::Real | Unit::Seconds => text.parse::<f64>().ok(),
            Unit::Count | Unit::Switch => text.parse::<u64>().ok().map(|v| v as f64),
            Unit::Bytes => {
                let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
                let shift = match text[digits.len()..].to_ascii_uppercase().as_str() {
                    "" => Some(0),
                    "K" => Some(10),
                    "M" => Some(20),
                    "G" => Some(30),
                    "T" => Some(40),
                    _ => None,
                };
                shift
                    .zip(digits.parse::<u64>().ok())
                    .map(|(s, v)| v as f64 * (1u64 << s) as f64)
            }
        };
        value
            .filter(|v| (self.min..=self.max).contains(v))
            .ok_or_else(bad)
    }

    fn kind(&self) -> &'static str {
        match self.unit {
            Unit::Count => "a whole number",
            Unit::Bytes => "a size (64K, 8G)",
            Unit::Real => "a number",
            Unit::Seconds => "seconds",
            Unit::Switch => "0 or 1:",
        }
    }
}

/// The parameters that a generator runs with.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Values {
    params: &'static [Param],
    given: Vec<f64>,
    pub scale: f64,
    pub seed: u64,
}

impl Values {
    pub fn defaults(params: &'static [Param], scale: f64) -> Values {
        Values {
            params,
            given: params.iter().map(|p| p.default).collect(),
            scale,
            seed: 1,
        }
    }

    pub fn set(&mut self, at: usize, value: f64) {
        self.given[at] = value;
    }

    /// Whether the generator has this parameter.
    pub fn has(&self, name: &str) -> bool {
        self.params.iter().any(|p| p.name == name)
    }

    /// The value of a parameter. A generator may ask only for parameters that it declared: a test makes each generator and so checks this.
    pub fn real(&self, name: &str) -> f64 {
        let at = self.params.iter().position(|p| p.name == name);
        at.map_or_else(
            || panic!("the generator does not declare `{name}`"),
            |at| self.given[at],
        )
    }

    pub fn count(&self, name: &str) -> u64 {
        self.real(name) as u64
    }

    pub fn on(&self, name: &str) -> bool {
        self.real(name) != 0.0
    }

    /// A count that shrinks with `scale`, never below `least`.
    pub fn scaled(&self, name: &str, least: u64) -> u64 {
        ((self.real(name) * self.scale).round() as u64).max(least)
    }
}
