//! Errors of the system in words.

use std::io;

/// What Rust puts before the number of an error.
const NUMBER: &str = " (os error ";

/// The system's reason, without the number that Rust appends.
pub fn reason(error: &io::Error) -> String {
    let text = without_numbers(&error.to_string());
    match error.raw_os_error() {
        Some(_) => text.to_lowercase(),
        None => text,
    }
}

/// A text for people without the numbers of system errors that stand in it.
///
/// ```
/// let text = isotherm_paths::without_numbers("v: File too large (os error 27): choose another");
/// assert_eq!(text, "v: File too large: choose another");
/// ```
pub fn without_numbers(text: &str) -> String {
    let mut parts = text.split(NUMBER);
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.trim_start_matches(|c: char| c.is_ascii_digit());
        match rest.strip_prefix(')') {
            Some(rest) if rest.len() + 1 < part.len() => out.push_str(rest),
            _ => out.extend([NUMBER, part]),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_carry_no_number() {
        let denied = io::Error::from_raw_os_error(13);
        assert_eq!(reason(&denied), "permission denied");
        let told = io::Error::other(format!("Volume v: {denied}: give another"));
        assert_eq!(reason(&told), "Volume v: Permission denied: give another");
        for kept in ["a (os error x)", "a (os error )", "a (os error 1", ""] {
            assert_eq!(without_numbers(kept), kept);
        }
        let two = format!("{denied}; {denied}");
        assert_eq!(
            without_numbers(&two),
            "Permission denied; Permission denied"
        );
    }
}
