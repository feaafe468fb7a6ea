//! Uses of files that begin and end at the same time.

use super::*;
use crate::store::Store;

fn another(store: &Store) -> (NodeId, Arc<Live>) {
    let (node, live, _) = store.create(0, b"g", 0o600, crate::store::me()).unwrap();
    (node, live)
}

/// A claim always comes before the lock of a descriptor. So a thread that opens a file which is not at its path must not hold the lock of
/// the descriptor while it waits for the claim.
#[test]
fn an_open_that_waits_for_a_claim_holds_no_descriptor() {
    let dir = tempfile::tempdir().unwrap();
    let (store, node, live) = crate::store::with_a_file(dir.path());
    store.release(&live);
    std::fs::remove_file(dir.path().join("fast/f")).unwrap();
    std::thread::scope(|scope| {
        let claim = store.names.claim(|cat, all| all.node(cat, node)).unwrap();
        let open = scope.spawn(|| store.live(node).map(|_| ()));
        let pause = || std::thread::sleep(std::time::Duration::from_millis(300));
        while store.open.count() == 0 && !open.is_finished() {
            pause();
        }
        pause();
        let live = store.open.get(node).unwrap();
        let free = live.state.try_read().is_ok();
        drop(claim);
        assert_eq!(open.join().unwrap(), Err(Errno::STALE));
        assert!(free, "the descriptor is locked");
    });
    assert_eq!(store.open.count(), 0);
}

/// The last close of a file waits for its tier, here because the file is locked by a move that waits for it. Meanwhile other files are
/// opened and closed, and the file itself is opened again.
#[test]
fn a_close_that_waits_for_its_tier_blocks_no_other_file() {
    let dir = tempfile::tempdir().unwrap();
    let (store, node, live) = crate::store::with_a_file(dir.path());
    let (other, new) = another(&store);
    store.release(&new);
    let users = || live.users.load(Ordering::SeqCst);
    let (tell, hear) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let waits = live.state.write().unwrap();
        live.used.store(true, Ordering::SeqCst);
        let close = scope.spawn(|| store.release(&live));
        let begun = std::time::Instant::now();
        while live.used.load(Ordering::SeqCst) && begun.elapsed().as_secs() < 2 {
            std::thread::yield_now();
        }
        scope.spawn(|| {
            let opened = store.live(other).map(|l| store.release(&l));
            tell.send(opened).unwrap();
        });
        let again = scope.spawn(|| store.live(node));
        let heard = hear.recv_timeout(std::time::Duration::from_secs(20));
        while heard.is_ok() && users() < 2 {
            std::thread::yield_now();
        }
        drop(waits);
        assert_eq!(heard, Ok(Ok(())), "another file waits, too");
        let again = again.join().unwrap().unwrap();
        close.join().unwrap();
        assert!(Arc::ptr_eq(&again, &live), "one descriptor for all users");
        store.release(&again);
    });
    assert_eq!((store.open.count(), users()), (0, 0));
}

/// The last name of a file is removed and the kernel forgets it before its last close is done: its number is not given to a new file,
/// which would then share the descriptor of the old one.
#[test]
fn the_number_of_a_file_in_use_is_not_given_to_another() {
    let dir = tempfile::tempdir().unwrap();
    let (store, node, live) = crate::store::with_a_file(dir.path());
    store.cat_mut().refer(node);
    store.unlink(0, b"f").unwrap();
    store.cat_mut().forget(node, 1);
    let (other, new) = another(&store);
    assert!(other != node && !Arc::ptr_eq(&new, &live));
    store.release(&live);
    assert!(store.cat().get(node).is_none());
    store.release(&new);
}

/// The mover begins to use a file while another thread asks for its attributes. The file has no descriptor yet.
#[test]
fn a_file_that_is_being_opened_has_attributes() {
    let dir = tempfile::tempdir().unwrap();
    let (store, node, live) = crate::store::with_a_file(dir.path());
    store.release(&live);
    let half = Arc::new(Live::new(node));
    store.open.all.lock().unwrap().insert(node, half);
    assert_eq!(store.facts(node).map(|f| f.mode & 0o7777), Ok(0o600));
}

/// A move may keep the descriptor for long, if a tier does not answer. The attributes are those of that moment, and later ones are not hidden.
#[test]
fn attributes_are_answered_while_a_move_keeps_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let (store, node, live) = crate::store::with_a_file(dir.path());
    store.write(&live, 0, b"12345", false).unwrap();
    let kept = live.freeze();
    let during = store.facts(node).unwrap();
    assert_eq!((during.size, during.nlink), (5, 1));
    // From another thread, which waits for the end.
    let (store, live) = (&store, &live);
    std::thread::scope(|s| {
        let writer = s.spawn(move || store.write(live, 5, b"6", false));
        assert_eq!(store.facts(node).unwrap(), during);
        drop(kept);
        writer.join().unwrap().unwrap();
    });
    assert_eq!(store.facts(node).unwrap().size, 6);
    store.release(live);
}
