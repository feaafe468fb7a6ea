//! Names of traces for labels: without directories and endings, as far as they stay different.

use std::path::Path;

/// Endings that say how a trace is stored.
const ENDINGS: [&str; 12] = [
    "zst", "gz", "xz", "bz2", "csv", "parquet", "spc", "trace", "txt", "bin", "log", "load",
];

/// The label of each name in the given order. Names that would get one label keep what tells them apart.
pub(super) fn labels<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let names: Vec<&str> = names.collect();
    let short: Vec<String> = names.iter().map(|n| short(n)).collect();
    let alike = |i: usize| (0..names.len()).any(|j| short[j] == short[i] && names[j] != names[i]);
    (0..names.len())
        .map(|i| {
            if alike(i) {
                names[i].to_owned()
            } else {
                short[i].clone()
            }
        })
        .collect()
}

/// The name of one trace.
pub(super) fn short(name: &str) -> String {
    // Generators, and several traces in one name, are no paths.
    if name.starts_with("gen:") || name.contains(['+', '\n']) {
        return name.to_owned();
    }
    let mut rest = Path::new(name);
    if let Some(file) = rest.file_name() {
        rest = Path::new(file);
    }
    while let (Some(stem), Some(end)) = (rest.file_stem(), rest.extension()) {
        if !end.to_str().is_some_and(|e| ENDINGS.contains(&e)) {
            break;
        }
        rest = Path::new(stem);
    }
    rest.to_str()
        .filter(|s| !s.is_empty())
        .unwrap_or(name)
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_short_and_differ() {
        let all = labels(
            [
                "/data/msr/web_0.csv.zst",
                "../msr/usr_0.csv",
                "gen:zipf,a=1/2",
            ]
            .into_iter(),
        );
        assert_eq!(all, ["web_0", "usr_0", "gen:zipf,a=1/2"]);
        // Two days of one server.
        let all = labels(["mon/web.csv", "tue/web.csv", "tue/web.csv"].into_iter());
        assert_eq!(all, ["mon/web.csv", "tue/web.csv", "tue/web.csv"]);
        assert_eq!(short("v1.5.parquet"), "v1.5");
        assert_eq!(short(""), "");
    }
}
