//! Stamps the volume on a thread of its own while the engine's thread works on the members without the ring (`reopen.rs`). So a server on
//! another machine that claims the volume meanwhile sees that it is served, however long this takes.

use super::heartbeat::now;
use crate::device::{Device, PastCache};
use crate::error::{Error, ErrorKind};
use crate::mutants::{LiveMutant, broken};
use crate::stamp::{self, FoundStamp, INTERVAL, Kind, LEASE, Stamp};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// If the block that was read shows that another server has the volume, the message about it. `written_at` is the time of our last stamp.
pub(super) fn overtaken_by(stamp: &Stamp, written_at: Duration, block: &[u8]) -> Option<String> {
    let seen = FoundStamp::decode(block);
    let claimed = seen.as_ref().is_some_and(|s| s.kind == Kind::Claim);
    // A server that claims the volume waits longer than our lease, so it sees our next write and gives up.
    let in_time = claimed && now().saturating_sub(written_at) <= LEASE;
    if stamp.is_last(block) || in_time || broken(LiveMutant::ServeOvertaken) {
        return None;
    }
    let who = seen.map_or_else(|| "somebody".into(), |s| s.words());
    Some(format!(
        "the volume was taken over by {who} while this server did not stamp it"
    ))
}

/// The stamp, as the thread keeps it.
pub(super) struct KeptStamp {
    pub stamp: Stamp,
    /// Time at which the write of the last stamp began.
    pub written_at: Duration,
    pub outcome: Result<(), Error>,
    file: PastCache,
    path: PathBuf,
}

/// The thread.
pub(crate) struct Stamping {
    over: Arc<(Mutex<bool>, Condvar)>,
    thread: JoinHandle<KeptStamp>,
}

impl KeptStamp {
    fn failed(&self, e: &io::Error) -> Error {
        let what = format!(
            "{}: the activity stamp cannot be read or written ({e}): check the device",
            self.path.display()
        );
        Error::new(ErrorKind::Device, what)
    }

    fn renew(&mut self) -> Result<(), Error> {
        let since = now();
        let block = stamp::read_in(&self.file).map_err(|e| self.failed(&e))?;
        if let Some(what) = overtaken_by(&self.stamp, self.written_at, &block) {
            return Err(Error::new(ErrorKind::InUse, what));
        }
        let put = self.stamp.put_in(&self.file, Kind::Serving);
        put.map_err(|e| self.failed(&e))?;
        self.written_at = since;
        Ok(())
    }

    /// Renews the stamp at intervals, until `over` is set or that fails.
    fn keep(mut self, over: &(Mutex<bool>, Condvar)) -> KeptStamp {
        while self.outcome.is_ok() {
            let lock = over.0.lock().unwrap_or_else(PoisonError::into_inner);
            let waited = (over.1).wait_timeout_while(lock, INTERVAL, |over| !*over);
            if *waited.unwrap_or_else(PoisonError::into_inner).0 {
                break;
            }
            self.outcome = self.renew();
        }
        self
    }
}

impl Stamping {
    /// Starts the thread; `stamp` was written on `device` at this time. `None` if that is not possible.
    pub(super) fn start(stamp: Stamp, device: &Device, written_at: Duration) -> Option<Stamping> {
        let kept = KeptStamp {
            stamp,
            written_at,
            outcome: Ok(()),
            file: device.past_cache.try_clone().ok()?,
            path: device.path.clone(),
        };
        let over = Arc::new((Mutex::new(false), Condvar::new()));
        let for_thread = Arc::clone(&over);
        let thread = std::thread::Builder::new().name("isotherm-stamp".into());
        let thread = thread.spawn(move || kept.keep(&for_thread)).ok()?;
        Some(Stamping { over, thread })
    }

    /// Ends the thread.
    pub(super) fn end(self) -> Result<KeptStamp, Error> {
        *self.over.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.over.1.notify_all();
        let what = "the thread of the activity stamp died";
        self.thread
            .join()
            .map_err(|_| Error::new(ErrorKind::System, what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::OpenHow;
    use std::time::Instant;

    fn wait(what: &str, mut is_so: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !is_so() {
            assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    #[test]
    fn the_stamp_is_renewed_meanwhile_and_another_server_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let how = OpenHow {
            create: Some(1 << 20),
            ..OpenHow::default()
        };
        let device = Device::open(&dir.path().join("d"), how).unwrap();
        let mut ours = Stamp::new([3; 16]).unwrap();
        ours.put(&device, Kind::Serving).unwrap();
        let before = ours.clone();
        let stamping = Stamping::start(ours, &device, now()).unwrap();
        // One who claims the volume would see this.
        wait("a new stamp", || !before.is_on(&device).unwrap());
        let kept = stamping.end().unwrap();
        assert!(kept.outcome.is_ok() && kept.stamp.is_on(&device).unwrap());
        // Another server has begun to serve the volume.
        let mut other = Stamp::new([3; 16]).unwrap();
        let stamping = Stamping::start(kept.stamp, &device, kept.written_at).unwrap();
        other.put(&device, Kind::Serving).unwrap();
        wait("the end", || stamping.thread.is_finished());
        let kept = stamping.end().unwrap();
        assert_eq!(kept.outcome.unwrap_err().kind, ErrorKind::InUse);
        assert!(other.is_on(&device).unwrap(), "its stamp stays");
    }
}
