//! Which changes wait for which.

use super::*;
use crate::catalogue::Body;
use crate::tree::Facts;
use std::sync::mpsc::channel;

/// `/a/f`, `/a/g` (also `/b/g`), `/b`.
fn tree() -> (Catalogue, [NodeId; 4]) {
    let mut cat = Catalogue::new(Facts::default(), 1);
    let mut add = |dir, name: &[u8], body| cat.add(dir, name, 0, Facts::default(), body).unwrap();
    let (a, b) = (add(ROOT, b"a", Body::Dir(1)), add(ROOT, b"b", Body::Dir(1)));
    let (f, g) = (add(a, b"f", Body::File), add(a, b"g", Body::File));
    cat.link(g, b, b"g");
    (cat, [a, b, f, g])
}

fn wanted(of: impl FnOnce(&mut Wanted)) -> Wanted {
    let mut all = Wanted::default();
    of(&mut all);
    all
}

#[test]
fn only_changes_of_the_same_thing_wait() {
    let (cat, [a, b, f, g]) = tree();
    let chmod = |n| wanted(|w| w.node(&cat, n));
    let create = |d, name: &[u8]| wanted(|w| w.name(&cat, d, name));
    let remove = |d, name: &[u8]| wanted(|w| w.name_and_node(&cat, d, name));
    let moves = |n| wanted(|w| w.all_names(&cat, n));
    let check = || wanted(|w| w.alone(Key::Path(ROOT)));
    let times = |d| {
        wanted(|w| {
            w.alone(Key::Times(d));
            w.alone(Key::Node(d));
        })
    };
    let apart = [
        (chmod(f), chmod(g)),
        (chmod(f), chmod(a)),
        (chmod(f), create(a, b"new")),
        (chmod(a), create(a, b"new")),
        (chmod(f), remove(a, b"g")),
        (create(a, b"x"), create(a, b"y")),
        (create(a, b"x"), create(b, b"x")),
        (moves(f), create(a, b"new")),
        (moves(f), moves(g)),
        (moves(f), times(a)),
        (remove(ROOT, b"b"), chmod(f)),
    ];
    for (x, y) in &apart {
        assert!(!x.conflicts(y) && !y.conflicts(x), "{x:?} {y:?}");
    }
    let together = [
        (chmod(f), chmod(f)),
        (chmod(f), remove(a, b"f")),
        (chmod(f), moves(f)),
        (create(a, b"x"), create(a, b"x")),
        (create(a, b"x"), times(a)),
        (chmod(a), times(a)),
        // Below a directory that is renamed or removed; a second name of a file counts as well.
        (remove(ROOT, b"a"), chmod(f)),
        (remove(ROOT, b"a"), create(a, b"x")),
        (remove(ROOT, b"a"), moves(f)),
        (remove(ROOT, b"b"), chmod(g)),
        (remove(a, b"g"), remove(b, b"g")),
        // A file that is still being made is not moved.
        (create(a, b"f"), moves(f)),
        (check(), chmod(ROOT)),
        (check(), chmod(f)),
        (check(), create(ROOT, b"x")),
        (check(), remove(a, b"g")),
        (check(), moves(f)),
    ];
    for (x, y) in &together {
        assert!(x.conflicts(y) && y.conflicts(x), "{x:?} {y:?}");
    }
}

const SOON: Duration = Duration::from_millis(1);

#[test]
fn what_is_claimed_is_free_again_at_the_end() {
    let (cat, [a, _, f, _]) = tree();
    let claims = Claims::default();
    let claim = |w: &Wanted| claims.claim(Stage::First, SOON, || w.clone());
    let (chmod, rename) = (
        wanted(|w| w.node(&cat, f)),
        wanted(|w| w.name_and_node(&cat, ROOT, b"a")),
    );
    let other = wanted(|w| w.name(&cat, a, b"x"));
    let held = [claim(&chmod).unwrap(), claim(&other).unwrap()];
    assert!(claim(&chmod).is_none() && claim(&rename).is_none());
    let [first, second] = held;
    drop(first);
    assert!(claim(&rename).is_none(), "the path is still in use");
    drop(second);
    let renamed = claim(&rename).unwrap();
    assert!(claim(&other).is_none());
    drop(renamed);
    assert!(claims.table().held.is_empty() && claims.table().waiting.is_empty());
}

/// A rename of a directory waits for a change below it that hangs. Later changes below it wait for the rename for about a second and not
/// longer; changes elsewhere, and claims of the second stage, do not wait at all.
#[test]
fn a_change_that_waits_goes_first_but_not_for_long() {
    let (cat, [a, b, f, _]) = tree();
    let claims = Claims::default();
    let (rename, chmod) = (
        wanted(|w| w.name_and_node(&cat, ROOT, b"a")),
        wanted(|w| w.node(&cat, f)),
    );
    let (below, elsewhere) = (
        wanted(|w| w.name(&cat, a, b"x")),
        wanted(|w| w.name(&cat, b, b"x")),
    );
    let hung = claims.claim(Stage::First, SOON, || chmod.clone()).unwrap();
    std::thread::scope(|scope| {
        let (tell, begun) = channel();
        let renaming = scope.spawn(|| {
            let wanted = move || {
                // The receiver hears the first time only.
                let _ = tell.send(());
                rename.clone()
            };
            claims.claim(Stage::First, Duration::MAX, wanted).is_some()
        });
        begun.recv().unwrap();
        while claims.table().waiting.is_empty() {
            std::thread::yield_now();
        }
        let since = Instant::now();
        let at = |stage, limit, w: &Wanted| claims.claim(stage, limit, || w.clone());
        assert!(at(Stage::First, SOON, &elsewhere).is_some());
        assert!(at(Stage::Second, SOON, &below).is_some());
        let early = at(Stage::First, SOON, &below);
        // On a machine that is very busy, the second may be over.
        assert!(early.is_none() || since.elapsed() >= PRECEDENCE.0);
        drop(early);
        assert!(at(Stage::First, Duration::from_secs(60), &below).is_some());
        drop(hung);
        assert!(renaming.join().unwrap());
    });
    assert!(claims.table().held.is_empty() && claims.table().waiting.is_empty());
}
