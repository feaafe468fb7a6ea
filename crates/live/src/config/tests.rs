//! Descriptions are read back as they were written, and errors name every wrong field.

use super::*;

const GOOD: &str = r#"
        name = "v"
        extent = "64K"
        policy = "greendm,PT=2"
        [io]
        buffers = "32M"
        [[members]]
        path = "fast"
        tier = 0
        size = "64M"
        [[members]]
        path = "slow"
        tier = 1
        size = "256M"
        paced = "wd5000aaks"
        span = "full"
        standby_s = 300.0
    "#;

fn error(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from}");
    VolumeConfig::parse(&GOOD.replacen(from, to, 1), Path::new("p/v.toml"))
        .unwrap_err()
        .to_string()
}

#[test]
fn what_is_written_is_read_back() {
    let c = VolumeConfig::parse(GOOD, Path::new("p/v.toml")).unwrap();
    assert_eq!(
        (c.extent, c.io.buffers, c.members[1].size),
        (Size(65536), Size(32 << 20), Some(Size(256 << 20)))
    );
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("v.toml");
    c.save(&file).unwrap();
    assert_eq!(VolumeConfig::load(&file), Ok(c));
}

/// A description that a configuration tool manages stays a link with its permissions, and a failed write leaves nothing behind.
#[test]
fn a_link_stays_a_link_and_nothing_half_written_is_left() {
    use std::os::unix::fs::PermissionsExt;
    let c = VolumeConfig::parse(GOOD, Path::new("p/v.toml")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (link, real) = (dir.path().join("v.toml"), dir.path().join("real"));
    std::fs::write(&real, "").unwrap();
    std::fs::set_permissions(&real, PermissionsExt::from_mode(0o600)).unwrap();
    std::os::unix::fs::symlink("real", &link).unwrap();
    c.save(&link).unwrap();
    assert!(link.is_symlink());
    assert_eq!(VolumeConfig::load(&real), Ok(c.clone()));
    let mode = real.metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let taken = dir.path().join("taken.toml");
    std::fs::create_dir(&taken).unwrap();
    c.save(&taken).unwrap_err();
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 3);
}

#[test]
fn every_wrong_field_is_named_with_what_it_may_be() {
    for (from, to, want) in [
        (
            "extent =",
            "extend =",
            "unknown field `extend`: did you mean `extent`?",
        ),
        (
            "buffers =",
            "bufers =",
            "[io]: unknown field `bufers`: did you mean `buffers`?",
        ),
        (
            "path = \"slow\"",
            "pth = \"slow\"",
            "member 1: unknown field `pth`: did you mean `path`?",
        ),
        (
            "standby_s",
            "standby",
            "member 1: unknown field `standby`: did you mean `standby_s`?",
        ),
        (
            "greendm",
            "grendm",
            "no policy `grendm`: did you mean `greendm`?",
        ),
        ("PT=2", "PTT=2", "no parameter `PTT`: did you mean `PT`?"),
        ("PT=2", "PT=0", "PT: "),
        ("PT=2", "PT=x", "PT: a number"),
        ("PT=2", "PT", "`PT` is no parameter: write KEY=VALUE"),
        ("\"64K\"", "\"60K\"", "extent: 60K is not a power of two"),
        ("\"64K\"", "\"64Q\"", "`64Q` is no size"),
        ("\"64K\"", "-5", "negative"),
        ("\"64K\"", "true", "a size: bytes"),
        ("\"32M\"", "\"1M\"", "[io]: buffers: from 4M"),
        ("tier = 1", "tier = 2", "tier 1 has none"),
        ("tier = 1", "tier = 9", "member 1: tier: from 0"),
        ("tier = 1", "", "missing field `tier`"),
        ("wd5000aaks", "wd5000aax", "wd5000aaks"),
        ("\"full\"", "\"some\"", "member 1: span: `some`"),
        (
            "paced = \"wd5000aaks\"",
            "",
            "span: only together with `paced`",
        ),
        ("300.0", "0.0", "standby_s: from 1"),
        ("\"64M\"", "\"64\"", "member 0: size: at least 1M"),
        ("name = \"v\"", "name = \"a/b\"", "name: "),
        (
            "name = \"v\"",
            "name = \"v\"\nuuid = \"12\"",
            "uuid: 32 hex",
        ),
    ] {
        let e = error(from, to);
        assert!(e.starts_with("p/v.toml: ") && e.contains(want), "{to}: {e}");
    }
}

#[test]
fn sizes() {
    for (text, bytes) in [
        ("4096", 4096),
        ("64K", 65536),
        ("1.5G", 3 << 29),
        ("2 TiB", 2 << 40),
        ("0", 0),
    ] {
        assert_eq!(Size::parse(text), Ok(Size(bytes)), "{text}");
    }
    for text in ["", "K", "-1", "1e30T", "99999999T", "nan", "8X"] {
        assert!(Size::parse(text).is_err(), "{text}");
    }
    assert_eq!(
        [Size(0), Size(65536), Size(1000), Size(3 << 30)].map(|s| s.to_string()),
        ["0", "64K", "1000", "3G"]
    );
}
