//! Parameters: range checks that every policy makes alike.

use super::ParamError;

/// `value` if it lies in `lo..=hi`; else the error says `what` does.
pub fn within(value: f64, lo: f64, hi: f64, what: &'static str) -> Result<f64, ParamError> {
    if (lo..=hi).contains(&value) {
        Ok(value)
    } else {
        Err(ParamError::Range(what))
    }
}

/// The same for whole numbers.
pub fn whole(value: f64, lo: f64, hi: f64, what: &'static str) -> Result<u64, ParamError> {
    within(value, lo, hi, what).and_then(|v| {
        if v % 1.0 == 0.0 {
            Ok(v as u64)
        } else {
            Err(ParamError::Range(what))
        }
    })
}
