//! Runs independent jobs on all cores.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Computes `f(0)`, `f(1)`, … `f(n - 1)` on `threads` threads. The results are in order.
pub fn parallel<T: Send>(n: usize, threads: usize, f: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<Option<T>>> = Mutex::new((0..n).map(|_| None).collect());
    let work = || {
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            if i >= n {
                return;
            }
            let result = f(i);
            // A poisoned lock means that another job panicked; the scope passes that panic on.
            if let Ok(mut r) = results.lock() {
                r[i] = Some(result);
            }
        }
    };
    std::thread::scope(|s| {
        for _ in 1..threads.clamp(1, n.max(1)) {
            s.spawn(work);
        }
        work();
    });
    results
        .into_inner()
        .map(|r| r.into_iter().flatten().collect())
        .unwrap_or_default()
}
