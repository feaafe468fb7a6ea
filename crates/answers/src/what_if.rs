//! What a volume would do with other flash or another policy: the answer of `what-if`.

use serde::{Deserialize, Serialize};

/// The hit ratios and latencies that shadows of a served volume predict. A shadow plays a sample of the volume's requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WhatIf {
    /// The volume.
    pub volume: String,
    /// Its policy.
    pub policy: String,
    /// Its size.
    pub volume_bytes: u64,
    /// Its flash; 0 without.
    pub fast_bytes: u64,
    /// Time since the shadows began, with empty flash.
    pub watched_s: f64,
    /// The last part of it, which is counted.
    pub counted_s: f64,
    /// Accesses to extents in this part that the shadows played.
    pub sampled_accesses: u64,
    /// Share of the extents that they see.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1)))]
    pub sample_rate: f64,
    /// Data that was accessed since the shadows began, estimated.
    pub touched_bytes: u64,
    /// The hit ratio that the volume has measured in the counted part; null without flash.
    pub measured_hit_ratio: Option<f64>,
    /// What the shadow of the present settings says of it, before the correction; null without flash, or with too little for the sample.
    pub shadow_hit_ratio: Option<f64>,
    /// The mean latency of reads and writes that the volume has measured in the counted part; null without any.
    pub measured_latency_mean_s: Option<f64>,
    /// The present policy by size of flash, ascending.
    pub sizes: Vec<Prediction>,
    /// Other policies with the flash of today.
    pub policies: Vec<Prediction>,
    /// The line that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Prediction"))]
    pub asked: Option<Prediction>,
}

/// What is predicted for one setting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Prediction {
    /// The policy.
    pub policy: String,
    /// Bytes of flash.
    pub fast_bytes: u64,
    /// Share of the accesses that flash would serve.
    pub hit_ratio: Between,
    /// Mean latency of reads and writes; null if the times of flash and disk are not known, or if the disk might not keep up.
    pub latency_mean_s: Option<Between>,
    /// Whether the flash was not full in the shadow, so that the hit ratio may rise further.
    pub filling: bool,
}

/// A predicted value, and the range in which the real one is expected in 95 of 100 cases (without flash only under policies that go by
/// single extents, such as `lru`).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Between {
    /// The value.
    pub value: f64,
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}
