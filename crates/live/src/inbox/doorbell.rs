//! Decides when the engine's thread must be woken, and when it may sleep.
//!
//! Each side writes one variable and then reads the other: a sender pushes mail and reads "sleeping"; the engine's thread writes "sleeping"
//! and looks for mail. With the sequentially consistent fence between the two steps on both sides, at least one of them sees the other's
//! write, so no request waits for a sleeping thread. The end of a volume is the same handshake with "ended" in place of "sleeping": a
//! sender that pushed too late sees that the engine's thread has ended.
//!
//! `modelled.rs` runs this file under every order of memory accesses that the language allows.

use super::atomics::{AtomicBool, Ordering, fence};

/// See the module. One thread sleeps, any number of threads may ring.
pub struct Doorbell {
    sleeping: AtomicBool,
    ended: AtomicBool,
}

impl Doorbell {
    /// A doorbell whose thread is awake and has not ended.
    pub fn new() -> Doorbell {
        Doorbell {
            sleeping: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        }
    }

    /// After mail was pushed: whether the caller must ring. Of several callers, exactly one gets true.
    pub fn must_ring(&self) -> bool {
        fence(Ordering::SeqCst);
        self.sleeping.load(Ordering::Relaxed) && self.sleeping.swap(false, Ordering::Relaxed)
    }

    /// Called before the thread sleeps. Returns false if it must not sleep, because `mail` reports that there is some.
    pub fn prepare_sleep(&self, mail: impl FnOnce() -> bool) -> bool {
        self.sleeping.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if mail() {
            self.woken();
            return false;
        }
        true
    }

    /// Called when the thread has woken up.
    pub fn woken(&self) {
        self.sleeping.store(false, Ordering::Relaxed);
    }

    /// Called when the thread ends for good. It must look for mail once more after this.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// After [`Doorbell::must_ring`], which contains the fence: whether the thread has ended. Then the caller must remove the mail itself.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }
}
