//! What commands need of a server of any version.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::{Device, Failure, Health, Params, State};

/// The keys of `status` that commands need to do their work. A server of another version may lack some, or say them in words that only later
/// programs know: those are `None`, and the others are there.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Brief {
    /// Whether it is served.
    #[serde(deserialize_with = "if_known")]
    pub state: Option<State>,
    /// The volume's size.
    #[serde(deserialize_with = "if_known")]
    pub volume_bytes: Option<u64>,
    /// Size of an extent, bytes.
    #[serde(deserialize_with = "if_known")]
    pub extent_bytes: Option<u64>,
    /// The policy with its parameters.
    #[serde(deserialize_with = "if_known")]
    pub policy: Option<String>,
    /// Parameters of the policy and knobs of the engine.
    #[serde(deserialize_with = "if_known")]
    pub params: Option<Params>,
    /// Whether members are absent.
    #[serde(deserialize_with = "if_known")]
    pub degraded: Option<bool>,
    /// Their places.
    #[serde(deserialize_with = "if_known")]
    pub missing_members: Option<Vec<u8>>,
    /// Why writes are refused.
    #[serde(deserialize_with = "if_known")]
    pub failure: Option<Failure>,
    /// How the volume is.
    #[serde(deserialize_with = "if_known")]
    pub health: Option<Health>,
    /// The front ends at work.
    #[serde(deserialize_with = "if_known")]
    pub front_ends: Option<Vec<String>>,
    /// The block device.
    #[serde(deserialize_with = "if_known")]
    pub device: Option<Device>,
    /// The process that serves it.
    #[serde(deserialize_with = "if_known")]
    pub pid: Option<u32>,
}

fn if_known<'a, D: Deserializer<'a>, T: DeserializeOwned>(from: D) -> Result<Option<T>, D::Error> {
    Ok(serde_json::from_value(Value::deserialize(from)?).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_one_version_lacks_hides_nothing_else() {
        let text = include_str!("../samples/status.json");
        let whole: Value = serde_json::from_str(text).expect("JSON");
        let read = |v: &Value| crate::read::<Brief>(v).expect("an answer");
        let all = read(&whole);
        let status = crate::read_status(&whole).expect("a status");
        let served = status.served.expect("a served volume");
        assert_eq!(
            (all.pid, all.params),
            (Some(served.pid), Some(served.params))
        );
        assert_eq!(all.policy.as_deref(), Some(&*status.policy));
        assert_eq!(all.extent_bytes, Some(status.extent_bytes));
        for key in whole.as_object().expect("keys").keys() {
            let (mut less, mut other) = (whole.clone(), whole.clone());
            less.as_object_mut().expect("keys").remove(key);
            other[key] = json!({"of a later": "version"});
            for v in [less, other] {
                let brief = read(&v);
                assert_eq!(brief.volume_bytes.is_none(), key == "volume_bytes");
                assert_eq!(brief.state.is_none(), key == "state");
                assert_eq!(brief.health.is_none(), key == "health");
            }
        }
    }
}
