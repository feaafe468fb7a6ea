//! Prices of energy and power, by period of the day and by classes of customers with different power.

use serde::Deserialize;

use crate::check::{Check, SheetError};

/// The price table of an electricity supplier. Prices are in US dollars; another currency works if all prices are in it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tariff {
    /// Name of the table.
    pub name: String,
    /// A description in one line.
    pub description: String,
    /// The periods with prices of their own.
    #[serde(rename = "period")]
    pub periods: Vec<Period>,
    /// Classes by power, smallest first; the last one has no limit.
    #[serde(rename = "class")]
    pub classes: Vec<Class>,
}

/// A part of the day or the year.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Period {
    /// The name that reports show.
    pub name: String,
    /// Share of the energy that is used in this period, 0…1. The shares add up to 1.
    pub share: f64,
}

/// Prices of customers up to a mean power.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Class {
    /// The class applies below this mean power; `None` for the class without a limit.
    pub under_kw: Option<f64>,
    /// One price per period.
    pub energy_usd_per_kwh: Vec<f64>,
    /// The demand charge, one price per period.
    pub power_usd_per_kw: Vec<f64>,
}

const TARIFFS: &[(&str, &str)] = &[(
    "lipa-2013",
    include_str!("../../presets/tariffs/lipa-2013.toml"),
)];

impl Tariff {
    /// The tariff called `name`.
    ///
    /// # Errors
    /// There is no such tariff; the message lists the existing ones.
    pub fn preset(name: &str) -> Result<Tariff, SheetError> {
        match TARIFFS.iter().find(|t| t.0 == name) {
            Some((name, text)) => Tariff::parse(text, &format!("{name}.toml")),
            None => Err(SheetError::Value {
                file: name.to_owned(),
                field: "tariff".to_owned(),
                message: format!(
                    "no such tariff; there is {}, or give a TOML file",
                    Tariff::names().collect::<Vec<_>>().join(", ")
                ),
            }),
        }
    }

    /// Names of the tariffs in the tree.
    pub fn names() -> impl Iterator<Item = &'static str> {
        TARIFFS.iter().map(|t| t.0)
    }

    /// Reads and checks a tariff. `file` is its name in errors.
    ///
    /// # Errors
    /// [`SheetError::Syntax`] or [`SheetError::Value`] with the name of the field.
    pub fn parse(text: &str, file: &str) -> Result<Tariff, SheetError> {
        let t: Tariff = toml::from_str(text).map_err(|e| SheetError::syntax(file, &e))?;
        let c = Check {
            file,
            table: "period",
        };
        for p in &t.periods {
            c.within("share", p.share, 0.0, 1.0)?;
        }
        let sum: f64 = t.periods.iter().map(|p| p.share).sum();
        if (sum - 1.0).abs() > 1e-6 {
            return Err(c.bad("share", &format!("the shares add up to {sum} instead of 1")));
        }
        let c = Check {
            file,
            table: "class",
        };
        if t.classes.last().is_none_or(|k| k.under_kw.is_some()) {
            return Err(c.bad("under_kw", "the last class must have no limit"));
        }
        let mut least = 0.0;
        for (i, k) in t.classes.iter().enumerate() {
            if let Some(kw) = k.under_kw {
                c.at_least("under_kw", kw, least)?;
                least = kw;
            } else if i + 1 < t.classes.len() {
                return Err(c.bad("under_kw", "only the last class may be without a limit"));
            }
            for (field, prices) in [
                ("energy_usd_per_kwh", &k.energy_usd_per_kwh),
                ("power_usd_per_kw", &k.power_usd_per_kw),
            ] {
                if prices.len() != t.periods.len() {
                    return Err(c.bad(
                        field,
                        &format!(
                            "{} prices for {} periods: give one a period",
                            prices.len(),
                            t.periods.len()
                        ),
                    ));
                }
                for &p in prices {
                    c.at_least(field, p, 0.0)?;
                }
            }
        }
        Ok(t)
    }

    /// The class of a customer with this mean power.
    fn class(&self, mean_kw: f64) -> Option<&Class> {
        self.classes
            .iter()
            .find(|k| k.under_kw.is_none_or(|kw| mean_kw < kw))
    }

    /// The price of `kwh` for a customer of `mean_kw`. The energy is spread over the periods by their shares.
    pub fn energy_usd(&self, kwh: f64, mean_kw: f64) -> f64 {
        let Some(class) = self.class(mean_kw) else {
            return 0.0;
        };
        self.periods
            .iter()
            .zip(&class.energy_usd_per_kwh)
            .map(|(p, usd)| kwh * p.share * usd)
            .sum()
    }

    /// The demand charge: the mean power in each period at that period's price (GreenDM 7.1, assumption 2).
    pub fn power_usd(&self, mean_kw: f64) -> f64 {
        self.class(mean_kw).map_or(0.0, |k| {
            k.power_usd_per_kw.iter().map(|p| p * mean_kw).sum()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(got: f64, want: f64) {
        assert!((got - want).abs() < 1e-9, "{got} instead of {want}");
    }

    #[test]
    fn classes_and_shares_are_those_of_the_table() {
        let t = Tariff::preset("lipa-2013").unwrap();
        near(t.energy_usd(8.0, 0.1), 0.0863 * 6.0 + 0.1052 * 2.0);
        near(t.power_usd(6.9), 0.0);
        // A power of exactly 7 kW is not under 7 kW.
        near(t.power_usd(7.0), 7.0 * (48.78 + 5.94));
        near(
            t.energy_usd(8.0, 144.0),
            0.0191 * 3.0 + 0.0340 * 2.0 + 0.0317 * 3.0,
        );
        near(
            t.energy_usd(8.0, 145.0),
            0.0218 * 3.0 + 0.0446 * 2.0 + 0.0356 * 3.0,
        );
        near(t.power_usd(200.0), 200.0 * (28.76 + 8.13));
    }

    #[test]
    fn wrong_tariffs_name_the_field() {
        let good = include_str!("../../presets/tariffs/lipa-2013.toml");
        let fails = |text: &str, needle: &str| {
            let e = Tariff::parse(text, "mine.toml").unwrap_err().to_string();
            assert!(e.contains("mine.toml") && e.contains(needle), "{e}");
        };
        fails(&good.replace("share = 0.25", "share = 0.5"), "add up to");
        fails(&good.replace("0.0446, ", ""), "class.energy_usd_per_kwh");
        fails(&good.replace("under_kw = 145.0", ""), "only the last class");
        fails(
            &good.replace("under_kw = 145.0", "under_kw = 1.0"),
            "class.under_kw",
        );
        fails(&good.replace("48.78", "-1.0"), "class.power_usd_per_kw");
        fails(&good.replace("[[period]]", "[[perod]]"), "perod");
        assert!(
            Tariff::preset("lipa")
                .unwrap_err()
                .to_string()
                .contains("lipa-2013")
        );
    }
}
