//! Mounts a store in the directory tree of this machine.

use crate::dead_mount;
use crate::fuse::gate::Gate;
use crate::fuse::helpers::Helpers;
use crate::fuse::{Ended, Front, Served};
use crate::names::Names;
use crate::settings::{Io, Refused, SOURCE, Settings, refuse};
use crate::store::Store;
use crate::tree::Tier;
use fuser::{BackgroundSession, Config, MountOption, Session, SessionACL};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

/// The file system type that identifies a mount of this program in the mount table.
pub const SUBTYPE: &str = "isotherm-files";

/// Maximum time for which an unmount waits for the threads of the session, which end when the kernel has unmounted.
const THREADS_END: Duration = Duration::from_secs(5);

/// Maximum time for which an unmount waits for one call of a move, or of a directory that joins.
const MOVER_END: Duration = Duration::from_secs(15);

/// The options of a mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The path of reads and writes.
    pub io: Io,
    /// Number of session threads.
    pub threads: usize,
    /// Whether other users may use it; permissions decide as usual.
    pub allow_other: bool,
    /// Whether all changes are refused.
    pub read_only: bool,
}

/// The gate of a mount and the thread that runs it.
type GateThread = (Arc<Gate>, JoinHandle<()>);

/// A mounted file system. Dropping it unmounts.
pub struct Mounted {
    /// The served tiers.
    pub store: Arc<Store>,
    /// The mount point.
    pub dir: PathBuf,
    ended: Ended,
    over: Receiver<()>,
    session: Option<BackgroundSession>,
    helpers: Arc<Helpers>,
    /// Keeps space for what the kernel itself writes.
    gate: Option<GateThread>,
    /// This program has unmounted it, or found that nothing is mounted in its place any more. The session's threads end by themselves
    /// when the kernel has told them.
    gone: bool,
    mover: Option<JoinHandle<()>>,
}

/// Mounts the tiers on `dir`, an existing directory. The file system is usable when this returns.
///
/// # Errors
/// A message in words.
pub fn mount(settings: &Settings, dir: &Path, options: &Options) -> Result<Mounted, Refused> {
    let dir = mount_point(dir, settings.tiers.iter().chain(&settings.more_slow))?;
    let copies = settings.copies || settings.heads.bytes > 0;
    if copies && options.io.passes() {
        return refuse(
            "copies (also of heads) and passthrough exclude each other: the kernel would change files without their copies",
        );
    }
    // The kernel sends the final permissions of new files.
    rustix::process::umask(rustix::fs::Mode::empty());
    raise_descriptor_limit();
    let store = Arc::new(Store::open(settings)?);
    for disk in 0..store.roots.len() as Tier {
        store.say_what_lacks(disk);
    }
    let _ = store.open.io.set(options.io);
    let (tell, over) = std::sync::mpsc::channel();
    let ended = Ended {
        unmounted: Arc::default(),
        tell,
    };
    let served = Served::new(
        Arc::clone(&store),
        options.io,
        rustix::process::getuid().as_raw(),
        threads(options),
        ended.clone(),
    );
    let helpers = served.helpers();
    let gate = keep_space(&store, &helpers, options.io)?;
    let served = Arc::new(served.with_gate(gate.as_ref().map(|g| Arc::clone(&g.0))));
    let session = Session::new(Front(served), &dir, &config(&store, options)).map_err(|e| {
        Refused(format!(
            "{}: cannot mount: {e} (is /dev/fuse there, and fusermount3 for users?)",
            dir.display()
        ))
    })?;
    let notifier = session.notifier();
    let session = session
        .spawn()
        .map_err(|e| Refused(format!("{}: {e}", dir.display())))?;
    let _ = store.open.notifier.set(notifier);
    let (for_mover, chaos) = (Arc::clone(&store), settings.chaos);
    let mover = std::thread::Builder::new()
        .name("mover".into())
        .spawn(move || match chaos {
            Some(seed) => {
                crate::chaos::run(&for_mover, seed, || for_mover.placement.is_stopped());
            }
            None => for_mover.attend(),
        })
        .map_err(|e| Refused(e.to_string()))?;
    Ok(Mounted {
        store,
        dir,
        ended,
        over,
        session: Some(session),
        helpers,
        gate,
        gone: false,
        mover: Some(mover),
    })
}

/// Lets this process open as many files as the system allows it: each file in use takes one or two descriptors, and so does each question of
/// the kernel. Without one, the kernel refuses the write that it asks about.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: maximum,
        maximum,
    };
    if current != maximum {
        // If this fails, the limit is as before.
        let _ = setrlimit(Resource::Nofile, raised);
    }
}

/// Starts the thread that keeps space for what the kernel itself writes, if it does.
fn keep_space(
    store: &Arc<Store>,
    helpers: &Arc<Helpers>,
    io: Io,
) -> Result<Option<GateThread>, Refused> {
    if io != Io::Passthrough {
        return Ok(None);
    }
    let failed = |e: &dyn std::fmt::Display| Refused(format!("cannot watch the free space: {e}"));
    let gate = Gate::new(Arc::clone(store), Arc::clone(helpers)).map_err(|e| failed(&e))?;
    let gate = Arc::new(gate);
    let for_thread = Arc::clone(&gate);
    let thread = std::thread::Builder::new().name("gate".into());
    let thread = thread.spawn(move || for_thread.run());
    Ok(Some((gate, thread.map_err(|e| failed(&e))?)))
}

/// The real path of an empty directory that neither contains a tier nor lies in one.
fn mount_point<'a>(
    dir: &Path,
    tiers: impl Iterator<Item = &'a PathBuf>,
) -> Result<PathBuf, Refused> {
    let shown = dir.display();
    let why = |e: std::io::Error, fix: &str| {
        if dead_mount::is_cut(&e) {
            return Refused(format!(
                "{shown}: a file system whose server died is mounted there: `umount -l {shown}` first"
            ));
        }
        Refused(format!("{shown}: {e}: {fix}"))
    };
    // The attributes of a dead mount may be in the kernel's memory; its contents are not.
    if std::fs::read_dir(dir).is_err_and(|e| dead_mount::is_cut(&e)) && dead_mount::clear(dir) {
        tracing::warn!("{shown}: the mount of a server that was killed was removed");
    }
    let dir = dir
        .canonicalize()
        .map_err(|e| why(e, "make the directory to mount on"))?;
    // The path of a mount whose server died is still found; only its content cannot be read.
    let entries = std::fs::read_dir(&dir).map_err(|e| why(e, "give a directory to mount on"))?;
    if entries.count() > 0 {
        return refuse(format!(
            "{shown}: is not empty: mount on an empty directory"
        ));
    }
    for tier in tiers {
        if let Ok(tier) = tier.canonicalize()
            && (dir.starts_with(&tier) || tier.starts_with(&dir))
        {
            return refuse(format!(
                "{shown}: lies in the tier {}, or the tier in it: mount elsewhere",
                tier.display()
            ));
        }
    }
    Ok(dir)
}

/// Number of threads of the session.
fn threads(options: &Options) -> usize {
    options.threads.clamp(1, 64)
}

/// The options of the FUSE session.
fn config(store: &Store, options: &Options) -> Config {
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(format!("{SOURCE}{}", store.tier_name(0))),
        MountOption::Subtype(SUBTYPE.into()),
        MountOption::DefaultPermissions,
    ];
    if rustix::process::getuid().is_root() {
        config
            .mount_options
            .extend([MountOption::Suid, MountOption::Dev]);
    }
    if options.read_only {
        config.mount_options.push(MountOption::RO);
    }
    config.acl = if options.allow_other {
        SessionACL::All
    } else {
        SessionACL::Owner
    };
    config.n_threads = Some(threads(options));
    config.clone_fd = true;
    config
}

impl Mounted {
    /// A sender with which another thread, for example one that waits for signals, ends [`Mounted::wait`].
    pub fn ender(&self) -> Sender<()> {
        self.ended.tell.clone()
    }
    /// Waits, without waking up in between, until someone unmounts it or a message comes from [`Mounted::ender`].
    pub fn wait(&self) {
        // `self` has a sender, so the channel cannot be closed.
        let _ = self.over.recv();
    }
    /// Whether it was unmounted by another program. A file system that is mounted there afterwards is another one, and is not touched.
    pub fn is_over(&self) -> bool {
        let session = self.session.as_ref();
        self.ended.unmounted.load(Ordering::SeqCst) || session.is_none_or(|s| s.guard.is_finished())
    }
    /// Unmounts. If files are still open after `wait`, it is only taken out of the tree. When this has succeeded, nothing of the tiers is
    /// open any more. If another mount namespace still has the file system, this returns after 5 s, and the tiers stay open until
    /// it is gone there, too.
    ///
    /// # Errors
    /// It is in use.
    pub fn unmount(mut self, wait: Duration) -> Result<(), Refused> {
        let until = std::time::Instant::now() + wait;
        while !self.is_over() {
            match rustix::mount::unmount(&self.dir, rustix::mount::UnmountFlags::NOFOLLOW) {
                Err(rustix::io::Errno::BUSY) if std::time::Instant::now() < until => {
                    std::thread::sleep(Duration::from_millis(50));
                }
                Err(rustix::io::Errno::BUSY) => {
                    return refuse(format!(
                        "{}: still in use: it is taken out of the tree, and its users get errors",
                        self.dir.display()
                    ));
                }
                // INVAL: nothing is mounted there, another program has just unmounted it.
                Ok(()) | Err(rustix::io::Errno::INVAL) => {
                    self.gone = true;
                    break;
                }
                Err(_) => break,
            }
        }
        self.end();
        Ok(())
    }
    /// Waits for the end of the thread that moves files: it ends after its current file. Returns false if that file's tier does not answer.
    fn mover_ended(&mut self) -> bool {
        let Some(mover) = self.mover.take() else {
            return true;
        };
        let begun = std::time::Instant::now();
        while !mover.is_finished() {
            // A directory that answers is not read any further.
            let silent = self
                .store
                .joins_now()
                .filter(|_| begun.elapsed() >= MOVER_END);
            if let Some(path) = silent {
                self.store.say(&format!(
                    "{}: does not answer, and is no disk yet: add it again",
                    path.display()
                ));
                return false;
            }
            if let Some((node, tier)) = self.store.move_hangs(MOVER_END) {
                let path = self.store.cat().shown_path(node);
                let tier = self.store.tier_name(tier);
                self.store.say(&format!(
                    "{path}: its move waits for {tier}, which does not answer: the next mount finishes or undoes it"
                ));
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = mover.join();
        true
    }
    fn end(&mut self) {
        self.store.placement.stop();
        let moved = self.mover_ended();
        if let Some(session) = self.session.take() {
            if self.gone || self.ended.unmounted.load(Ordering::SeqCst) {
                // fuser 0.18 interprets the error of a FUSE device without a mount as a sign that the file system is still mounted, and
                // would unmount whatever is mounted at its place now. So the session is not dropped: one descriptor stays open until the
                // program ends. Its threads end by themselves. Only then are the tiers not in use any more.
                let until = std::time::Instant::now() + THREADS_END;
                while !session.guard.is_finished() && std::time::Instant::now() < until {
                    std::thread::sleep(Duration::from_millis(1));
                }
                std::mem::forget(session);
            } else {
                let _ = session.umount_and_join();
            }
            if let Some((gate, thread)) = self.gate.take() {
                gate.stop();
                let _ = thread.join();
            }
            self.helpers.wait(THREADS_END);
            if !moved {
                // What has been written is complete as after a crash, and the next mount treats it so.
                return;
            }
            if let Err(e) = self.store.save_names() {
                Names::say_unsaved(&self.store.tiers, e);
            }
            if let Err(e) = self.store.names.save_numbers(&self.store) {
                self.store.say(&format!(
                    "the inode numbers could not be kept in one table: {e}: the next mount asks each file for its own"
                ));
            }
            // Copies are kept only if the tiers of their files are durable, so this would wait, too.
            if self.store.is_waiting() {
                self.store
                    .say("a tier does not answer: copies are not kept for the next mount");
                return;
            }
            if let Err(e) = self.store.keep_copies() {
                self.store
                    .say(&format!("copies could not be kept for the next mount: {e}"));
            }
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.session.is_some() && !self.is_over() {
            let flags = rustix::mount::UnmountFlags::NOFOLLOW | rustix::mount::UnmountFlags::DETACH;
            self.gone = rustix::mount::unmount(&self.dir, flags).is_ok();
        }
        self.end();
    }
}
