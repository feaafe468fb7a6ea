//! The claims of figures 6 to 9, judged on recordings that the user gives (`reproduce --recording mail=FILE`) instead of on the generators.
//!
//! A recording stands for the week whose name it has. Its first part is the training. The systems and the rules of judgement are those of
//! the tables beside the generators (`recorded.rs`).

use super::bench::{Kind, WEEKS, bandwidth, latency, seek, under};
use super::recorded::{Figure, Run, play};
use super::seeks::{PARTS, over_time};
use crate::greendm::judge::{over, range};
use crate::recorded::{given, is_given};
use crate::{Ctx, Outcome};
use isotherm_lab::LabError;

const NO_METADATA: &str =
    "a mount of whole files answers names and attributes from memory: a recording has no metadata";

/// Runs the three systems under the recording of a week, if there is one, and adds its table.
fn week(
    ctx: &Ctx<'_>,
    out: &mut Outcome,
    week: &str,
    figure: Figure,
) -> Result<Option<Run>, LabError> {
    if !is_given(ctx, week) {
        return Ok(None);
    }
    play(ctx, out, week, &given(ctx, week)?, figure).map(Some)
}

/// Says of all claims of a week, or of all claims if `week` is empty, that there is no recording.
fn none(out: &mut Outcome, week: &str) {
    let keys: Vec<String> = out.claims.iter().map(|c| c.key.clone()).collect();
    for key in keys.iter().filter(|k| k.starts_with(week)) {
        out.cannot(key, "no recording of this week was given");
    }
}

fn some(ctx: &Ctx<'_>, weeks: &[&str], out: &mut Outcome) -> Result<(), LabError> {
    out.substitutes.push("the weeks of the paper by recordings of a real mount of whole files, of which the first 60 % are the training; the engine's hot and hro on pieces of 64 KiB; the SSD a quarter of the data, because nearly all of it is in use".to_owned());
    if weeks.iter().any(|w| is_given(ctx, w)) {
        return Ok(());
    }
    Err(LabError::setup(format!(
        "this experiment needs a recording: --recording {}",
        weeks.join("=FILE or ") + "=FILE"
    )))
}

/// hro-6.
///
/// # Errors
/// No recording of a week is given, it cannot be read, or a simulation fails.
pub fn of_latency(ctx: &Ctx<'_>, out: &mut Outcome) -> Result<(), LabError> {
    some(ctx, &WEEKS, out)?;
    for name in WEEKS {
        let Some((work, reports)) = week(ctx, out, name, Figure::Latency)? else {
            none(out, name);
            continue;
        };
        for (kind, of) in [
            ("", None),
            ("read-", Some(Kind::Read)),
            ("write-", Some(Kind::Write)),
        ] {
            let ms: Vec<f64> = (reports.iter())
                .map(|r| latency(&work, r, of).unwrap_or(f64::NAN))
                .collect();
            for (i, other) in ["hdd", "hot"].into_iter().enumerate() {
                let key = format!("{name}-{kind}{other}");
                let cut = under(ms[2], ms[i]);
                if out.printed(&key).is_none() {
                    continue;
                }
                if cut.is_finite() {
                    range(out, &key, [cut], "%");
                } else {
                    out.cannot(&key, "the measured part has no such request");
                }
            }
        }
        if name != "research" {
            out.cannot(&format!("{name}-meta"), NO_METADATA);
        }
    }
    Ok(())
}

/// hro-7 and hro-9.
///
/// # Errors
/// As [`of_latency`].
pub fn of_seeks(ctx: &Ctx<'_>, out: &mut Outcome) -> Result<(), LabError> {
    some(ctx, &["mail"], out)?;
    let Some((_, reports)) = week(ctx, out, "mail", Figure::Seeks)? else {
        return Ok(());
    };
    let of: Vec<f64> = reports.iter().map(|r| seek(r).0).collect();
    let why = format!(
        "{:.0}, {:.0}, {:.0} cylinders a request",
        of[0], of[1], of[2]
    );
    out.judge("order", of[0] > of[1] && of[1] > of[2], why);
    range(out, "hdd", [under(of[2], of[0])], "%");
    range(out, "hot", [under(of[2], of[1])], "%");
    let times: Vec<Vec<f64>> = reports.iter().map(|r| over_time(r)).collect();
    if times.iter().any(|t| t.len() < PARTS) {
        out.cannot("always", "the run is too short for a series");
        return Ok(());
    }
    let least = |i: &usize| times[2][*i] < times[0][*i] && times[2][*i] < times[1][*i];
    let n = (0..PARTS).filter(least).count();
    out.judge(
        "always",
        n == PARTS,
        format!("a movement is shortest in {n} of {PARTS} parts of the run"),
    );
    Ok(())
}

/// hro-8.
///
/// # Errors
/// As [`of_latency`].
pub fn of_bandwidth(ctx: &Ctx<'_>, out: &mut Outcome) -> Result<(), LabError> {
    some(ctx, &WEEKS, out)?;
    let mut gains = Vec::new();
    for name in WEEKS {
        let Some((_, reports)) = week(ctx, out, name, Figure::Bandwidth)? else {
            none(out, name);
            continue;
        };
        let of: Vec<f64> = reports.iter().map(|r| bandwidth(r)).collect();
        let gain = [over(of[2], of[0]), over(of[2], of[1])];
        if name != "research" {
            range(out, &format!("{name}-hdd"), [gain[0]], "%");
            range(out, &format!("{name}-hot"), [gain[1]], "%");
        }
        gains.push((name, gain));
    }
    let each = |i: usize| {
        let all: Vec<String> = (gains.iter())
            .map(|(w, g)| format!("{w} {:.1}", g[i]))
            .collect();
        all.join(", ")
    };
    let why = format!("over HDD, %: {}; over HOT: {}", each(0), each(1));
    let [(_, mail), (_, office), (_, research)] = gains[..] else {
        for key in ["order", "office-most", "research-least"] {
            out.cannot(key, "it needs recordings of all three weeks");
        }
        return Ok(());
    };
    let all = gains.iter().all(|(_, g)| g[0] > 0.0 && g[1] > 0.0);
    out.judge("order", all, why.clone());
    let most = office[0] > mail[0] && office[0] > research[0];
    out.judge("office-most", most, why.clone());
    let least = research[0] < mail[0] && research[0] < office[0];
    out.judge("research-least", least, why);
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::{Ctx, Experiment, Verdict};

    #[test]
    fn claims_are_judged_on_the_recordings_of_the_weeks() {
        let quiet = |_: &str| ();
        let mut ctx = Ctx::on_fixtures(&quiet, 0.01);
        let fixtures = ctx.traces.take().unwrap();
        let all = [("mail", "mail"), ("office", "file"), ("research", "web")];
        ctx.recordings = all
            .map(|(week, n)| (week.to_owned(), fixtures.join(format!("loris-{n}.parquet"))))
            .to_vec();
        // The metadata of two weeks is not in a recording.
        for (id, cannot) in [("hro-6", 2), ("hro-7", 0), ("hro-8", 0)] {
            let out = Experiment::find(id).unwrap().run(&ctx).unwrap();
            assert_eq!(out.count(Verdict::CannotBeJudged), cannot, "{id}");
            assert!(out.tables.iter().all(|t| t.title.contains("recorded")));
        }
        ctx.recordings.truncate(1);
        let out = Experiment::find("hro-8").unwrap().run(&ctx).unwrap();
        let without = |c: &&crate::Claim| c.verdict == Verdict::CannotBeJudged;
        let keys: Vec<&str> = (out.claims.iter().filter(without))
            .map(|c| c.key.as_str())
            .collect();
        let expected = [
            "office-hdd",
            "office-hot",
            "order",
            "office-most",
            "research-least",
        ];
        assert_eq!(keys, expected);
        ctx.recordings[0].0 = "other".into();
        let missing = Experiment::find("hro-7").unwrap().run(&ctx);
        assert!(missing.unwrap_err().to_string().contains("mail=FILE"));
    }
}
