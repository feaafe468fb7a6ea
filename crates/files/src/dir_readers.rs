//! Reads directories during a mount: several threads read the tier, and the caller takes the results in the order of its requests.
//!
//! Three system calls per file (its name, its attributes, whether it has extended attributes) take most of the time of a mount. There may
//! be more threads than processors, because a disk or a network serves several calls at the same time faster than one after the other.

use crate::disk::{
    DirEntries, Mark, Root, Xattrs, decode, is_hidden, own_working_directory, xattrs,
};
use crate::lasting::Table;
use crate::settings::Refused;
use crate::sync::lock;
use crate::tree::{DIR, Facts, LNK, TYPE, Tier, join};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::ffi::CString;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::{Builder, Scope};

/// Number of threads.
const THREADS: usize = 4;
/// Maximum number of names of one directory that one job reads.
const PART: usize = 512;

/// A name in a directory, with the attributes of its file.
pub(crate) struct DirEntry {
    pub(crate) name: Vec<u8>,
    /// Its path from the tier's root if it is a directory; empty for other files, whose paths are not needed.
    pub(crate) path: Vec<u8>,
    pub(crate) facts: Facts,
    pub(crate) xattrs: Xattrs,
    /// The target, if it is a symbolic link.
    pub(crate) target: Box<[u8]>,
    /// Its number in the table.
    pub(crate) number: Option<u64>,
    /// The attribute with its number, if that is not in the table.
    pub(crate) mark: Option<Mark>,
}

/// The numbers of files that are known, and the tier that is read; `None` if numbers are not needed.
pub(crate) type Numbers<'a> = Option<(&'a Table, Tier)>;

/// A job of the threads.
pub(crate) enum Job {
    /// A directory.
    Dir(Vec<u8>),
    /// The remaining names of a directory.
    Rest(OwnedFd, Vec<u8>, Vec<CString>),
}

/// The names that were read, and a job for the rest of the directory.
type Batch = (Vec<DirEntry>, Option<Job>);

/// The path at which a job failed, and the error.
pub(crate) struct Failed(pub(crate) Vec<u8>, pub(crate) Errno);

/// The result of a job, which may not be ready yet.
pub(crate) struct Answer(Receiver<Result<Batch, Failed>>);

impl Answer {
    /// Waits for the result.
    pub(crate) fn wait(self) -> Result<Batch, Failed> {
        self.0
            .recv()
            .unwrap_or_else(|_| Err(Failed(Vec::new(), Errno::IO)))
    }
}

type Request = (Job, SyncSender<Result<Batch, Failed>>);

/// The threads that read directories. They end when this value is dropped.
pub(crate) struct DirReaders(Sender<Request>);

impl DirReaders {
    /// Starts the threads for one tier.
    ///
    /// # Errors
    /// Not a single thread can be started.
    pub(crate) fn start<'scope, 'env>(
        scope: &'scope Scope<'scope, 'env>,
        root: &'env Root,
        numbers: Numbers<'env>,
        requests: &'env Mutex<Option<Receiver<Request>>>,
    ) -> Result<DirReaders, Refused> {
        let (ask, asked) = channel();
        *lock(requests) = Some(asked);
        let mut failed = None;
        for n in 0..THREADS {
            let next = || {
                let asked = lock(requests);
                asked.as_ref()?.recv().ok()
            };
            let work = move || {
                let own = own_working_directory();
                while let Some((job, answer)) = next() {
                    // The receiver may no longer wait.
                    let _ = answer.send(read_job(root, numbers, job, own));
                }
            };
            let started = Builder::new()
                .name(format!("readdir-{n}"))
                .spawn_scoped(scope, work);
            match started {
                Ok(_) => {}
                Err(e) if n == 0 => failed = Some(e),
                Err(_) => break,
            }
        }
        match failed {
            Some(e) => Err(Refused(format!("cannot start a thread: {e}"))),
            None => Ok(DirReaders(ask)),
        }
    }
    /// Queues a job. The results of several jobs become ready in any order.
    pub(crate) fn ask(&self, job: Job) -> Answer {
        let (answer, answered) = sync_channel(1);
        // If all threads have ended, `Answer::wait` returns an error.
        let _ = self.0.send((job, answer));
        Answer(answered)
    }
}

fn read_job(root: &Root, numbers: Numbers<'_>, job: Job, own: bool) -> Result<Batch, Failed> {
    let (dir, path, mut names) = match job {
        Job::Rest(dir, path, names) => (dir, path, names),
        Job::Dir(path) => {
            let listed = match list(root, &path) {
                // It was removed or renamed since its name was read.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok((Vec::new(), None)),
                other => other,
            };
            let (dir, names) = listed.map_err(|e| Failed(path.clone(), e))?;
            (dir, path, names)
        }
    };
    let rest = names.split_off(names.len().min(PART));
    let here = DirEntries::new(&dir, own);
    let (mut entries, mut next) = (Vec::with_capacity(names.len()), 0);
    for name in names {
        let below = || join(&path, name.to_bytes());
        if path == b"." && is_hidden(name.to_bytes()) {
            continue;
        }
        let mut one = || {
            let Some(facts) = here.stat(&name)? else {
                return Ok(None);
            };
            let (others, marked) = here.xattr_kinds(&name)?;
            let xattrs = if others {
                xattrs(root, &below())?
            } else {
                Vec::new()
            };
            let number = numbers.and_then(|(table, tier)| table.find(tier, facts.id, &mut next));
            // Without a time of birth the entry can be of an earlier file with this inode, so the attribute goes before it.
            let unsure = number.is_none() || facts.id.born == 0;
            let trusts = numbers.is_some_and(|(table, tier)| table.trusts_files(tier));
            let number = number.filter(|_| trusts || !unsure);
            let ask = marked && unsure && trusts;
            let mark = if ask { here.mark(&name) } else { None };
            let number = number.filter(|_| mark.and_then(|m| decode(m, facts.id)).is_none());
            let target = if facts.mode & TYPE == LNK {
                let to = rustix::fs::readlinkat(&dir, &name, Vec::new())?;
                to.into_bytes().into()
            } else {
                Box::default()
            };
            let is_dir = facts.mode & TYPE == DIR;
            Ok(Some(DirEntry {
                path: is_dir.then(below).unwrap_or_default(),
                name: name.to_bytes().to_vec(),
                facts,
                xattrs,
                target,
                number,
                mark,
            }))
        };
        match one() {
            // It was removed meanwhile.
            Ok(None) | Err(Errno::NOENT | Errno::INVAL) => {}
            Ok(Some(entry)) => entries.push(entry),
            Err(e) => return Err(Failed(below(), e)),
        }
    }
    let rest = (!rest.is_empty()).then(|| Job::Rest(dir, path, rest));
    Ok((entries, rest))
}

fn list(root: &Root, path: &[u8]) -> Result<(OwnedFd, Vec<CString>), Errno> {
    let dir = root.directory(path)?;
    let mut entries = Vec::new();
    for entry in rustix::fs::Dir::read_from(&dir)? {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            entries.push((entry.ino(), entry.file_name().to_owned()));
        }
    }
    // By inode number, because on most file systems the inodes lie on the device in that order.
    entries.sort_unstable_by_key(|e| e.0);
    Ok((dir, entries.into_iter().map(|e| e.1).collect()))
}
