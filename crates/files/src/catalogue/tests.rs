use super::*;
use std::collections::BTreeMap;

#[test]
fn names_links_and_numbers() {
    let mut c = Catalogue::new(Facts::default(), 3);
    let dir =
        |c: &mut Catalogue, up, name: &[u8]| c.add(up, name, 0, Facts::default(), Body::Dir(1));
    let a = dir(&mut c, ROOT, b"a").unwrap();
    let b = dir(&mut c, a, b"b").unwrap();
    let f = c.add(b, b"f", 1, Facts::default(), Body::File).unwrap();
    assert_eq!(c.path(f), Some(b"a/b/f".to_vec()));
    assert_eq!(c.find(b"a/b/f"), Some(f));
    c.link(f, ROOT, b"g");
    assert_eq!(c.paths(f), [b"a/b/f".to_vec(), b"g".to_vec()]);
    assert_eq!(c.get(f).unwrap().facts.nlink, 2);
    assert_eq!(c.unlink(b, b"f"), Some(f));
    assert_eq!((c.child(ROOT, b"g"), c.child(b, b"f")), (Some(f), None));
    assert_eq!(c.paths(f), [b"g".to_vec()]);
    assert!(c.is_below(b, a) && !c.is_below(a, b));
    c.rename(a, b"b", ROOT, b"c");
    assert_eq!(c.path(b), Some(b"c".to_vec()));
    assert_eq!(c.get(ROOT).unwrap().dir().unwrap().subdirs, 2);
    let h = c.add(ROOT, b"h", 0, Facts::default(), Body::File).unwrap();
    assert_eq!(c.rename(ROOT, b"h", ROOT, b"g"), Some(f));
    assert_eq!((c.files(), c.child(ROOT, b"g")), (2, Some(h)));
    assert!(c.drop_unused(f) && !c.drop_unused(h));
    let again = c.add(ROOT, b"f", 0, Facts::default(), Body::File).unwrap();
    assert_eq!((again, again as u32), (f + (1 << 32), f as u32));
    assert!(c.get(f).is_none() && c.path(f).is_none() && !c.hold(f) && !c.refer(f));
    assert_eq!((c.files(), c.files_on(0)), (2, 2));
}

/// Names that are made, linked, renamed, exchanged and removed at random, beside a map from directory and name to node.
#[test]
fn as_a_map_of_names() {
    let mut c = Catalogue::new(Facts::default(), 1);
    let mut model: BTreeMap<(NodeId, Vec<u8>), NodeId> = BTreeMap::new();
    let mut random = isotherm_core::random::SplitMix64::new(3);
    let mut dirs = vec![ROOT];
    for _ in 0..3_000 {
        let mut draw = |n: usize| (random.draw() % n as u64) as usize;
        let mut place = || (dirs[draw(dirs.len())], vec![b'n'; 1 + draw(9)]);
        let (a, b) = (place(), place());
        let is_dir = |c: &Catalogue, n: NodeId| c.get(n).unwrap().dir().is_some();
        let (x, y) = (model.get(&a).copied(), model.get(&b).copied());
        let below = |c: &Catalogue, dir, n: Option<NodeId>| n.is_some_and(|n| c.is_below(dir, n));
        match (draw(6), x, y) {
            (0, None, _) if dirs.len() < 12 => {
                let d = c.add(a.0, &a.1, 0, Facts::default(), Body::Dir(1));
                dirs.push(d.unwrap());
                model.insert(a, d.unwrap());
            }
            (1, None, _) => {
                let f = c.add(a.0, &a.1, 0, Facts::default(), Body::File);
                model.insert(a, f.unwrap());
            }
            (2, Some(x), None) if !is_dir(&c, x) => {
                c.link(x, b.0, &b.1);
                model.insert(b, x);
            }
            (3, Some(x), _) if c.get(x).unwrap().dir().is_none_or(Dir::is_empty) => {
                assert_eq!(c.unlink(a.0, &a.1), Some(x));
                model.remove(&a);
                let gone = c.drop_unused(x);
                assert_eq!(gone, !model.values().any(|n| *n == x));
                dirs.retain(|d| *d != x);
            }
            (4, Some(x), None) if !below(&c, b.0, Some(x)) => {
                assert_eq!(c.rename(a.0, &a.1, b.0, &b.1), None);
                model.remove(&a);
                model.insert(b, x);
            }
            (5, Some(x), Some(y))
                if x != y && !below(&c, b.0, Some(x)) && !below(&c, a.0, Some(y)) =>
            {
                c.unlink(a.0, &a.1);
                c.unlink(b.0, &b.1);
                c.link(x, b.0, &b.1);
                c.link(y, a.0, &a.1);
                model.extend([(a, y), (b, x)]);
            }
            _ => continue,
        }
        for dir in &dirs {
            let here: Vec<_> = model.iter().filter(|m| m.0.0 == *dir).collect();
            let list = c.list(*dir);
            for (at, ((_, name), node)) in here.iter().enumerate() {
                assert_eq!(
                    (list.get(at), c.child(*dir, name)),
                    (Some(&name[..]), Some(**node))
                );
                let names = model.values().filter(|n| n == node).count();
                assert_eq!(
                    (c.get(**node).unwrap().links(), c.paths(**node).len()),
                    (names, names)
                );
                assert!(c.names(**node).any(|n| n == (*dir, &name[..])));
            }
            let subdirs = here.iter().filter(|h| is_dir(&c, *h.1)).count();
            assert_eq!(c.get(*dir).unwrap().facts.nlink as usize, 2 + subdirs);
            assert_eq!(list.get(here.len()), None);
        }
    }
    assert!(model.len() > 10 && dirs.len() > 3);
}
