//! Threads for calls that may wait long for a tier, so that the threads of the session do not all wait.
//!
//! The session has a fixed number of threads, each of which takes a request from the kernel and carries it out. Calls on a tier that does not
//! answer would soon occupy all of them, and nobody would take the requests for other tiers. So at most all but one of them carry out calls
//! that may wait. Further ones go to other threads, as many as are needed.

use crate::sync::lock;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Time after which a thread without work ends.
const IDLE: Duration = Duration::from_secs(5);

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    idle: usize,
    at_work: usize,
}

/// See the module.
pub struct Helpers {
    /// How many of the session's threads may carry out calls that may wait.
    most: usize,
    /// How many of them do now.
    now: AtomicUsize,
    state: Mutex<State>,
    changed: Condvar,
}

/// A thread of the session carries out a call that may wait, until this is dropped.
pub(super) struct Turn<'a>(Option<&'a AtomicUsize>);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if let Some(now) = self.0 {
            now.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl Helpers {
    /// For a session with that many threads.
    pub(super) fn new(threads: usize) -> Helpers {
        Helpers {
            most: threads.saturating_sub(1),
            now: AtomicUsize::new(0),
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
    /// Whether this thread of the session may carry out a call itself; if not, the call has to be handed over.
    pub(super) fn turn(&self, may_wait: bool) -> Option<Turn<'_>> {
        if !may_wait {
            return Some(Turn(None));
        }
        let turn = Turn(Some(&self.now));
        (self.now.fetch_add(1, Ordering::SeqCst) < self.most).then_some(turn)
    }
    /// Carries out a call on another thread. If no thread can be started, the call is dropped, and the kernel gets EIO for it.
    pub(super) fn hand_over(self: &Arc<Self>, job: impl FnOnce() + Send + 'static) {
        let mut state = self.state();
        state.jobs.push_back(Box::new(job));
        let enough = state.idle >= state.jobs.len();
        drop(state);
        if enough {
            self.changed.notify_all();
            return;
        }
        let helpers = Arc::clone(self);
        let thread = std::thread::Builder::new().name("helper".into());
        if thread.spawn(move || helpers.work()).is_err() {
            let dropped = self.state().jobs.pop_back();
            drop(dropped);
        }
    }
    fn work(&self) {
        let mut state = self.state();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                state.at_work += 1;
                drop(state);
                job();
                state = self.state();
                state.at_work -= 1;
                self.changed.notify_all();
                continue;
            }
            state.idle += 1;
            let woken = self.changed.wait_timeout(state, IDLE);
            let (now, timeout) = woken.unwrap_or_else(PoisonError::into_inner);
            state = now;
            state.idle -= 1;
            if timeout.timed_out() && state.jobs.is_empty() {
                return;
            }
        }
    }
    /// Waits until all calls that were handed over have ended, at most that long.
    pub(crate) fn wait(&self, limit: Duration) {
        let until = Instant::now() + limit;
        let mut state = self.state();
        while state.at_work > 0 || !state.jobs.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let woken = self.changed.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    /// Of four threads, three may wait, and the fourth hands over. What is handed over runs at once, whatever else hangs.
    #[test]
    fn one_thread_of_the_session_always_stays_free() {
        let helpers = Arc::new(Helpers::new(4));
        let turns = [(); 3].map(|()| helpers.turn(true).unwrap());
        assert!(helpers.turn(true).is_none() && helpers.turn(true).is_none());
        assert!(helpers.turn(false).is_some());
        let (go, wait) = channel::<()>();
        let wait = Arc::new(Mutex::new(wait));
        let (tell, hear) = channel();
        for _ in 0..8 {
            let (wait, tell) = (Arc::clone(&wait), tell.clone());
            helpers.hand_over(move || {
                tell.send("begun").unwrap();
                // Each waits for a message of its own.
                let _ = wait.lock().unwrap().recv();
            });
        }
        for _ in 0..8 {
            assert_eq!(hear.recv_timeout(Duration::from_secs(60)), Ok("begun"));
        }
        let begun = Instant::now();
        helpers.wait(Duration::from_millis(10));
        assert!(begun.elapsed() >= Duration::from_millis(10));
        drop(go);
        helpers.wait(Duration::from_secs(60));
        assert_eq!(helpers.state().at_work, 0);
        drop(turns);
        assert!(helpers.turn(true).is_some());
        assert!(Helpers::new(1).turn(true).is_none());
    }
}
