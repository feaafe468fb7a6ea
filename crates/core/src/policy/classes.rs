//! Classes of data and their priorities (DSS, Tables 3 and 6; docs/policy-rules.md section 9).

/// The lowest priority; 0 is the highest.
pub const LOWEST: u8 = 12;

/// Priority of a class. For database classes, DSS 5.7 gives tables, logs and temporary tables the priority of metadata, and
/// indexes the lowest; classes that no table names count as unclassified.
pub const fn priority(class: u8) -> u8 {
    match class {
        1..=7 | 19..=24 => 0,
        8..=18 => class - 7,
        _ => LOWEST,
    }
}

/// File-system metadata: superblock … journal.
pub fn is_metadata(class: u8) -> bool {
    (1..=7).contains(&class)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_3() {
        assert!((1..=7).all(|c| priority(c) == 0));
        assert_eq!([8, 9, 12, 13, 18, 0].map(priority), [1, 2, 5, 6, 11, 12]);
        assert_eq!([19, 24, 25, 63].map(priority), [0, 0, 12, 12]);
    }
}
