//! Rules for files: `MATCH=TIER`; the first rule that matches applies.
//!
//! `MATCH` is a pattern of the path (`*` matches any text, `?` one character; a pattern without `/` is compared with the last name), or one
//! of `size>N`, `size<N` (K, M, G, T), `age>N` (days since the last write), `owner:UID`. `TIER` is `fast`, `slow` or a number.

use crate::tree::{Facts, Tier};

/// The condition of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Match {
    /// The path, or its last name.
    Glob(Vec<u8>),
    /// The size is more than this number of bytes.
    Larger(u64),
    /// The size is less than this number of bytes.
    Smaller(u64),
    /// The last write is at least this number of days ago.
    Older(u64),
    /// The file belongs to this user.
    Owner(u32),
}

/// Files that match belong on a tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The condition.
    pub of: Match,
    /// The tier, counted from the fastest or the slowest.
    pub tier: WhichTier,
    /// The text of the rule.
    pub text: String,
}

/// A tier as users name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhichTier {
    /// The fastest.
    Fast,
    /// The slowest.
    Slow,
    /// By number, 0 the fastest.
    Number(Tier),
}

impl WhichTier {
    /// Parses the name of a tier.
    pub fn parse(text: &str) -> Option<WhichTier> {
        match text {
            "fast" => Some(WhichTier::Fast),
            "slow" => Some(WhichTier::Slow),
            n => n.parse().ok().map(WhichTier::Number),
        }
    }
    /// The number of the tier among `tiers`; `None` if there is no such tier.
    pub fn of(self, tiers: usize) -> Option<Tier> {
        match self {
            WhichTier::Fast => Some(0),
            WhichTier::Slow => (tiers as Tier).checked_sub(1),
            WhichTier::Number(n) => (usize::from(n) < tiers).then_some(n),
        }
    }
}

fn bytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match &text[digits.len()..] {
        "" => 0,
        "K" | "k" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

impl Rule {
    /// Parses `MATCH=TIER`.
    ///
    /// # Errors
    /// The message says what is wrong, and the right form.
    pub fn parse(text: &str) -> Result<Rule, String> {
        let form = "MATCH=TIER, as '*.iso=slow', 'size>1G=slow', 'age>30=slow', 'owner:1000=fast'";
        let wrong = |what: &str| format!("{text}: {what}: a rule is {form}");
        let (of, tier) = text.rsplit_once('=').ok_or_else(|| wrong("no tier"))?;
        let tier = WhichTier::parse(tier).ok_or_else(|| wrong("no such tier"))?;
        let number = |n: &str| bytes(n).ok_or_else(|| wrong("not a number"));
        let of = if let Some(n) = of.strip_prefix("size>") {
            Match::Larger(number(n)?)
        } else if let Some(n) = of.strip_prefix("size<") {
            Match::Smaller(number(n)?)
        } else if let Some(n) = of.strip_prefix("age>") {
            Match::Older(number(n)?)
        } else if let Some(n) = of.strip_prefix("owner:") {
            Match::Owner(n.parse().map_err(|_| wrong("not a user's number"))?)
        } else if of.is_empty() {
            return Err(wrong("nothing to match"));
        } else {
            Match::Glob(of.as_bytes().to_vec())
        };
        Ok(Rule {
            of,
            tier,
            text: text.to_owned(),
        })
    }
    /// Whether the rule matches this file; `now` is in seconds since 1970.
    pub fn matches(&self, path: &[u8], facts: &Facts, now: i64) -> bool {
        match &self.of {
            Match::Glob(pattern) if pattern.contains(&b'/') => glob(pattern, path),
            Match::Glob(pattern) => {
                glob(pattern, path.rsplit(|b| *b == b'/').next().unwrap_or(path))
            }
            Match::Larger(n) => facts.size > *n,
            Match::Smaller(n) => facts.size < *n,
            Match::Older(days) => {
                (now - facts.mtime.sec) / 86_400 >= i64::try_from(*days).unwrap_or(i64::MAX)
            }
            Match::Owner(uid) => facts.uid == *uid,
        }
    }
}

/// Whether `path` is the directory (or file) `of`, or below it.
pub(crate) fn is_below(path: &[u8], of: &[u8]) -> bool {
    of == b"." || path == of || (path.starts_with(of) && path.get(of.len()) == Some(&b'/'))
}

/// Whether the text matches the pattern. The time is at most proportional to the product of their lengths.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(&c) if c == b'?' || c == text[t] => {
                p += 1;
                t += 1;
            }
            _ => match star {
                Some((sp, st)) => {
                    star = Some((sp, st + 1));
                    p = sp + 1;
                    t = st + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|b| *b == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_and_matched() {
        let f = Facts {
            size: 2 << 30,
            uid: 7,
            ..Facts::default()
        };
        let yes = |r: &str, p: &str| {
            Rule::parse(r)
                .unwrap()
                .matches(p.as_bytes(), &f, 86_400 * 40)
        };
        assert!(yes("*.iso=slow", "a/b/x.iso") && !yes("*.iso=slow", "a/x.iso.txt"));
        assert!(yes("a/*/x?iso=slow", "a/b/x.iso") && !yes("b/*=slow", "a/b"));
        assert!(yes("size>1G=slow", "a") && !yes("size<1G=slow", "a"));
        assert!(yes("age>30=slow", "a") && !yes("age>41=slow", "a"));
        assert!(yes("owner:7=fast", "a") && !yes("owner:8=fast", "a"));
        assert_eq!(Rule::parse("x=1").unwrap().tier.of(3), Some(1));
        for bad in ["x", "x=", "=slow", "size>x=slow", "owner:x=fast", "x=no"] {
            assert!(Rule::parse(bad).is_err(), "{bad}");
        }
        assert_eq!(WhichTier::Number(5).of(2), None);
    }
}
