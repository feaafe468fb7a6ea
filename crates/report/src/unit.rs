//! Units of the drawn quantities: the choice of a prefix, and the format of a value.

use serde::Serialize;

/// How a quantity is scaled and formatted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Powers of 1024: KiB, MiB, GiB.
    Binary,
    /// SI prefixes before the symbol: mW, kJ.
    Si,
    /// ns to s, then minutes, hours, days. The base is the second.
    Time,
    /// `k`, `M`, `G` after the number: 20k requests.
    Count,
    /// A share of 1, written in percent.
    Percent,
    /// An amount in US dollars.
    Dollar,
    /// Without scaling.
    Plain,
}

/// The unit of a quantity. Values are always given in the base unit: bytes, seconds, watts, a share of 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Unit {
    /// How values are scaled.
    pub kind: Kind,
    /// The symbol after the number, without a prefix; empty for a bare number.
    pub symbol: &'static str,
}

const BINARY: [(f64, &str); 6] = [
    (1.0, ""),
    (1024.0, "Ki"),
    (1_048_576.0, "Mi"),
    (1_073_741_824.0, "Gi"),
    (1_099_511_627_776.0, "Ti"),
    (1_125_899_906_842_624.0, "Pi"),
];
const SI: [(f64, &str); 9] = [
    (1e-9, "n"),
    (1e-6, "µ"),
    (1e-3, "m"),
    (1.0, ""),
    (1e3, "k"),
    (1e6, "M"),
    (1e9, "G"),
    (1e12, "T"),
    (1e15, "P"),
];
const TIME: [(f64, &str); 7] = [
    (1e-9, "ns"),
    (1e-6, "µs"),
    (1e-3, "ms"),
    (1.0, "s"),
    (60.0, "min"),
    (3600.0, "h"),
    (86_400.0, "d"),
];

impl Unit {
    /// A unit of that kind.
    pub const fn new(kind: Kind, symbol: &'static str) -> Unit {
        Unit { kind, symbol }
    }
    /// Bytes.
    pub const BYTES: Unit = Unit::new(Kind::Binary, "B");
    /// Bytes per second.
    pub const BYTES_PER_S: Unit = Unit::new(Kind::Binary, "B/s");
    /// Seconds.
    pub const SECONDS: Unit = Unit::new(Kind::Time, "s");
    /// Watts.
    pub const WATTS: Unit = Unit::new(Kind::Si, "W");
    /// Joules.
    pub const JOULES: Unit = Unit::new(Kind::Si, "J");
    /// US dollars.
    pub const USD: Unit = Unit::new(Kind::Dollar, "$");
    /// A share of 1.
    pub const SHARE: Unit = Unit::new(Kind::Percent, "%");
    /// Device life, in units of 10⁻⁶ of it (GreenDM 6.1.5).
    pub const EU: Unit = Unit::new(Kind::Count, "eu");
    /// Disk cylinders.
    pub const CYLINDERS: Unit = Unit::new(Kind::Count, "cylinders");
    /// Requests per second.
    pub const IOPS: Unit = Unit::new(Kind::Count, "requests/s");
    /// A count of things that the axis names.
    pub const COUNT: Unit = Unit::new(Kind::Count, "");
    /// A number without prefix.
    pub const PLAIN: Unit = Unit::new(Kind::Plain, "");

    /// The step for values up to `max`: the divisor, and the unit with its prefix. All values of an axis or column use one step.
    pub fn step(self, max: f64) -> (f64, String) {
        let pick = |steps: &[(f64, &'static str)], least: usize| {
            let max = max.abs();
            let fits = |s: &&(f64, &str)| max >= s.0 * 0.999_999;
            steps
                .iter()
                .rev()
                .find(fits)
                .copied()
                .unwrap_or(if max > 0.0 { steps[0] } else { steps[least] })
        };
        match self.kind {
            Kind::Binary => {
                let (f, p) = pick(&BINARY, 0);
                (f, format!("{p}{}", self.symbol))
            }
            Kind::Si => {
                let (f, p) = pick(&SI, 3);
                (f, format!("{p}{}", self.symbol))
            }
            Kind::Time => {
                // 90 min reads better than 1.5 h.
                let enough = |s: &&(f64, &'static str)| max.abs() >= 2.0 * s.0 && s.0 > 1.0;
                let long = TIME.iter().rev().find(enough).copied();
                let (f, p) = long.unwrap_or_else(|| {
                    let (f, p) = pick(&TIME, 3);
                    if f > 1.0 { TIME[3] } else { (f, p) }
                });
                (f, p.to_owned())
            }
            Kind::Percent => (0.01, "%".to_owned()),
            Kind::Count | Kind::Dollar | Kind::Plain => (1.0, self.symbol.to_owned()),
        }
    }

    /// A value as readable text: `1.5 GiB`, `12.3 ms`, `20.1k requests/s`, `$122.51`; `–` for NaN and infinity.
    pub fn text(self, value: f64) -> String {
        if !value.is_finite() {
            return "–".to_owned();
        }
        let spaced = |number: String, unit: &str| {
            if unit.is_empty() {
                number
            } else {
                format!("{number} {unit}")
            }
        };
        match self.kind {
            Kind::Dollar => format!(
                "{}${}",
                if value < 0.0 { "-" } else { "" },
                dollars(value.abs())
            ),
            Kind::Percent => format!("{} %", digits(value * 100.0)),
            Kind::Count if value.abs() >= 1e4 => {
                let (f, p) = SI
                    .iter()
                    .rev()
                    .find(|s| value.abs() >= s.0)
                    .copied()
                    .unwrap_or((1.0, ""));
                spaced(format!("{}{p}", digits(value / f)), self.symbol)
            }
            Kind::Count | Kind::Plain => spaced(digits(value), self.symbol),
            Kind::Binary | Kind::Si | Kind::Time => {
                let (f, unit) = self.step(value);
                spaced(digits(value / f), &unit)
            }
        }
    }

    /// A tick of an axis whose label names the unit after [`Unit::step`], or of a logarithmic axis (`log`) that covers many steps.
    pub fn tick(self, value: f64, factor: f64, log: bool) -> String {
        match self.kind {
            Kind::Dollar | Kind::Count => {
                let (f, p) = SI
                    .iter()
                    .rev()
                    .find(|s| s.0 >= 1.0 && value.abs() >= s.0 * 0.999_999)
                    .copied()
                    .unwrap_or((1.0, ""));
                let sign = if self.kind == Kind::Dollar { "$" } else { "" };
                format!("{sign}{}{p}", digits(value / f))
            }
            _ if log => self.text(value),
            _ => digits(value / factor),
        }
    }
}

/// Three significant digits; integers are written as integers, and without an exponent within a reasonable range.
pub fn digits(v: f64) -> String {
    let a = v.abs();
    if a == 0.0 {
        "0".to_owned()
    } else if !(1e-4..1e15).contains(&a) {
        format!("{v:.2e}")
    } else if a >= 99.95 {
        format!("{v:.0}")
    } else {
        let decimals = (2 - a.log10().floor() as i32).clamp(0, 7) as usize;
        let text = format!("{v:.decimals$}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    }
}

fn dollars(v: f64) -> String {
    if v == 0.0 || v >= 1.0 {
        group(&format!("{v:.2}"))
    } else {
        digits(v)
    }
}

/// Inserts a thin space every three digits before the decimal point.
pub fn group(number: &str) -> String {
    let (sign, rest) = number.strip_prefix('-').map_or(("", number), |r| ("-", r));
    let whole = rest.find('.').unwrap_or(rest.len());
    let mut text = sign.to_owned();
    for (i, c) in rest.chars().enumerate() {
        if i > 0 && i < whole && (whole - i) % 3 == 0 && whole > 4 {
            text.push('\u{202f}');
        }
        text.push(c);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_for_people() {
        for (unit, value, text) in [
            (Unit::BYTES, 1.5 * 1_073_741_824.0, "1.5 GiB"),
            (Unit::BYTES, 512.0, "512 B"),
            (Unit::BYTES_PER_S, 1_048_576.0, "1 MiB/s"),
            (Unit::SECONDS, 0.012_34, "12.3 ms"),
            (Unit::SECONDS, 5400.0, "90 min"),
            (Unit::SECONDS, 9000.0, "2.5 h"),
            (Unit::SECONDS, 90.0, "90 s"),
            (Unit::SECONDS, 0.0, "0 s"),
            (Unit::WATTS, 0.5, "500 mW"),
            (Unit::JOULES, 12_300.0, "12.3 kJ"),
            (Unit::IOPS, 20_100.0, "20.1k requests/s"),
            (Unit::IOPS, 1234.0, "1234 requests/s"),
            (Unit::SHARE, 0.123_4, "12.3 %"),
            (Unit::USD, 122.508_2, "$122.51"),
            (Unit::USD, 1_234_567.0, "$1\u{202f}234\u{202f}567.00"),
            (Unit::USD, 0.000_51, "$0.00051"),
            (Unit::COUNT, f64::NAN, "–"),
        ] {
            assert_eq!(unit.text(value), text, "{unit:?} {value}");
        }
    }

    #[test]
    fn an_axis_has_one_unit() {
        assert_eq!(Unit::BYTES.step(3.0e9), (1_073_741_824.0, "GiB".to_owned()));
        assert_eq!(Unit::SECONDS.step(600.0), (60.0, "min".to_owned()));
        assert_eq!(Unit::WATTS.step(0.0), (1.0, "W".to_owned()));
        assert_eq!(Unit::COUNT.step(1e6), (1.0, String::new()));
        assert_eq!(Unit::COUNT.tick(20_000.0, 1.0, false), "20k");
        assert_eq!(Unit::SECONDS.tick(0.001, 1.0, true), "1 ms");
        assert_eq!(Unit::SHARE.tick(0.25, 0.01, false), "25");
    }
}
