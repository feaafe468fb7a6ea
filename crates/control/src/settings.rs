//! A volume's description: its content for display, and the changes that `isotherm set` writes to it, so that they hold after the next
//! start.

use isotherm_answers::Member;
use isotherm_live::VolumeConfig;

/// Why nothing is set on a volume that is only read: parameters and the policy decide about writes and moves, of which it has none.
pub const READ_ONLY: &str = "the volume is served read-only, so nothing is moved and nothing is set, neither now nor for the next start: serve it without --read-only first";

/// Stores a knob of the engine, or a numeric parameter of the policy.
pub fn keep_value(config: &mut VolumeConfig, key: &str, value: f64) {
    if !config.io.keep_knob(key, value) {
        config.policy = with_param(&config.policy, key, value);
    }
}

/// `name,k=v` with one parameter added or replaced.
pub fn with_param(policy: &str, key: &str, value: f64) -> String {
    let kept = policy
        .split(',')
        .filter(|p| p.split_once('=').is_none_or(|(k, _)| k.trim() != key));
    let mut parts: Vec<String> = kept.map(str::to_owned).collect();
    parts.push(format!("{key}={value}"));
    parts.join(",")
}

/// The same for parameters whose values are names. All values of a name are replaced.
pub fn with_words(policy: &str, words: &[(String, String)]) -> String {
    let is_named = |k: &str| words.iter().any(|w| w.0 == k.trim());
    let kept = policy
        .split(',')
        .filter(|p| p.split_once('=').is_none_or(|(k, _)| !is_named(k)));
    let mut parts: Vec<String> = kept.map(str::to_owned).collect();
    parts.extend(words.iter().map(|(k, v)| format!("{k}={v}")));
    parts.join(",")
}

/// The members as the description has them, with the sizes of their devices.
pub fn members(config: &VolumeConfig, sizes: &[Option<u64>]) -> Vec<Member> {
    let one = |(n, m): (usize, &isotherm_live::MemberConfig)| Member {
        path: m.path.to_string_lossy().into_owned(),
        tail: m.tail.as_ref().map(|t| t.to_string_lossy().into_owned()),
        tier: m.tier,
        bytes: (sizes.get(n).copied().flatten().into_iter())
            .chain(m.size.map(|s| s.0))
            .min(),
        paced: m.paced.clone(),
        sheet: m.sheet.clone(),
        standby_s: m.standby_s,
        removed: m.removed,
        spare: m.spare.as_ref().map(|s| s.to_string_lossy().into_owned()),
        asleep: None,
        sleep: None,
        drives: None,
    };
    config.members.iter().enumerate().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_replaced() {
        let w = |k: &str, v: &str| (k.to_owned(), v.to_owned());
        assert_eq!(
            with_param("greendm,PT=2,TW=9", "PT", 3.0),
            "greendm,TW=9,PT=3"
        );
        let mode = [w("write-mode", "read-only")];
        assert_eq!(with_words("lru", &mode), "lru,write-mode=read-only");
        assert_eq!(
            with_words("smq,write-mode=write-back,dirty=0.2", &mode),
            "smq,dirty=0.2,write-mode=read-only"
        );
        let rules = [w("rule", "all:slow:0"), w("rule", "class/1:slow:0")];
        assert_eq!(
            with_words("type-aware,rule=a,rule=b,write-mode=write-back", &rules),
            "type-aware,write-mode=write-back,rule=all:slow:0,rule=class/1:slow:0"
        );
    }
}
