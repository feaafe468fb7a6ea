//! How a recording holds that the user wants ranges of extents on flash: as some calls [`Call::Set`] whose names begin with [`WARM`] and go on
//! with ranges, `A-B,C-D`, each without its end. The last of these calls has the value 1, the ones before it have 0.

use crate::Call;
use crate::code::KEY_MAX;
use std::ops::Range;

/// The first bytes of such a name; no parameter has them.
pub const WARM: &str = "warm:";

/// The calls for these ranges; one if there are none.
pub fn warm_calls(ranges: &[Range<u32>]) -> Vec<Call> {
    let (mut calls, mut key) = (Vec::new(), String::from(WARM));
    let set = |key, value| Call::Set { key, value };
    for r in ranges {
        let text = format!("{}-{}", r.start, r.end);
        if key.len() + 1 + text.len() > KEY_MAX {
            let full = std::mem::replace(&mut key, String::from(WARM));
            calls.push(set(full, 0.0));
        }
        if key.len() > WARM.len() {
            key.push(',');
        }
        key.push_str(&text);
    }
    calls.push(set(key, 1.0));
    calls
}

/// The ranges in such a name; `None`: it is another name. What is no range is left out.
pub fn warm_ranges(key: &str) -> Option<Vec<Range<u32>>> {
    let range = |text: &str| {
        let (from, to) = text.split_once('-')?;
        Some(from.parse().ok()?..to.parse().ok()?)
    };
    Some(
        key.strip_prefix(WARM)?
            .split(',')
            .filter_map(range)
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_come_back() {
        let many: Vec<Range<u32>> = (0..100)
            .map(|i| u32::MAX - 300 + i * 3..u32::MAX - 299 + i * 3)
            .collect();
        for ranges in [Vec::new(), many] {
            let mut back = Vec::new();
            let calls = warm_calls(&ranges);
            for (i, call) in calls.iter().enumerate() {
                let Call::Set { key, value } = call else {
                    panic!("{call:?}");
                };
                assert!(key.len() <= KEY_MAX);
                assert_eq!(*value > 0.0, i + 1 == calls.len());
                back.extend(warm_ranges(key).expect("one of ours"));
            }
            assert_eq!(back, ranges);
        }
        assert_eq!(warm_ranges("clean"), None);
        assert_eq!(warm_ranges("warm:x,1-,-,3-4,6-7"), Some(vec![3..4, 6..7]));
    }
}
