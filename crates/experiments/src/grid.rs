//! Runs independent pieces of work on all cores.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use isotherm_lab::LabError;

/// Applies `f` to each item, `threads` at a time, and returns the results in the order of the items. The first error stops the rest.
pub(super) fn parallel<T: Sync, R: Send>(
    threads: usize,
    items: &[T],
    f: impl Fn(&T) -> Result<R, LabError> + Sync,
) -> Result<Vec<R>, LabError> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, Result<R, LabError>)>> = Mutex::default();
    let work = || {
        while let Some((i, item)) = {
            let i = next.fetch_add(1, Ordering::Relaxed);
            items.get(i).map(|item| (i, item))
        } {
            let r = f(item);
            if r.is_err() {
                next.store(items.len(), Ordering::Relaxed);
            }
            done.lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner)
                .push((i, r));
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.min(items.len()) {
            scope.spawn(work);
        }
        work();
    });
    let mut done = done
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    done.sort_by_key(|(i, _)| *i);
    done.into_iter().map(|(_, r)| r).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_order_and_errors_are_kept() {
        let items: Vec<u32> = (0..100).collect();
        let twice = parallel(3, &items, |x| Ok(x * 2)).unwrap();
        assert_eq!(twice, items.iter().map(|x| x * 2).collect::<Vec<_>>());
        let e = parallel(3, &items, |x| match x {
            50 => Err(LabError::setup("fifty")),
            x => Ok(*x),
        });
        assert_eq!(e.unwrap_err().to_string(), "fifty");
    }
}
