//! Runs independent jobs on all cores.

use rayon::ThreadPoolBuilder;
use rayon::prelude::*;

/// Applies `f` to each item, at most `threads` at a time. The results are in the order of the items.
pub fn parallel<T: Sync, R: Send>(
    threads: usize,
    items: &[T],
    f: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let jobs = || items.par_iter().with_max_len(1).map(&f).collect();
    on(threads, jobs, || items.iter().map(&f).collect())
}

/// The same for jobs that can fail.
///
/// # Errors
/// That of a job that failed. Jobs that have not begun by then do not run.
pub fn try_parallel<T: Sync, R: Send, E: Send>(
    threads: usize,
    items: &[T],
    f: impl Fn(&T) -> Result<R, E> + Sync,
) -> Result<Vec<R>, E> {
    let jobs = || items.par_iter().with_max_len(1).map(&f).collect();
    on(threads, jobs, || items.iter().map(&f).collect())
}

/// Calls `jobs` in a pool of `threads` threads; `alone`, if the machine gives no threads.
fn on<T: Send>(threads: usize, jobs: impl FnOnce() -> T + Send, alone: impl FnOnce() -> T) -> T {
    match ThreadPoolBuilder::new().num_threads(threads.max(1)).build() {
        Ok(pool) => pool.install(jobs),
        Err(_) => alone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_order() {
        let items: Vec<u32> = (0..100).collect();
        let twice: Vec<u32> = items.iter().map(|x| x * 2).collect();
        assert_eq!(parallel(3, &items, |x| x * 2), twice);
        assert_eq!(try_parallel(3, &items, |x| Ok::<_, ()>(x * 2)), Ok(twice));
        assert!(parallel(3, &[], |x: &u32| *x).is_empty());
    }

    #[test]
    fn an_error_is_kept() {
        let items: Vec<u32> = (0..100).collect();
        let result = try_parallel(3, &items, |x| if *x == 50 { Err("fifty") } else { Ok(*x) });
        assert_eq!(result, Err("fifty"));
    }
}
