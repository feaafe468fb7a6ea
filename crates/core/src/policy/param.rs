//! Range checks of parameters, shared by all policies, and how they fail.

use alloc::string::String;

/// Reason why a parameter could not be set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParamError {
    /// There is no parameter of that name; holds the nearest name.
    Unknown(String),
    /// The value is out of range; holds the valid range.
    Range(&'static str),
    /// There is no value of that name; holds the valid names and the nearest one.
    Value(&'static str, String),
}

/// Returns `value` if it is in `lo..=hi`.
///
/// # Errors
/// `value` is outside of the range; the error gives the range as `what`.
pub fn within(value: f64, lo: f64, hi: f64, what: &'static str) -> Result<f64, ParamError> {
    if (lo..=hi).contains(&value) {
        Ok(value)
    } else {
        Err(ParamError::Range(what))
    }
}

/// Like [`within`], for whole numbers.
///
/// # Errors
/// `value` is outside of the range, or no whole number; the error gives the range as `what`.
pub fn whole(value: f64, lo: f64, hi: f64, what: &'static str) -> Result<u64, ParamError> {
    within(value, lo, hi, what).and_then(|v| {
        if v % 1.0 == 0.0 {
            Ok(v as u64)
        } else {
            Err(ParamError::Range(what))
        }
    })
}
