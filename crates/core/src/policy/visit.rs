//! A preset as its own type, for loops that are worth compiling per policy (hit-only runs: one dynamic call fewer a step).

use super::registry::{BuildError, build, set_all};
use super::{Arc, Cache, Fifo, Lfu, Lru, Policy, S3Fifo, Sieve, Smq, WTinyLfu};

/// What to do with a policy, whatever its type.
pub trait Visitor {
    /// What comes of it.
    type Out;
    /// Called once.
    fn visit<P: Policy + 'static>(self, policy: P) -> Self::Out;
}

/// Build a preset with parameters and hand it to the visitor: the plain caches as their own types, the others boxed.
///
/// # Errors
/// As [`build`].
pub fn with_preset<V: Visitor>(
    name: &str,
    params: &[(&str, f64)],
    visitor: V,
) -> Result<V::Out, BuildError> {
    macro_rules! plain {
        ($($preset:literal => $type:ty),* $(,)?) => {
            match name {
                $($preset => {
                    let mut policy = Cache::new($preset, <$type>::default());
                    set_all(&mut policy, params.iter().copied())?;
                    Ok(visitor.visit(policy))
                })*
                _ => Ok(visitor.visit(build(name, params.iter().copied())?)),
            }
        };
    }
    plain! {
        "arc" => Arc,
        "fifo" => Fifo,
        "lfu" => Lfu,
        "lru" => Lru,
        "s3-fifo" => S3Fifo,
        "sieve" => Sieve,
        "smq" => Smq,
        "w-tinylfu" => WTinyLfu,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::PRESETS;
    use alloc::vec::Vec;

    struct Names;
    impl Visitor for Names {
        type Out = (&'static str, Vec<(&'static str, f64)>);
        fn visit<P: Policy + 'static>(self, policy: P) -> Self::Out {
            (policy.name(), policy.params())
        }
    }

    #[test]
    fn visits_what_build_makes() {
        for p in PRESETS {
            let built = build(p.name, core::iter::empty()).unwrap();
            let want = (p.name, built.params());
            assert_eq!(with_preset(p.name, &[], Names), Ok(want));
        }
        assert!(with_preset("fifo", &[("nonsense", 1.0)], Names).is_err());
        assert!(with_preset("no-such", &[], Names).is_err());
    }
}
