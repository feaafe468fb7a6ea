use super::*;

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
