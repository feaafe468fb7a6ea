//! Presets as concrete types, for loops that are compiled separately for each policy. This saves one dynamic call per step in hit-only
//! runs.

use super::build::{BuildError, ParamValue, build_with};
use alloc::string::String;

use super::{
    Arc, Cache, Clock, Fifo, Lfu, Lirs, Lru, Lru2, Policy, S3Fifo, Sieve, Smq, TwoQ, WTinyLfu,
};

/// An operation on a policy of any type.
pub trait Visitor {
    /// Result of the operation.
    type Out;
    /// Called once.
    fn visit<P: Policy + 'static>(self, policy: P) -> Self::Out;
}

/// Builds a preset with parameters and passes it to the visitor: plain caches as concrete types, the others (and plain
/// caches with another write mode) boxed.
///
/// # Errors
/// The same as for [`build_with`].
pub fn with_preset<V: Visitor>(
    name: &str,
    params: &[(&str, ParamValue<'_>)],
    visitor: V,
) -> Result<V::Out, BuildError> {
    macro_rules! plain {
        ($($preset:literal => $type:ty),* $(,)?) => {
            match name {
                $($preset if params.iter().all(|p| matches!(p.1, ParamValue::Number(_))) => {
                    let mut policy = Cache::new($preset, <$type>::default());
                    set_all(&mut policy, params)?;
                    Ok(visitor.visit(policy))
                })*
                _ => Ok(visitor.visit(build_with(name, params.iter().copied())?)),
            }
        };
    }
    plain! {
        "arc" => Arc,
        "clock" => Clock,
        "fifo" => Fifo,
        "lfu" => Lfu,
        "lirs" => Lirs,
        "lru" => Lru,
        "lru-2" => Lru2,
        "s3-fifo" => S3Fifo,
        "sieve" => Sieve,
        "smq" => Smq,
        "two-q" => TwoQ,
        "w-tinylfu" => WTinyLfu,
    }
}

fn set_all(policy: &mut dyn Policy, params: &[(&str, ParamValue<'_>)]) -> Result<(), BuildError> {
    for (k, v) in params {
        let set = match *v {
            ParamValue::Number(n) => policy.set(k, n),
            ParamValue::Name(n) => policy.set_name(k, n),
        };
        set.map_err(|e| BuildError::Param(String::from(*k), e))?;
    }
    Ok(())
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
            let built = build_with(p.name, core::iter::empty()).unwrap();
            let want = (p.name, built.params());
            assert_eq!(with_preset(p.name, &[], Names), Ok(want));
        }
        assert!(with_preset("fifo", &[("nonsense", ParamValue::Number(1.0))], Names).is_err());
        assert!(with_preset("no-such", &[], Names).is_err());
    }
}
