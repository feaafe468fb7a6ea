//! Errors of the syncs of a file in use. All its users share one descriptor, and the kernel tells it an error of lost data once. But each user
//! must be told, as if he had a descriptor of his own: else the others take data for durable that is lost.

use crate::sync::{lock, read_lock, write_lock};
use rustix::io::Errno;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, RwLock};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Syncs {
    /// Held to read while the kernel syncs the file, until an error of that is entered.
    going: RwLock<()>,
    /// The number of errors so far, and the last one.
    errors: Mutex<(u64, Option<Errno>)>,
}

/// The number of errors of which one user of a file was told.
#[derive(Debug)]
pub(crate) struct Told(AtomicU64);

impl Syncs {
    /// A new user. Of what was lost before, he knows nothing.
    pub(crate) fn user(&self) -> Told {
        Told(AtomicU64::new(lock(&self.errors).0))
    }
    /// Carries a sync out.
    pub(crate) fn carry_out(&self, sync: impl FnOnce() -> Result<(), Errno>) -> Result<(), Errno> {
        let _going = read_lock(&self.going);
        sync().inspect_err(|e| {
            let mut errors = lock(&self.errors);
            *errors = (errors.0 + 1, Some(*e));
        })
    }
    /// What a user is told whose sync ended so: also an error that the kernel told another one.
    pub(crate) fn tell(&self, told: &Told, done: Result<(), Errno>) -> Result<(), Errno> {
        if done.is_ok() {
            // A sync that was going at the same time may have got the error.
            drop(write_lock(&self.going));
        }
        let (all, last) = *lock(&self.errors);
        let before = told.0.swap(all, Ordering::SeqCst);
        done.and(last.filter(|_| before < all).map_or(Ok(()), Err))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    #[test]
    fn each_user_is_told_of_an_error_once() {
        let syncs = Syncs::default();
        let users = [syncs.user(), syncs.user()];
        let lost = syncs.carry_out(|| Err(Errno::IO));
        assert_eq!(syncs.tell(&users[0], lost), Err(Errno::IO));
        let late = syncs.user();
        for (user, is) in [
            (&users[0], Ok(())),
            (&users[1], Err(Errno::IO)),
            (&late, Ok(())),
        ] {
            assert_eq!(syncs.tell(user, syncs.carry_out(|| Ok(()))), is);
            assert_eq!(syncs.tell(user, syncs.carry_out(|| Ok(()))), Ok(()));
        }
    }

    /// The kernel has told one user, who has not entered it yet; the sync of the other one ends well in between.
    #[test]
    fn an_error_of_a_sync_at_the_same_time_is_told() {
        let syncs = Syncs::default();
        let (one, other) = (syncs.user(), syncs.user());
        let (tell, told) = channel();
        let (go_on, waits) = channel::<()>();
        std::thread::scope(|s| {
            let (syncs, one) = (&syncs, &one);
            s.spawn(move || {
                let done = syncs.carry_out(|| {
                    tell.send(()).unwrap();
                    let _ = waits.recv_timeout(Duration::from_millis(300));
                    Err(Errno::IO)
                });
                assert_eq!(syncs.tell(one, done), Err(Errno::IO));
            });
            told.recv().unwrap();
            let done = syncs.carry_out(|| Ok(()));
            assert_eq!(syncs.tell(&other, done), Err(Errno::IO));
        });
        drop(go_on);
    }
}
