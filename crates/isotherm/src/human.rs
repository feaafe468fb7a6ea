//! Figures for display. Exact ones are in `--json`.

/// Bytes in powers of 1024, three digits: `1.50 GiB`.
pub fn bytes(n: u64) -> String {
    scaled(
        n as f64,
        1024.0,
        &["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"],
    )
}

/// Bytes per second.
pub fn rate(n: f64) -> String {
    format!("{}/s", bytes(n.max(0.0) as u64))
}

/// Counts in powers of 1000: `12.3 k`.
pub fn count(n: f64) -> String {
    scaled(n, 1000.0, &["", "k", "M", "G", "T", "P"])
}

fn scaled(mut n: f64, step: f64, units: &[&str]) -> String {
    let mut unit = 0;
    // 999.5 would be printed as 1000.
    while n >= if n.fract() == 0.0 { step } else { step - 0.5 } && unit + 1 < units.len() {
        n /= step;
        unit += 1;
    }
    let digits = match n {
        _ if n.fract() == 0.0 && unit == 0 => 0,
        n if n < 9.995 => 2,
        n if n < 99.95 => 1,
        _ => 0,
    };
    format!("{n:.digits$} {}", units[unit])
        .trim_end()
        .to_owned()
}

/// A duration for display: `310 µs`, `4.20 ms`, `2 h 5 min`.
pub fn time(s: f64) -> String {
    if s <= 0.0 {
        return "0 s".into();
    }
    if s < 1e-3 {
        return format!("{:.0} µs", s * 1e6);
    }
    if s < 1.0 {
        return format!("{:.2} ms", s * 1e3);
    }
    if s < 90.0 {
        return format!("{s:.1} s");
    }
    let minutes = (s / 60.0).round() as u64;
    match (minutes / 1440, minutes / 60 % 24, minutes % 60) {
        (0, 0, m) => format!("{m} min"),
        (0, h, m) => format!("{h} h {m} min"),
        (d, h, _) => format!("{d} d {h} h"),
    }
}

/// A time in the past: `4 min ago`.
pub fn ago(s: f64) -> String {
    if s < 1.0 {
        return "just now".into();
    }
    format!("{} ago", time(s))
}

/// A share in percent; `-` if there is none.
pub fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |s| format!("{:.1} %", s * 100.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits_and_a_unit() {
        for (n, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.00 KiB"),
            (10 << 20, "10.0 MiB"),
            (1 << 30, "1.00 GiB"),
            ((1 << 40) - 1, "1.00 TiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(bytes(n), text);
        }
        assert_eq!(count(0.0), "0");
        assert_eq!(count(12_345.0), "12.3 k");
        assert_eq!(count(0.5), "0.50");
        assert_eq!(time(0.000_31), "310 µs");
        assert_eq!(time(7500.0), "2 h 5 min");
        assert_eq!(time(0.0), "0 s");
        assert_eq!([ago(0.0), ago(90.0)], ["just now", "2 min ago"]);
        assert_eq!(percent(Some(0.931)), "93.1 %");
        assert_eq!(percent(None), "-");
    }
}
