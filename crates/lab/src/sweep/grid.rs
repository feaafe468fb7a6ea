//! The grid: a TOML file whose lists are multiplied into cells.

use isotherm_models::FlashState;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use super::bad;
use crate::LabError;
use crate::policy_spec::PolicySpec;
use crate::sim::{Device, Setup, TimeMode, parse_span};
use crate::size::{self, Size};

const KEYS: [&str; 19] = [
    "traces",
    "policies",
    "params",
    "fast_size",
    "extent",
    "fast",
    "slow",
    "flash",
    "over_provisioning",
    "span",
    "seeds",
    "time",
    "depth",
    "accelerate",
    "warm_up",
    "limit",
    "hit_only",
    "host_power",
    "set",
];

/// One run of the grid, in the words of `isotherm sim`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cell {
    /// The trace, as written in the grid.
    pub trace: String,
    /// Policy with parameters.
    pub policy: String,
    /// Size of the fast tier.
    pub fast_size: String,
    /// Extent size.
    pub extent: String,
    /// Preset of the fast device, if given.
    pub fast: Option<String>,
    /// Preset of the slow device, if given.
    pub slow: Option<String>,
    /// Initial state of the flash, if given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flash: Option<String>,
    /// Spare flash as a share, in place of the sheets'.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over_provisioning: Option<f64>,
    /// The place of members on their drives, if given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub span: Option<String>,
    /// Seed.
    pub seed: u64,
    /// Requests in flight; `None` if the trace's clock sets the pace.
    pub depth: Option<u32>,
    /// The acceleration of the trace's clock; `None` in the closed loop.
    pub accelerate: Option<f64>,
    /// Number of requests before measuring begins.
    pub warm_up: u64,
    /// Most requests to play.
    pub limit: Option<u64>,
    /// Whether it runs without devices.
    pub hit_only: bool,
    /// Power of the host, watts.
    pub host_power: f64,
    /// Settings of the engine, `KEY=VALUE`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub set: Vec<String>,
}

impl Cell {
    /// The arguments of `isotherm sim` that run this cell alone.
    pub fn args(&self) -> Vec<String> {
        let mut a = vec!["sim".to_owned(), self.trace.clone()];
        let mut put = |k: &str, v: String| a.push(format!("--{k}={v}"));
        put("policy", self.policy.clone());
        put("fast-size", self.fast_size.clone());
        put("extent", self.extent.clone());
        for (k, v) in [("fast", &self.fast), ("slow", &self.slow)] {
            if let Some(v) = v {
                put(k, v.clone());
            }
        }
        put("seed", self.seed.to_string());
        put("warm-up", self.warm_up.to_string());
        if let Some(n) = self.limit {
            put("limit", n.to_string());
        }
        if self.hit_only {
            a.push("--hit-only".to_owned());
            return a;
        }
        put("host-power", self.host_power.to_string());
        if let Some(state) = &self.flash {
            put("flash", state.clone());
        }
        if let Some(share) = self.over_provisioning {
            put("over-provisioning", share.to_string());
        }
        if let Some(span) = &self.span {
            put("span", span.clone());
        }
        for s in &self.set {
            put("set", s.clone());
        }
        if let Some(d) = self.depth {
            put("time", "closed".to_owned());
            put("depth", d.to_string());
        }
        if let Some(f) = self.accelerate {
            put("time", "trace".to_owned());
            put("accelerate", f.to_string());
        }
        a
    }

    /// The setup that these arguments describe.
    ///
    /// # Errors
    /// The message names the wrong value.
    pub fn setup(&self) -> Result<Setup, LabError> {
        let policy: PolicySpec = self.policy.parse().map_err(LabError::Setup)?;
        let size: Size = self
            .fast_size
            .parse()
            .map_err(|e| bad("fast_size", &format!("{e}")))?;
        let mut setup = Setup::pair(policy, size)?;
        if let Some(name) = &self.fast {
            setup.tiers[0].devices = vec![Device::preset(name)?];
        }
        if let Some(name) = &self.slow {
            setup.tiers[1].devices = vec![Device::preset(name)?];
        }
        setup.extent_bytes =
            size::extent(&self.extent).map_err(|e| bad("extent", &e.to_string()))?;
        setup.time = match (self.depth, self.accelerate) {
            (_, Some(acceleration)) => TimeMode::Trace { acceleration },
            (depth, None) => TimeMode::Closed {
                depth: depth.unwrap_or(1),
            },
        };
        let flash = self.flash.as_deref().map(FlashState::parse).transpose();
        let flash = flash.map_err(|e| bad("flash", &e))?;
        setup.set_flash(flash, self.over_provisioning);
        if let Some(span) = &self.span {
            setup.set_span(parse_span(span).map_err(|e| bad("span", &e))?);
        }
        setup.warm_up = self.warm_up;
        setup.limit = self.limit;
        setup.seed = self.seed;
        setup.host_w = self.host_power;
        for s in &self.set {
            let (key, value) = s.split_once('=').unwrap_or((s, ""));
            let value = value.parse().map_err(|_| bad(key, "a number"))?;
            setup.settings.push((key.to_owned(), value));
        }
        setup.check()?;
        Ok(setup)
    }
}

/// Parses a grid. `file` is its name in errors.
///
/// # Errors
/// The text is not TOML, a key does not exist (the nearest one is named), a value has the wrong kind, or a cell is impossible.
pub fn parse(text: &str, file: &str) -> Result<Vec<Cell>, LabError> {
    let table: Table = toml::from_str(text)
        .map_err(|e| LabError::setup(format!("{file}: {}", e.to_string().trim_end())))?;
    cells(&table).map_err(|e| LabError::setup(format!("{file}: {e}")))
}

/// As [`parse`], for a grid in the form of a JSON object with the same keys.
///
/// # Errors
/// As [`parse`].
pub fn parse_json(text: &str) -> Result<Vec<Cell>, LabError> {
    let table: Table = serde_json::from_str(text)
        .map_err(|e| LabError::setup(format!("the grid is no table of lists: {e}")))?;
    cells(&table)
}

fn cells(t: &Table) -> Result<Vec<Cell>, LabError> {
    if let Some(k) = t.keys().find(|k| !KEYS.contains(&k.as_str())) {
        let nearest = isotherm_core::policy::nearest(k, KEYS.into_iter());
        return Err(LabError::setup(format!(
            "unknown key `{k}`; nearest: `{nearest}`"
        )));
    }
    let traces = texts(t, "traces")?;
    let policies = policies(t)?;
    if traces.is_empty() || policies.is_empty() {
        return Err(LabError::setup("`traces` and `policies` are needed"));
    }
    let settings = settings(t)?;
    let first = common(t)?;
    if first.hit_only && !settings.is_empty() {
        return Err(bad("set", "left out with hit_only, which has no time"));
    }
    let mut cells = vec![first];
    // The last list varies fastest.
    grow(&mut cells, &traces, |c, v| c.trace.clone_from(v));
    volumes(t, &mut cells)?;
    grow(&mut cells, &policies, |c, v| c.policy.clone_from(v));
    grow(&mut cells, &clocks(t)?, |c, v| {
        (c.depth, c.accelerate) = (v.depth, v.accelerate);
    });
    let seeds = numbers(t, "seeds", 0.0)?;
    let seeds: Vec<u64> = seeds.iter().map(|s| *s as u64).collect();
    grow(&mut cells, &seeds, |c, v| c.seed = *v);
    for (key, values) in settings {
        grow(&mut cells, &values, |c, v| c.set.push(format!("{key}={v}")));
    }
    for c in &cells {
        c.setup()?;
    }
    Ok(cells)
}

/// A cell with the values that all cells have in common; the lists fill the other fields.
fn common(t: &Table) -> Result<Cell, LabError> {
    let one = |k| t.get(k).map(|v| number(k, v)).transpose();
    let hit_only = match t.get("hit_only") {
        None => false,
        Some(Value::Boolean(b)) => *b,
        Some(_) => return Err(bad("hit_only", "true or false")),
    };
    Ok(Cell {
        trace: String::new(),
        policy: String::new(),
        fast_size: String::new(),
        extent: String::new(),
        fast: None,
        slow: None,
        flash: None,
        over_provisioning: None,
        span: None,
        seed: 0,
        depth: None,
        accelerate: None,
        warm_up: one("warm_up")?.unwrap_or(0.0) as u64,
        limit: one("limit")?.map(|n| n as u64),
        hit_only,
        host_power: one("host_power")?.unwrap_or(0.0),
        set: Vec::new(),
    })
}

/// Multiplies `cells` by the lists that describe the volume: its extents, the size of its fast tier, and its devices.
fn volumes(t: &Table, cells: &mut Vec<Cell>) -> Result<(), LabError> {
    let or = |k, default: &str| {
        let list = texts(t, k)?;
        Ok::<_, LabError>(if list.is_empty() {
            vec![default.to_owned()]
        } else {
            list
        })
    };
    let optional = |k| {
        let list: Vec<_> = texts(t, k)?.into_iter().map(Some).collect();
        Ok::<_, LabError>(if list.is_empty() { vec![None] } else { list })
    };
    let spare: Vec<Option<f64>> = if t.contains_key("over_provisioning") {
        let list = numbers(t, "over_provisioning", 0.0)?;
        list.into_iter().map(Some).collect()
    } else {
        vec![None]
    };
    grow(cells, &or("extent", "4K")?, |c, v| c.extent.clone_from(v));
    grow(cells, &or("fast_size", "10%")?, |c, v| {
        c.fast_size.clone_from(v);
    });
    grow(cells, &optional("fast")?, |c, v| c.fast.clone_from(v));
    grow(cells, &optional("slow")?, |c, v| c.slow.clone_from(v));
    grow(cells, &optional("flash")?, |c, v| c.flash.clone_from(v));
    grow(cells, &spare, |c, v| c.over_provisioning = *v);
    grow(cells, &optional("span")?, |c, v| c.span.clone_from(v));
    Ok(())
}

/// The lists under `set`, by key.
fn settings(t: &Table) -> Result<Vec<(String, Vec<f64>)>, LabError> {
    let Some(v) = t.get("set") else {
        return Ok(Vec::new());
    };
    let table = v.as_table().ok_or_else(|| bad("set", "a table of lists"))?;
    let lists = table
        .keys()
        .map(|k| Ok((k.clone(), numbers(table, k, 0.0)?)));
    lists.collect()
}

/// Multiplies `cells` by `values`; a value that is given twice counts once.
fn grow<T: PartialEq>(cells: &mut Vec<Cell>, values: &[T], set: impl Fn(&mut Cell, &T)) {
    let distinct: Vec<&T> = values
        .iter()
        .enumerate()
        .filter(|(i, v)| !values[..*i].contains(v))
        .map(|(_, v)| v)
        .collect();
    *cells = cells
        .iter()
        .flat_map(|c| {
            distinct.iter().map(|v| {
                let mut c = c.clone();
                set(&mut c, v);
                c
            })
        })
        .collect();
}

/// The pace of requests: the depth of the closed loop, or the acceleration of the trace's clock.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Clock {
    depth: Option<u32>,
    accelerate: Option<f64>,
}

/// Depths of the closed loop, then accelerations of the trace's clock.
fn clocks(t: &Table) -> Result<Vec<Clock>, LabError> {
    let mut clocks = Vec::new();
    let modes = texts(t, "time")?;
    let modes = if modes.is_empty() {
        vec!["closed".to_owned()]
    } else {
        modes
    };
    for mode in &modes {
        match mode.as_str() {
            "closed" => {
                let depths = numbers(t, "depth", 1.0)?;
                clocks.extend(depths.iter().map(|d| Clock {
                    depth: Some(*d as u32),
                    accelerate: None,
                }));
            }
            "trace" => {
                let list = numbers(t, "accelerate", 1.0)?;
                clocks.extend(list.iter().map(|a| Clock {
                    depth: None,
                    accelerate: Some(*a),
                }));
            }
            _ => return Err(bad("time", "\"closed\" or \"trace\"")),
        }
    }
    Ok(clocks)
}

/// Policies, each multiplied by the lists in `params` that apply to it.
fn policies(t: &Table) -> Result<Vec<String>, LabError> {
    let mut out = Vec::new();
    for text in texts(t, "policies")? {
        let spec: PolicySpec = text.parse().map_err(LabError::Setup)?;
        let mut grown = vec![text];
        if let Some(params) = t.get("params") {
            let tables = params
                .as_table()
                .ok_or_else(|| bad("params", "a table of policies"))?;
            if let Some(of) = tables.get(&spec.name) {
                let of = of
                    .as_table()
                    .ok_or_else(|| bad(&format!("params.{}", spec.name), "a table of lists"))?;
                for k in of.keys() {
                    let values = numbers(of, k, 0.0)?;
                    grown = grown
                        .iter()
                        .flat_map(|p| values.iter().map(move |v| format!("{p},{k}={v}")))
                        .collect();
                }
            }
        }
        for p in &grown {
            p.parse::<PolicySpec>().map_err(LabError::Setup)?;
        }
        out.append(&mut grown);
    }
    if let Some(Value::Table(tables)) = t.get("params") {
        let named = |k: &String| out.iter().any(|p| p.split(',').next() == Some(k));
        if let Some(k) = tables.keys().find(|k| !named(k)) {
            return Err(LabError::setup(format!(
                "params.{k}: `policies` does not name it"
            )));
        }
    }
    Ok(out)
}

fn texts(t: &Table, key: &str) -> Result<Vec<String>, LabError> {
    let text = |v: &Value| match v {
        Value::String(s) => Ok(s.clone()),
        _ => Err(bad(key, "a text or a list of texts")),
    };
    match t.get(key) {
        None => Ok(Vec::new()),
        Some(Value::Array(list)) => list.iter().map(text).collect(),
        Some(v) => Ok(vec![text(v)?]),
    }
}

fn numbers(t: &Table, key: &str, default: f64) -> Result<Vec<f64>, LabError> {
    match t.get(key) {
        None => Ok(vec![default]),
        Some(Value::Array(list)) => list.iter().map(|v| number(key, v)).collect(),
        Some(v) => Ok(vec![number(key, v)?]),
    }
}

fn number(key: &str, v: &Value) -> Result<f64, LabError> {
    match v {
        Value::Integer(n) if *n >= 0 => Ok(*n as f64),
        Value::Float(f) if *f >= 0.0 => Ok(*f),
        _ => Err(bad(key, "a number of at least 0, or a list of them")),
    }
}
