//! Runs the program `postmark` on ext4 on a loop device over the block file of each set-up.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use isotherm_live::config::VolumeConfig;

use super::process::{Stop, command, find, run};
use super::report::{Row, Workload};
use super::rig::{Loop, MemoryGroup, Mounted, Served};
use super::setup::{EXTENT, FAST_SHARE, SetUp, Sized};
use super::{Progress, blocks};
use crate::Failure;
use crate::lab::args::DemoArgs;

/// Size of the smallest and of the largest file in bytes.
const FILE: [u64; 2] = [1024, 16384];
/// Block size of the file system.
const BLOCK: u64 = 4096;
/// The working set is at least this many times the memory that postmark and its page cache may use.
const OVER_MEMORY: u64 = 4;
/// The required programs, with the packages that contain them.
const TOOLS: [(&str, &str); 6] = [
    ("postmark", "postmark"),
    ("mkfs.ext4", "e2fsprogs"),
    ("e2fsck", "e2fsprogs"),
    ("losetup", "mount"),
    ("mount", "mount"),
    ("umount", "mount"),
];

/// The reason why this part is not run.
pub enum WhyNot {
    /// The part is skipped with a message, and the demo goes on.
    Skip(String),
    /// The demo ends.
    Fail(String),
}

/// The reason why it cannot be run here, if there is one.
pub fn why_not(args: &DemoArgs) -> Option<WhyNot> {
    if args.skip_postmark {
        return Some(WhyNot::Skip("postmark: left out, as asked for".into()));
    }
    if !rustix::process::geteuid().is_root() {
        let why = "postmark: left out: mounting a file system needs root; the trace is replayed in this process";
        return Some(WhyNot::Skip(why.into()));
    }
    let mut missing: Vec<&str> = TOOLS.iter().filter(|t| !find(t.0)).map(|t| t.1).collect();
    missing.dedup();
    if !missing.is_empty() {
        let list = missing.join(" ");
        return Some(WhyNot::Fail(format!(
            "the demo needs the packages {list}: run `make demo`, which installs them, or use --skip-postmark"
        )));
    }
    if !Path::new("/dev/fuse").exists() {
        return Some(WhyNot::Fail(
            "/dev/fuse is missing: load the module fuse, or use --skip-postmark".into(),
        ));
    }
    None
}

/// Free bytes that are needed: the members and the probe of one set-up at a time, and temporary files.
pub fn room(args: &DemoArgs) -> u64 {
    if args.skip_postmark {
        0
    } else {
        Plan::new(args).fs_bytes * 2 + (64 << 20)
    }
}

/// The amount of work, derived from the number of files.
pub struct Plan {
    files: u64,
    transactions: u64,
    /// Expected number of blocks of all files together.
    working_set: u64,
    memory: u64,
    fs_bytes: u64,
    fast: u32,
}

impl Plan {
    /// The plan for the options.
    pub fn new(args: &DemoArgs) -> Plan {
        let files = u64::from(args.files);
        // Sizes are uniform, and a file occupies whole blocks.
        let blocks: u64 = (FILE[0]..=FILE[1]).map(|size| size.div_ceil(BLOCK)).sum();
        let working_set = files * blocks * BLOCK / (FILE[1] - FILE[0] + 1);
        // The memory is a tenth less than the requirement allows, because the working set drifts, and a ratio of 3.99 instead of 4.0 would
        // miss it.
        let memory = working_set / OVER_MEMORY * 9 / 10 / (1 << 20) * (1 << 20);
        let fs_bytes = (working_set * 13 / 10).next_multiple_of(1 << 20) + (8 << 20);
        let fast = (working_set as f64 * FAST_SHARE / EXTENT as f64).round() as u32;
        Plan {
            files,
            transactions: u64::from(args.transactions),
            working_set,
            memory,
            fs_bytes,
            fast,
        }
    }

    /// Notes for the reader.
    pub fn notes(&self) -> Vec<String> {
        vec![format!(
            "postmark: {} files of {} to {} KiB, {} transactions; working set {} MiB in a memory group of {} MiB; fast tier of \
             the hybrid {} MiB; from mount to unmount, requests as the volume saw them",
            self.files,
            FILE[0] >> 10,
            FILE[1] >> 10,
            self.transactions,
            self.working_set >> 20,
            self.memory >> 20,
            (u64::from(self.fast) * EXTENT) >> 20
        )]
    }

    fn script(&self, dir: &Path) -> String {
        format!(
            "set location {}\nset number {}\nset transactions {}\nset size {} {}\nset read {BLOCK}\nset write {BLOCK}\n\
             set subdirectories 20\nset buffering false\nset seed 42\nrun\nquit\n",
            dir.display(),
            self.files,
            self.transactions,
            FILE[0],
            FILE[1]
        )
    }
}

struct Place<'a> {
    isotherm: PathBuf,
    volume: PathBuf,
    mount: PathBuf,
    dir: PathBuf,
    stop: &'a Stop,
}

impl Place<'_> {
    fn serve(&self) -> Result<Served, Failure> {
        Served::start(&self.isotherm, &self.volume, &self.mount, self.stop)
    }

    fn attach(&self, served: &Served) -> Result<Loop, Failure> {
        Loop::attach(&served.file(), self.stop, &self.dir)
    }

    fn run(&self, program: &str, words: &[&str]) -> Result<String, Failure> {
        run(
            command(program).args(words),
            "",
            self.stop,
            &self.dir,
            &mut || {},
        )
    }
}

/// Measures one set-up, from `create` to `stop`.
pub fn measure(
    kind: SetUp,
    plan: &Plan,
    args: &DemoArgs,
    stop: &Stop,
    say: &Progress,
    work: &Path,
) -> Result<Row, Failure> {
    let dir = work.join(format!("postmark-{kind:?}"));
    fs::create_dir(&dir).map_err(|e| Failure::file(&dir, "make the directory", &e))?;
    // It lies beside this program, which is the lab's.
    let isotherm = std::env::current_exe()
        .map(|own| own.with_file_name("isotherm"))
        .map_err(|e| Failure::file(Path::new("isotherm"), "find the program", &e))?;
    let place = Place {
        isotherm,
        volume: dir.join("v"),
        mount: dir.join("block"),
        dir: dir.clone(),
        stop,
    };
    let begin = format!("{}, postmark: create, serve, mkfs.ext4", kind.words());
    say.line(&begin);
    create(&place, kind, plan, args)?;
    let served = place.serve()?;
    let device = place.attach(&served)?;
    make_fs(&place, &device, plan)?;
    device.detach()?;
    // The volume is stopped and served again, so that the counters include the work only, and to show that the created data is durable.
    served.stop()?;
    let served = place.serve()?;
    let device = place.attach(&served)?;
    say.line(&format!(
        "{}, postmark: {} files, {} transactions",
        kind.words(),
        plan.files,
        plan.transactions
    ));
    let (elapsed_s, said, peak) = work_on(&place, &device, plan)?;
    let stats = served.stats()?;
    say.line(&format!("{}, postmark: fsck", kind.words()));
    let name = device.device().display().to_string();
    place
        .run("e2fsck", &["-fn", &name])
        .map_err(|e| Failure::failed(format!("the file system is not clean: {e}")))?;
    device.detach()?;
    served.stop()?;
    fs::remove_dir_all(&dir).map_err(|e| Failure::file(&dir, "remove", &e))?;
    if peak < OVER_MEMORY * plan.memory {
        return Err(Failure::failed(format!(
            "postmark used {} MiB, less than {OVER_MEMORY} times its memory of {} MiB: give it more --files",
            peak >> 20,
            plan.memory >> 20
        )));
    }
    let mut row = Row::new(kind, Workload::Postmark, elapsed_s, &stats);
    row.fsck_clean = Some(true);
    row.transactions_per_s = transactions(&said).map(|seconds| plan.transactions as f64 / seconds);
    row.working_set_bytes = peak;
    row.memory_bytes = Some(plan.memory);
    Ok(row)
}

fn create(place: &Place<'_>, kind: SetUp, plan: &Plan, args: &DemoArgs) -> Result<(), Failure> {
    let extents = (plan.fs_bytes / EXTENT) as u32;
    let sized = Sized::find(
        kind,
        &args.policy.to_string(),
        extents,
        plan.fast,
        &place.dir,
    )?;
    let config: VolumeConfig = sized.config(&place.dir, true);
    let file = place.dir.join("new.toml");
    config
        .save(&file)
        .map_err(|e| Failure::failed(e.to_string()))?;
    // Standard error may contain text besides the figures.
    let figures = place.dir.join("created.json");
    let mut json = OsString::from("--json=");
    json.push(&figures);
    let words = [
        place.volume.as_os_str(),
        "--config".as_ref(),
        file.as_os_str(),
        &json,
    ];
    run(
        command(&place.isotherm).arg("create").args(words),
        "",
        place.stop,
        &place.dir,
        &mut || {},
    )?;
    let said = fs::read_to_string(&figures).map_err(|e| Failure::file(&figures, "read", &e))?;
    let made: isotherm_answers::Created = serde_json::from_str(&said)
        .map_err(|e| Failure::failed(format!("isotherm create: {}: {e}", said.trim())))?;
    if made.volume_bytes == plan.fs_bytes {
        return Ok(());
    }
    Err(Failure::failed(format!(
        "the volume has {} bytes, not {}",
        made.volume_bytes, plan.fs_bytes
    )))
}

fn make_fs(place: &Place<'_>, device: &Loop, plan: &Plan) -> Result<(), Failure> {
    let name = device.device().display().to_string();
    let inodes = (plan.files * 5 / 4 + 1000).to_string();
    // Nothing is deferred: a kernel thread that continues to initialise the file system would be included in the measurement.
    let late = "lazy_itable_init=0,lazy_journal_init=0,nodiscard";
    let words = [
        "-q",
        "-F",
        "-b",
        "4096",
        "-O",
        "^resize_inode",
        "-N",
        &inodes,
        "-J",
        "size=4",
        "-E",
        late,
        &name,
    ];
    place.run("mkfs.ext4", &words).map(|_| ())
}

/// Mounts, works and unmounts. Returns seconds, the output of postmark, and the largest number of bytes in use.
fn work_on(place: &Place<'_>, device: &Loop, plan: &Plan) -> Result<(f64, String, u64), Failure> {
    let group = MemoryGroup::new(plan.memory).map_err(|e| {
        Failure::failed(format!(
            "no memory group can be made ({e}): use --skip-postmark"
        ))
    })?;
    let dir = place.dir.join("files");
    let begun = Instant::now();
    let mounted = Mounted::mount(device.device(), &dir, place.stop, &place.dir)?;
    let empty = blocks::used(&dir)?;
    let mut peak = 0;
    let mut looked = Instant::now();
    let mut look = || {
        if looked.elapsed().as_millis() >= 200 {
            looked = Instant::now();
            peak = blocks::used(&dir).unwrap_or(0).max(peak);
        }
    };
    // The shell enters the control group and then becomes postmark, so postmark never runs outside of the group.
    let mut c = command("sh");
    c.args(["-c", "echo $$ > \"$0\" && exec postmark"])
        .arg(group.procs());
    let said = run(
        &mut c,
        &plan.script(&dir),
        place.stop,
        &place.dir,
        &mut look,
    )?;
    mounted.unmount()?;
    let elapsed = begun.elapsed().as_secs_f64();
    if transactions(&said).is_none() {
        let last = said.lines().last().unwrap_or_default();
        return Err(Failure::failed(format!(
            "postmark did not finish its transactions: {last}"
        )));
    }
    Ok((elapsed, said, peak.saturating_sub(empty)))
}

/// Seconds of transactions from postmark's report, which counts whole seconds and at least 1.
fn transactions(said: &str) -> Option<f64> {
    let line = said
        .lines()
        .find(|l| l.contains("seconds of transactions"))?;
    line.split_whitespace()
        .next()?
        .parse::<f64>()
        .ok()
        .map(|s| s.max(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn postmarks_report_is_understood() {
        assert_eq!(
            transactions(
                "Time:\n\t67 seconds total\n\t49 seconds of transactions (61 per second)\n"
            ),
            Some(49.0)
        );
        assert_eq!(transactions("Error: no space\n"), None);
    }
}
