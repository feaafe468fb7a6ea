//! Parameters of `benefit`: names, ranges, values.

use super::order::Order;
use super::weights::Weights;
use super::without::Without;
use crate::policy::{ParamError, nearest, param};
use crate::units::Nanos;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

/// See the table in `mod.rs`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Misses after which worth has halved, in thousandths of the fast slots; 0: worth never decreases.
    pub half_life: u32,
    /// Weight of a copy's cost, per cent.
    pub price: u64,
    /// Length of a stream from which it bypasses the cache, bytes; 0: none bypasses.
    pub stream: u64,
    /// Size of a request from which it bypasses the cache, bytes; 0: none bypasses.
    pub request: u64,
    /// Idle time of the slow device before cleaning begins.
    pub idle: Nanos,
    /// Time since the last write of data before it is cleaned.
    pub settled: Nanos,
    /// Whether the guards are on: the account of fetches, and writes that bypass flash.
    pub guard: bool,
    /// Whether only a part of an extent is fetched if the rest is rarely requested.
    pub parts: bool,
    /// Whether flash has homes as well.
    pub homes: bool,
    /// The weights of time, energy, wear and money.
    pub weights: Weights,
    /// The weights of kinds of accesses and of classes.
    pub order: Order,
    /// The mechanisms that are switched off, for measurements.
    pub without: Without,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            half_life: 300,
            price: 100,
            stream: 256 << 10,
            request: 64 << 10,
            idle: Nanos::from_millis(50),
            settled: Nanos::from_secs(1),
            guard: true,
            parts: true,
            homes: false,
            weights: Weights::default(),
            order: Order::default(),
            without: Without::default(),
        }
    }
}

impl Settings {
    pub fn set(&mut self, key: &str, value: f64) -> Result<(), ParamError> {
        if let Some(set) = self.weights.set(key, value) {
            return set;
        }
        if let Some(set) = self.order.set(key, value) {
            return set;
        }
        let bytes = "bytes, a whole number from 0 (none bypasses) to 2^40";
        match key {
            "half_life" => {
                let what = "a share of the fast slots, 0.001 to 100, or 0 (never)";
                let least = if value == 0.0 { 0.0 } else { 0.001 };
                self.half_life = (param::within(value, least, 100.0, what)? * 1e3) as u32;
            }
            "move_price" => {
                let what = "0 to 1000 times the cost of a copy";
                self.price = (param::within(value, 0.0, 1000.0, what)? * 1e2) as u64;
            }
            "stream_bypass" => {
                self.stream = param::whole(value, 0.0, 1_099_511_627_776.0, bytes)?;
            }
            "request_bypass" => {
                self.request = param::whole(value, 0.0, 1_099_511_627_776.0, bytes)?;
            }
            "idle_s" => {
                let s = param::within(value, 0.001, 3600.0, "seconds, 0.001 to 3600")?;
                self.idle = Nanos((s * 1e9) as u64);
            }
            "settled_s" => {
                let s = param::within(value, 0.0, 3600.0, "seconds, 0 to 3600")?;
                self.settled = Nanos((s * 1e9) as u64);
            }
            "guard" => {
                self.guard = param::whole(value, 0.0, 1.0, "0 (off) or 1 (on)")? == 1;
            }
            "parts" => {
                self.parts = param::whole(value, 0.0, 1.0, "0 (off) or 1 (on)")? == 1;
            }
            "homes" => {
                self.homes = param::whole(value, 0.0, 1.0, "0 (off) or 1 (on)")? == 1;
            }
            "goal" => return Err(ParamError::Range("the name of a goal, not a number")),
            "without" => return Err(ParamError::Range("names of mechanisms, not a number")),
            _ => return Err(self.unknown(key)),
        }
        Ok(())
    }
    /// Changes a parameter whose values are names: the goal, which sets all weights, or the mechanisms that are switched off.
    pub fn set_name(&mut self, key: &str, name: &str) -> Result<(), ParamError> {
        match key {
            "goal" => self.weights = Weights::named(name)?,
            "without" => self.without = Without::named(name)?,
            _ if self.list().iter().any(|p| p.0 == key) => {
                return Err(ParamError::Range("a number"));
            }
            _ => return Err(self.unknown(key)),
        }
        Ok(())
    }
    fn unknown(&self, key: &str) -> ParamError {
        let names = self.list();
        let names = names
            .iter()
            .map(|p| p.0)
            .chain(["goal", "class", "without"]);
        ParamError::Unknown(nearest(key, names))
    }
    pub fn list(&self) -> Vec<(&'static str, f64)> {
        let mut all = vec![
            ("half_life", f64::from(self.half_life) / 1e3),
            ("move_price", self.price as f64 / 1e2),
            ("stream_bypass", self.stream as f64),
            ("request_bypass", self.request as f64),
            ("idle_s", self.idle.as_secs_f64()),
            ("settled_s", self.settled.as_secs_f64()),
            ("guard", f64::from(u8::from(self.guard))),
            ("parts", f64::from(u8::from(self.parts))),
            ("homes", f64::from(u8::from(self.homes))),
        ];
        all.extend(self.weights.list());
        all.extend(self.order.list());
        all
    }
    /// The parameters whose values are names.
    pub fn names(&self) -> Vec<(&'static str, String)> {
        let without = self.without.text().map(|text| ("without", text));
        core::iter::once(self.weights.goal())
            .chain(without)
            .collect()
    }
}
