//! When the engine's thread must be woken, and when it may sleep.
//!
//! Each side writes one thing and then reads the other: a sender pushes mail and reads "sleeping", the engine's thread writes
//! "sleeping" and looks for mail. The sequentially consistent fence between the two steps on both sides means that at least
//! one of them sees the other, so no request waits for a thread that sleeps. The end of a volume is the same handshake with
//! "ended" in place of "sleeping": whoever pushed too late for the engine's thread sees that it has gone.
//!
//! `modelled.rs` runs this file under every order of memory accesses that the language allows.

use super::atomics::{AtomicBool, Ordering, fence};

/// See the module. One thread sleeps, any number may ring.
pub struct Doorbell {
    sleeping: AtomicBool,
    ended: AtomicBool,
}

impl Doorbell {
    /// Awake, and not ended.
    pub fn new() -> Doorbell {
        Doorbell {
            sleeping: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        }
    }

    /// After mail was pushed: must the caller ring? Of several callers one is told so.
    pub fn must_ring(&self) -> bool {
        fence(Ordering::SeqCst);
        self.sleeping.load(Ordering::Relaxed) && self.sleeping.swap(false, Ordering::Relaxed)
    }

    /// The sleeper is about to sleep; false if it must not, since `mail` says that something is there.
    pub fn doze(&self, mail: impl FnOnce() -> bool) -> bool {
        self.sleeping.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if mail() {
            self.awake();
            return false;
        }
        true
    }

    /// The sleeper is awake again.
    pub fn awake(&self) {
        self.sleeping.store(false, Ordering::Relaxed);
    }

    /// The sleeper goes for good. It must look for mail once more after this.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// After [`Doorbell::must_ring`], which has the fence: has the sleeper gone? Then the caller must look for mail itself.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }
}
