//! What is said to people while something takes long.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// Nothing is said before this time.
const FIRST: Duration = Duration::from_secs(10);
/// Then it is said again after this time.
const AGAIN: Duration = Duration::from_secs(60);

/// Calls `say` when something has taken long, and then now and again, until the result is dropped. `None`: there is no thread for it.
pub fn each_time(mut say: impl FnMut() + Send + 'static) -> Option<Sender<()>> {
    let (over, is_over) = channel();
    let waiting = move || {
        let mut pause = FIRST;
        while is_over.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
            say();
            pause = AGAIN;
        }
    };
    let thread = std::thread::Builder::new().name("patience".into());
    thread.spawn(waiting).is_ok().then_some(over)
}
