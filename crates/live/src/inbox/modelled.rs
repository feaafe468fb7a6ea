//! Tests of the doorbell under every order of memory accesses, with loom. The queue is modelled by a count without any ordering of its own,
//! so only the doorbell's own fences are relied on.

mod atomics {
    pub use loom::sync::atomic::{AtomicBool, Ordering, fence};
}
#[expect(
    clippy::duplicate_mod,
    reason = "compiled once more, with the atomics above"
)]
#[path = "doorbell.rs"]
mod doorbell;

use doorbell::Doorbell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use loom::thread;

/// The number of pushed mails, and of rings.
#[derive(Default)]
struct Counts {
    mail: AtomicUsize,
    rung: AtomicUsize,
}

fn send(bell: &Doorbell, counts: &Counts) {
    counts.mail.fetch_add(1, Relaxed);
    if bell.must_ring() {
        counts.rung.fetch_add(1, Relaxed);
    }
}

/// With `senders` senders: a sleeper that saw no mail must be woken exactly once. With more than one sender, at most two voluntary switches
/// between threads are tried, because more would take minutes.
fn no_wake_up_is_lost(senders: usize) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = (senders > 1).then_some(2);
    model.check(move || {
        let bell = Arc::new(Doorbell::new());
        let counts = Arc::new(Counts::default());
        let threads: Vec<_> = (0..senders)
            .map(|_| {
                let (bell, counts) = (bell.clone(), counts.clone());
                thread::spawn(move || send(&bell, &counts))
            })
            .collect();
        let asleep = bell.prepare_sleep(|| counts.mail.load(Relaxed) > 0);
        for t in threads {
            t.join().unwrap();
        }
        let rung = counts.rung.load(Relaxed);
        assert!(!asleep || rung == 1, "asleep, and rung {rung} times");
        assert!(rung <= 1, "rung {rung} times");
    });
}

#[test]
fn a_sleeper_is_woken_by_one_sender() {
    no_wake_up_is_lost(1);
}

#[test]
fn a_sleeper_is_woken_once_by_two_senders() {
    no_wake_up_is_lost(2);
}

#[test]
fn a_request_pushed_at_the_end_is_refused() {
    loom::model(|| {
        let bell = Arc::new(Doorbell::new());
        let counts = Arc::new(Counts::default());
        let (theirs, mail) = (bell.clone(), counts.clone());
        let sender = thread::spawn(move || {
            send(&theirs, &mail);
            if theirs.has_ended() {
                mail.mail.swap(0, Relaxed)
            } else {
                0
            }
        });
        bell.end();
        let refused = counts.mail.swap(0, Relaxed) + sender.join().unwrap();
        assert_eq!((refused, counts.mail.load(Relaxed)), (1, 0));
    });
}

/// The model can find a lost wake-up: without the sender's fence it finds one.
#[test]
#[should_panic(expected = "asleep")]
fn without_a_fence_a_wake_up_is_lost() {
    use atomics::AtomicBool;
    loom::model(|| {
        let sleeping = Arc::new(AtomicBool::new(false));
        let mail = Arc::new(AtomicUsize::new(0));
        let (theirs, sent) = (sleeping.clone(), mail.clone());
        let sender = thread::spawn(move || {
            sent.fetch_add(1, Relaxed);
            theirs.load(Relaxed)
        });
        sleeping.store(true, Relaxed);
        atomics::fence(atomics::Ordering::SeqCst);
        let asleep = mail.load(Relaxed) == 0;
        let rung = sender.join().unwrap();
        assert!(!asleep || rung, "asleep, and nobody rang");
    });
}
