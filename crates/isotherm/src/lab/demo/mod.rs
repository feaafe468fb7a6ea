//! `isotherm demo`: demonstrates the main use of the program in one command.
//!
//! Three set-ups of equal size (paced HDD, hybrid, paced SSD) do the same work, in two parts:
//!
//! ```text
//! postmark:  create ─► serve --block-file ─► loop ─► mkfs.ext4 ─► stop ─► serve ─► mount ─► postmark ─► umount ─► fsck -fn
//!            (the program as a user would call it; needs root)
//! trace:     fill, unpaced ─► open, paced ─► replay, closed loop, every read checked ─► open ─► read everything back
//!            (in this process; needs no privileges)
//! ```
//!
//! Guarantees: everything that this starts, it stops in the reverse order, on success, on error and on SIGINT, SIGTERM, SIGHUP; a directory
//! with a mount inside is never deleted; every figure in the table was counted or timed in this run.

mod blocks;
mod plot;
mod postmark;
mod process;
mod replay;
mod report;
mod rig;
mod setup;
mod workdir;

use std::path::Path;
use std::time::Instant;

use crate::Failure;
use crate::lab::args::DemoArgs;
use process::Stop;
use report::Report;
use setup::SetUp;

/// Runs the command.
///
/// # Errors
/// A tool or space is missing, a step failed, a file system was not clean, or data was read back wrong.
pub fn run(args: &DemoArgs) -> Result<(), Failure> {
    // This is checked before minutes are spent.
    let out = OutFiles::check(args)?;
    let stop = Stop::watch()?;
    let say = Progress {
        begun: Instant::now(),
        quiet: args.quiet,
    };
    let work = workdir::WorkDir::new(args.dir.as_deref(), postmark::room(args) + replay::room())?;
    let result = measure(args, &stop, &say, &work);
    if let Err(left) = work.close() {
        eprintln!("isotherm: {left}");
    }
    let mut report = result?;
    report.wall_s = say.begun.elapsed().as_secs_f64();
    out.write(&report)
}

fn measure(
    args: &DemoArgs,
    stop: &Stop,
    say: &Progress,
    work: &workdir::WorkDir,
) -> Result<Report, Failure> {
    let mut report = Report::default();
    match postmark::why_not(args) {
        None => {
            let plan = postmark::Plan::new(args);
            report.notes.extend(plan.notes());
            for kind in SetUp::ALL {
                let row = postmark::measure(kind, &plan, args, stop, say, work.path())?;
                say.done(&row);
                report.rows.push(row);
            }
        }
        Some(postmark::WhyNot::Skip(why)) => {
            say.line(&why);
            report.notes.push(why);
        }
        Some(postmark::WhyNot::Fail(why)) => return Err(Failure::Failed(why)),
    }
    if !args.skip_trace {
        let plan = replay::Plan::new(args, work.path())?;
        report.notes.extend(plan.notes());
        if let Some(file) = &args.save_trace {
            plan.save(file)?;
        }
        for kind in SetUp::ALL {
            let row = replay::measure(kind, &plan, stop, say, work.path())?;
            say.done(&row);
            report.rows.push(row);
        }
    }
    report.conclude(args);
    Ok(report)
}

/// Prints one line at a time, with the time since the start.
pub struct Progress {
    begun: Instant,
    quiet: bool,
}

impl Progress {
    /// Prints the current step.
    pub fn line(&self, text: &str) {
        if !self.quiet {
            let s = self.begun.elapsed().as_secs();
            eprintln!("[{}:{:02}] {text}", s / 60, s % 60);
        }
    }

    fn done(&self, row: &report::Row) {
        let rate = format!(
            "{:.1} s, {:.0} requests/s",
            row.elapsed_s, row.throughput_iops
        );
        self.line(&format!("{}, {}: {rate}", row.setup.words(), row.workload));
    }
}

/// The files for the results.
struct OutFiles<'a> {
    args: &'a DemoArgs,
}

impl OutFiles<'_> {
    fn check(args: &DemoArgs) -> Result<OutFiles<'_>, Failure> {
        for file in [Some(args.json.as_path()), args.plot.as_deref()]
            .into_iter()
            .flatten()
        {
            if file.as_os_str() == "-" {
                continue;
            }
            let dir = file
                .parent()
                .filter(|d| !d.as_os_str().is_empty())
                .unwrap_or(Path::new("."));
            std::fs::create_dir_all(dir)
                .map_err(|e| Failure::file(dir, "create the directory", &e))?;
        }
        Ok(OutFiles { args })
    }

    fn write(&self, report: &Report) -> Result<(), Failure> {
        let to = crate::json::JsonArg {
            json: Some(self.args.json.clone()),
        };
        to.print(report, String::new)?;
        if let Some(file) = &self.args.plot {
            plot::draw(report, file)?;
        }
        if self.args.json.as_os_str() == "-" {
            return Ok(());
        }
        let mut text = report.text();
        text = text + "\nThe same as JSON: " + &self.args.json.display().to_string();
        if let Some(file) = &self.args.plot {
            text = text + "; as a picture: " + &file.display().to_string();
        }
        crate::json::JsonArg::default().print(report, || text + "\n")
    }
}
