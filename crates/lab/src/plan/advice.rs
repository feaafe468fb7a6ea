//! One sentence of advice, and one on what it does not know.
//!
//! The rule: the smallest flash that is as fast on average as the largest one of the table but for [`ENOUGH`]; the disk alone if even that
//! saves less than this part of its latency; flash alone if it costs no more than what was chosen.

use super::windows::Windows;
use super::{Kind, Plan, Row};

/// A smaller difference of the mean latency is not worth flash.
const ENOUGH: f64 = 0.10;

/// Fills in the advice.
pub(super) fn advise(plan: &mut Plan, windows: &Windows) {
    let saved = |run: usize, than: usize| {
        let (a, b) = (&plan.rows[run], &plan.rows[than]);
        let share = 1.0 - a.latency_mean_s / b.latency_mean_s.max(1e-12);
        windows.saved(run, than).unwrap_or((share, f64::NAN))
    };
    let hybrids = 1..plan.rows.len() - 1;
    let largest = hybrids.end - 1;
    let mut chosen = 0;
    if saved(largest, 0).0 >= ENOUGH {
        let near = |i: &usize| saved(largest, *i).0 < ENOUGH;
        chosen = hybrids.clone().find(near).unwrap_or(largest);
    }
    let flash = plan.rows.len() - 1;
    let usd = |i: usize| plan.rows[i].money.map(|m| m.total_usd);
    let dearer = usd(flash).zip(usd(chosen)).map(|(f, c)| f - c);
    if dearer.is_some_and(|d| d <= 0.0) && saved(flash, chosen).0 >= 0.0 {
        chosen = flash;
    }
    let (share, error) = saved(chosen.max(1).min(flash), 0);
    let mut clauses = vec![sentence(plan, chosen, share, error)];
    // A smaller size that the parts of the trace cannot tell from the chosen one.
    let close = |i: &usize| {
        let (gain, error) = saved(chosen, *i);
        gain - error < ENOUGH
    };
    if plan.rows[chosen].kind == Kind::Hybrid
        && let Some(smaller) = (1..chosen).find(close)
    {
        clauses.push(format!("{} may do as well", plan.rows[smaller].name));
    }
    if plan.rows[chosen].kind == Kind::Hybrid
        && chosen < largest
        && plan.rows[largest].flash_drives == plan.rows[chosen].flash_drives
    {
        let room = u64::from(plan.rows[chosen].flash_drives) * plan.fast.capacity_bytes;
        clauses.push(format!(
            "what is bought holds {}, so more costs nothing",
            bytes(room)
        ));
    }
    if let Some(d) = dearer.filter(|_| chosen != flash) {
        clauses.push(format!(
            "flash alone would take {} and cost {} more",
            time(plan.rows[flash].latency_mean_s),
            dollars(d)
        ));
    }
    plan.advised = chosen;
    plan.advice = clauses.join("; ") + ".";
    plan.uncertainty = uncertainty(plan, error);
}

fn sentence(plan: &Plan, chosen: usize, share: f64, error: f64) -> String {
    let (row, disk) = (&plan.rows[chosen], &plan.rows[0]);
    let percent = if error.is_nan() {
        format!("{:.0} % less", share * 100.0)
    } else {
        let error = error * 100.0;
        let digits = usize::from(error < 1.0);
        format!("{:.digits$} % ± {error:.digits$} % less", share * 100.0)
    };
    let what = match row.kind {
        Kind::DiskAlone => {
            let best = &plan.rows[plan.rows.len() - 2];
            return format!(
                "Stay with the disk alone, which takes {} on average: {} of flash would take {} ({percent})",
                time(disk.latency_mean_s),
                best.name,
                time(best.latency_mean_s),
            );
        }
        Kind::Hybrid => format!("{} of flash ({})", row.name, bytes(row.flash_bytes)),
        Kind::FlashAlone => format!("flash alone ({})", bytes(row.flash_bytes)),
    };
    let money = row.money.zip(disk.money).map_or(String::new(), |(a, b)| {
        let more = a.total_usd - b.total_usd;
        let word = if more < 0.0 { "less" } else { "more" };
        format!(
            ", for {} {word} in {} years",
            dollars(more.abs()),
            plan.years
        )
    });
    let worn = worn(plan, row);
    format!(
        "Take {what}: {} on average, where the disk alone takes {} ({percent}){money}{worn}",
        time(row.latency_mean_s),
        time(disk.latency_mean_s),
    )
}

/// A remark on flash that does not last.
fn worn(plan: &Plan, row: &Row) -> String {
    match row.flash_life_years {
        Some(life) if life < plan.years => {
            format!(", with flash that is worn after {life:.1} years")
        }
        _ => String::new(),
    }
}

fn uncertainty(plan: &Plan, error: f64) -> String {
    let parts = if error.is_nan() {
        "the trace has too few requests for an interval".to_owned()
    } else {
        "± is the 95 % interval over ten parts of the trace".to_owned()
    };
    let prices = if plan.rows.iter().any(|r| r.money.is_none()) {
        "; without prices nothing is said about money"
    } else {
        "; prices and electricity are as stated"
    };
    format!(
        "Uncertainty: {parts} of {}, which is assumed to be typical; the models meet the figures from which their sheets \
         were made within 10 %, and docs/models.md says how far off they are elsewhere{prices}.",
        span(plan.trace_s)
    )
}

/// A time with three digits.
fn time(s: f64) -> String {
    let (value, unit) = match s {
        s if s < 1e-3 => (s * 1e6, "µs"),
        s if s < 1.0 => (s * 1e3, "ms"),
        s => (s, "s"),
    };
    let digits = if value < 10.0 {
        2
    } else {
        usize::from(value < 100.0)
    };
    format!("{value:.digits$} {unit}")
}

fn span(s: f64) -> String {
    match s {
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7200.0 => format!("{:.0} minutes", s / 60.0),
        s if s < 172_800.0 => format!("{:.1} hours", s / 3600.0),
        s => format!("{:.1} days", s / 86_400.0),
    }
}

fn dollars(usd: f64) -> String {
    if usd < 100.0 {
        format!("${usd:.2}")
    } else {
        format!("${usd:.0}")
    }
}

fn bytes(n: u64) -> String {
    let n = n as f64;
    let (value, unit) = match n {
        n if n < 1e6 => (n / 1e3, "kB"),
        n if n < 1e9 => (n / 1e6, "MB"),
        n if n < 1e12 => (n / 1e9, "GB"),
        n => (n / 1e12, "TB"),
    };
    format!("{value:.1} {unit}")
}

#[cfg(test)]
mod tests {
    use super::super::Money;
    use super::*;

    fn row(kind: Kind, name: &str, ms: f64, usd: f64) -> Row {
        Row {
            name: name.to_owned(),
            kind,
            flash_bytes: 1_000_000_000,
            flash_drives: u32::from(kind != Kind::DiskAlone),
            disk_drives: 1,
            fast_hit_ratio: None,
            latency_mean_s: ms / 1e3,
            latency_mean_error_s: None,
            latency_p50_s: 0.0,
            latency_p99_s: 0.0,
            latency_p999_s: 0.0,
            power_w: 0.0,
            flash_life_years: Some(2.0),
            money: (usd > 0.0).then_some(Money {
                purchase_usd: usd,
                energy_usd: 0.0,
                replacement_usd: 0.0,
                total_usd: usd,
            }),
            command: String::new(),
        }
    }

    /// The advice for mean latencies in ms and dollars.
    fn advice(rows: &[(f64, f64)]) -> (usize, String) {
        let last = rows.len() - 1;
        let kind = |i| match i {
            0 => Kind::DiskAlone,
            i if i == last => Kind::FlashAlone,
            _ => Kind::Hybrid,
        };
        let device = super::super::Priced {
            name: String::new(),
            capacity_bytes: 2_000_000_000,
            price_usd: None,
            price_date: None,
            price_source: None,
        };
        let rows = rows.iter().enumerate();
        let mut plan = Plan {
            trace: String::new(),
            policy: String::new(),
            extent_bytes: 4096,
            trace_s: 100.0,
            touched_bytes: 0,
            data_bytes: 0,
            fast: device.clone(),
            slow: device,
            growth: 0.0,
            years: 5.0,
            electricity_usd_per_kwh: 0.3,
            rows: rows
                .map(|(i, &(ms, usd))| row(kind(i), &format!("row {i}"), ms, usd))
                .collect(),
            advised: 0,
            advice: String::new(),
            uncertainty: String::new(),
        };
        let reports = vec![crate::sim::Report::default(); plan.rows.len()];
        advise(&mut plan, &Windows::new(&reports));
        (plan.advised, plan.advice)
    }

    #[test]
    fn the_smallest_flash_that_is_fast_enough() {
        // The second size is within 10 % of the third.
        let rows = [
            (10.0, 50.0),
            (5.0, 60.0),
            (2.1, 70.0),
            (2.0, 80.0),
            (0.5, 900.0),
        ];
        let (at, text) = advice(&rows);
        assert_eq!(at, 2, "{text}");
        for part in [
            "row 2",
            "2.10 ms",
            "10.0 ms",
            "79 % less",
            "$20.00 more",
            "2.0 years",
            "$830 more",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn no_flash_where_it_does_not_help_and_only_flash_where_it_is_cheaper() {
        let rows = [(10.0, 50.0), (9.9, 60.0), (9.5, 70.0), (0.5, 900.0)];
        let (at, text) = advice(&rows);
        assert!(
            at == 0 && text.starts_with("Stay with the disk alone"),
            "{text}"
        );
        let rows = [(10.0, 50.0), (5.0, 60.0), (0.5, 55.0)];
        assert_eq!(advice(&rows).0, 2);
        // Without prices, nothing is said of money.
        let rows = [(10.0, 0.0), (5.0, 0.0), (0.5, 0.0)];
        let (at, text) = advice(&rows);
        assert!(at == 1 && !text.contains('$'), "{text}");
    }
}
