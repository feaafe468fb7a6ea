//! A policy as written on the command line: `greendm,PT=2,TW=30`.

use std::fmt;
use std::str::FromStr;

use isotherm_core::policy::{self, BuildError, ParamError, ParamValue, Policy};

/// Name and parameters. Parsing checks the form only; [`PolicySpec::build`] checks that policy and parameters exist.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicySpec {
    /// Preset name.
    pub name: String,
    /// Parameters in the order given.
    pub params: Vec<(String, Param)>,
}

/// A parameter's value.
#[derive(Clone, Debug, PartialEq)]
pub enum Param {
    /// A number.
    Number(f64),
    /// Any other text, for example the name of a mode or a rule.
    Name(String),
}

impl Param {
    /// The value in the form in which policies take it.
    pub fn value(&self) -> ParamValue<'_> {
        match self {
            Param::Number(v) => ParamValue::Number(*v),
            Param::Name(n) => ParamValue::Name(n),
        }
    }
}

impl FromStr for Param {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Param, Self::Err> {
        Ok(match text.parse::<f64>() {
            Ok(v) if v.is_finite() => Param::Number(v),
            _ => Param::Name(text.to_owned()),
        })
    }
}

impl fmt::Display for Param {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Param::Number(v) => v.fmt(f),
            Param::Name(n) => f.write_str(n),
        }
    }
}

impl FromStr for PolicySpec {
    type Err = String;

    fn from_str(text: &str) -> Result<PolicySpec, String> {
        let spec = PolicySpec::split(text)?;
        // A wrong name is wrong usage. It is looked up here because clap reports errors of a value parser as wrong usage.
        match spec.make() {
            Ok(_) => Ok(spec),
            Err(e) => Err(spec.words(&e)),
        }
    }
}

/// Parses `KEY=VALUE` with any value; the policy decides which values it accepts.
///
/// # Errors
/// The message says what to write instead.
pub fn name_and_value(text: &str) -> Result<(String, Param), String> {
    match text.split_once('=').map(|(k, v)| (k.trim(), v.trim())) {
        Some((key, value)) if !key.is_empty() && !value.is_empty() => {
            let Ok(value) = value.parse();
            Ok((key.to_owned(), value))
        }
        _ => Err(format!("`{text}` is no parameter: write KEY=VALUE")),
    }
}

impl PolicySpec {
    /// Splits a text into name and parameters without checking that the policy exists. Blanks around names and values are ignored.
    ///
    /// # Errors
    /// The message says what to write instead.
    pub fn split(text: &str) -> Result<PolicySpec, String> {
        let mut parts = text.split(',').map(str::trim);
        let name = parts.next().unwrap_or_default();
        if name.is_empty() || name.contains('=') {
            return Err(format!(
                "`{text}` lacks the policy's name: write NAME or NAME,KEY=VALUE"
            ));
        }
        let params: Vec<(String, Param)> = parts.map(name_and_value).collect::<Result<_, _>>()?;
        // A key with a text value may be given several times (rules). A key with a number may not: one of the two would be ignored.
        for (i, (key, value)) in params.iter().enumerate() {
            let before = params[..i].iter().any(|(k, _)| k == key);
            if before && matches!(value, Param::Number(_)) {
                return Err(format!(
                    "`{key}` is given twice in `{text}`: give one value"
                ));
            }
        }
        Ok(PolicySpec {
            name: name.to_owned(),
            params,
        })
    }

    /// Parses several policies: `A,k=v,B`. An item with `=` is a parameter of the policy before it.
    ///
    /// # Errors
    /// The message says which item is wrong and what to write instead.
    pub fn list(text: &str) -> Result<Vec<PolicySpec>, String> {
        let mut specs: Vec<String> = Vec::new();
        for item in text.split(',') {
            match specs.last_mut() {
                Some(last) if item.contains('=') => {
                    last.push(',');
                    last.push_str(item);
                }
                _ => specs.push(item.to_owned()),
            }
        }
        specs.iter().map(|s| s.parse()).collect()
    }

    /// Makes the policy.
    ///
    /// # Errors
    /// The message names the unknown policy or parameter and the nearest valid name.
    pub fn build(&self) -> Result<Box<dyn Policy>, String> {
        self.make().map_err(|e| self.words(&e))
    }

    /// Makes the policy.
    ///
    /// # Errors
    /// As [`PolicySpec::build`], but as a value and not as a message.
    pub fn make(&self) -> Result<Box<dyn Policy>, BuildError> {
        let params = self.params.iter().map(|(k, v)| (k.as_str(), v.value()));
        policy::build_with(&self.name, params)
    }

    fn words(&self, error: &BuildError) -> String {
        match error {
            BuildError::UnknownPolicy(nearest) => {
                format!(
                    "unknown policy `{}`; nearest: `{nearest}` (see `isotherm policies`)",
                    self.name
                )
            }
            BuildError::Param(key, e) => param_words(&format!("policy `{}`", self.name), key, e),
        }
    }
}

/// The message for an error of a parameter.
pub fn param_words(of: &str, key: &str, error: &ParamError) -> String {
    match error {
        ParamError::Unknown(nearest) if nearest.is_empty() => {
            format!("{of} has no parameters, so no `{key}` either")
        }
        ParamError::Unknown(nearest) => {
            format!("{of} has no parameter `{key}`; nearest: `{nearest}`")
        }
        ParamError::Range(range) => {
            format!("{of}: parameter `{key}` must be {}", unnamed(range, key))
        }
        ParamError::Value(range, nearest) => {
            let range = unnamed(range, key);
            format!("{of}: parameter `{key}` must be {range}; nearest: `{nearest}`")
        }
    }
}

/// The valid range, without the name of the parameter that some texts begin with.
fn unnamed<'a>(range: &'a str, key: &str) -> &'a str {
    let rest = range.strip_prefix(key).and_then(|r| r.strip_prefix(": "));
    rest.unwrap_or(range)
}

impl fmt::Display for PolicySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        self.params
            .iter()
            .try_for_each(|(k, v)| write!(f, ",{k}={v}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip() {
        for text in [
            "greendm,PT=2,TW=30.5",
            "lru,write-mode=write-around",
            "type-aware,rule=class/1-7:cache-ondemand:20,rule=all:slow:0",
        ] {
            let spec: PolicySpec = text.parse().expect("valid");
            assert_eq!(spec.to_string(), text);
            assert_eq!(spec.to_string().parse(), Ok(spec));
        }
    }

    #[test]
    fn parameters_belong_to_the_policy_before() {
        let list = PolicySpec::list("lru,greendm,PT=2,TW=30,linear").expect("valid");
        let words: Vec<String> = list.iter().map(PolicySpec::to_string).collect();
        assert_eq!(words, ["lru", "greendm,PT=2,TW=30", "linear"]);
        assert!(
            PolicySpec::list("PT=2,greendm").is_err() && PolicySpec::list("lru,,linear").is_err()
        );
    }

    #[test]
    fn mistakes_name_the_nearest() {
        for (text, needle) in [
            ("", "lacks the policy's name"),
            ("PT=2", "lacks the policy's name"),
            ("grendm", "nearest: `greendm`"),
            ("greendm,PTT=1", "nearest: `PT`"),
            ("greendm,PT=0", "must be"),
            ("greendm,PT=x", "must be a number"),
            ("greendm,PT=inf", "must be a number"),
            ("greendm,PT", "write KEY=VALUE"),
            ("greendm,PT=", "write KEY=VALUE"),
            ("lru,write-mode=write-bak", "must be one of write-back"),
            ("greendm,write-mode=write-back", "no parameter `write-mode`"),
            (
                "type-aware,rule=all:fast:9",
                "must be SELECTOR:POLICY:SHARE",
            ),
        ] {
            let e = text.parse::<PolicySpec>().expect_err(text);
            assert!(e.contains(needle), "{text}: {e}");
        }
    }
}
