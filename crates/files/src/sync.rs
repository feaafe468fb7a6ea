//! Locks that a panic of another thread does not close: what they guard is whole at each step.

use std::cell::RefCell;
use std::ops::Deref;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Takes a lock.
pub(crate) fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes a lock together with others who read.
pub(crate) fn read_lock<T>(l: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    l.read().unwrap_or_else(PoisonError::into_inner)
}

/// Takes a lock alone.
pub(crate) fn write_lock<T>(l: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    l.write().unwrap_or_else(PoisonError::into_inner)
}

/// A lock that readers share. A thread that reads may read again: with a lock that lets a writer go first, that writer would stop the second
/// reader, and the first reader the writer, for ever. (A guard in an expression lives as long as the expression, so this is written easily.)
#[derive(Debug)]
pub(crate) struct Shared<T>(parking_lot::RwLock<T>);

/// A lock that is held for reading; see [`Shared`].
#[derive(Debug)]
pub struct ReadGuard<'a, T>(parking_lot::RwLockReadGuard<'a, T>);

thread_local! {
    /// The locks that this thread reads, by their addresses.
    static READ: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

impl<T> Shared<T> {
    pub(crate) const fn new(value: T) -> Shared<T> {
        Shared(parking_lot::RwLock::new(value))
    }
    pub(crate) fn read(&self) -> ReadGuard<'_, T> {
        let at = std::ptr::from_ref(&self.0).addr();
        let again = READ.with_borrow(|all| all.contains(&at));
        let guard = if again {
            self.0.read_recursive()
        } else {
            self.0.read()
        };
        READ.with_borrow_mut(|all| all.push(at));
        ReadGuard(guard)
    }
    pub(crate) fn write(&self) -> parking_lot::RwLockWriteGuard<'_, T> {
        self.0.write()
    }
}

impl<T> Deref for ReadGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> Drop for ReadGuard<'_, T> {
    fn drop(&mut self) {
        let at = std::ptr::from_ref(parking_lot::RwLockReadGuard::rwlock(&self.0)).addr();
        READ.with_borrow_mut(|all| {
            if let Some(last) = all.iter().rposition(|a| *a == at) {
                all.swap_remove(last);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::Shared;
    use std::sync::Arc;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    /// A writer that came in between does not stop the second reader, and gets the lock after both.
    #[test]
    fn a_thread_may_read_again_while_a_writer_waits() {
        let lock = Arc::new(Shared::new(1));
        let (tell, told) = channel();
        let reader = Arc::clone(&lock);
        // (Not joined if it waits for ever.)
        std::thread::spawn(move || {
            let first = reader.read();
            let writer = Arc::clone(&reader);
            let writer = std::thread::spawn(move || *writer.write() += 1);
            // Nobody else may read while a writer waits.
            while reader.0.try_read().is_some() {
                std::thread::yield_now();
            }
            let sum = *first + *reader.read();
            drop(first);
            writer.join().unwrap();
            tell.send(sum + *reader.read()).unwrap();
        });
        assert_eq!(told.recv_timeout(Duration::from_secs(60)), Ok(4));
    }
}
