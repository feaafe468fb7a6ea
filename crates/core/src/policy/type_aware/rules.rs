//! Rules: they assign accesses to sub-policies, and shares of the fast tier to these.

use super::super::Policy;
use super::super::build::{ParamValue, build_with};
use alloc::boxed::Box;
use alloc::vec::Vec;

pub(super) const RULES_MAX: usize = 16;
pub(super) const FORM: &str = "SELECTOR:POLICY:SHARE, as class/1-7:cache-ondemand:20, bytes/0-8G:slow:0, all:hot-dst-dynamic:50 or class/8:greendm/PT=2:10, up to 16 times and 100 % together";

/// The accesses to which a rule applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Selector {
    All,
    Classes(u8, u8),
    Bytes(u64, u64),
}

/// The sub-policy of a rule: one of those of Loris, which share slots, or a preset with its own quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    HotDst,
    Cache,
    ColdPlain,
    ColdDynamic,
    Slow,
    Preset,
}

pub(super) const KINDS: [(&str, Kind); 5] = [
    ("hot-dst-dynamic", Kind::HotDst),
    ("cache-ondemand", Kind::Cache),
    ("cold-dst-plain", Kind::ColdPlain),
    ("cold-dst-dynamic", Kind::ColdDynamic),
    ("slow", Kind::Slow),
];

/// A rule in its textual form.
pub(super) struct Rule {
    pub(super) selector: Selector,
    pub(super) kind: Kind,
    pub(super) percent: u32,
    /// The preset, if the sub-policy is one.
    pub(super) policy: Option<Box<dyn Policy>>,
}

impl Rule {
    pub(super) fn parse(text: &str) -> Option<Rule> {
        let mut parts = text.split(':');
        let (selector, policy, share) = (parts.next()?, parts.next()?, parts.next()?);
        let selector = match selector.split_once('/') {
            None if selector == "all" => Selector::All,
            Some(("class", r)) => {
                let (a, b) = r.split_once('-').unwrap_or((r, r));
                Selector::Classes(a.parse().ok()?, b.parse().ok().filter(|b| *b < 64)?)
            }
            Some(("bytes", r)) => {
                let (a, b) = r.split_once('-')?;
                Selector::Bytes(bytes(a)?, bytes(b)?)
            }
            _ => return None,
        };
        let percent = share.parse().ok().filter(|p| *p <= 100)?;
        if parts.next().is_some() {
            return None;
        }
        let known = KINDS.iter().find(|k| k.0 == policy);
        Some(Rule {
            selector,
            kind: known.map_or(Kind::Preset, |k| k.1),
            percent,
            policy: match known {
                Some(_) => None,
                None => Some(preset(policy)?),
            },
        })
    }
}

/// `NAME` or `NAME/KEY=VALUE/…`: any preset but this one.
fn preset(text: &str) -> Option<Box<dyn Policy>> {
    let mut parts = text.split('/');
    let name = parts.next().filter(|n| *n != "type-aware")?;
    let params: Option<Vec<_>> = parts.map(|p| p.split_once('=')).collect();
    let value = |v: &'_ str| v.parse().ok().filter(|n: &f64| n.is_finite());
    let params = params?.into_iter().map(|(k, v)| {
        let number = value(v).map(ParamValue::Number);
        (k, number.unwrap_or(ParamValue::Name(v)))
    });
    build_with(name, params).ok()
}

impl Selector {
    pub(super) fn matches(self, class: u8, start: u64) -> bool {
        match self {
            Selector::All => true,
            Selector::Classes(a, b) => (a..=b).contains(&class),
            Selector::Bytes(a, b) => (a..b).contains(&start),
        }
    }
}

fn bytes(text: &str) -> Option<u64> {
    let shift = match text.as_bytes().last()? {
        b'K' => 10,
        b'M' => 20,
        b'G' => 30,
        b'T' => 40,
        _ => 0,
    };
    let digits = &text[..text.len() - usize::from(shift > 0)];
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read() {
        let r = Rule::parse("bytes/4K-1G:cold-dst-plain:30").unwrap();
        assert_eq!(
            (r.selector, r.kind, r.percent),
            (Selector::Bytes(4096, 1 << 30), Kind::ColdPlain, 30)
        );
        let r = Rule::parse("class/7:slow:0").unwrap();
        assert_eq!((r.selector, r.kind), (Selector::Classes(7, 7), Kind::Slow));
        let r = Rule::parse("all:greendm/PT=2/LT=8:30").unwrap();
        assert_eq!(r.kind, Kind::Preset);
        let policy = r.policy.expect("a preset");
        assert_eq!(policy.name(), "greendm");
        assert!(policy.params().contains(&("PT", 2.0)));
        for wrong in [
            "",
            "all",
            "all:slow",
            "all:fast:3",
            "all:slow:101",
            "class/70:slow:1",
            "bytes/9:slow:1",
            "all:slow:1:2",
            "all:type-aware:10",
            "all:greendm/PT:10",
            "all:greendm/PT=0:10",
            "all:greendm/NO=1:10",
        ] {
            assert!(Rule::parse(wrong).is_none(), "{wrong}");
        }
    }
}
