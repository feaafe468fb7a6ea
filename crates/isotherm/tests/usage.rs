//! Wrong usage: the exit code, and one line that states the fix.

mod common;

use common::{Place, lines};

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario")]
fn wrong_calls_say_in_one_line_what_to_do() {
    let place = Place::new();
    std::fs::write(place.path("exists.toml"), "").expect("written");
    std::fs::write(place.path("bad.toml"), "polcy = \"greendm\"\n").expect("written");
    std::fs::write(place.path("text"), "no trace at all, just words\n").expect("written");
    std::os::unix::fs::symlink("nothing", place.path("dangling")).expect("made");
    let mut wrong = Vec::new();
    for (call, code, needle) in [
        ("", 2, "requires a subcommand"),
        ("", 2, "fstab, sim,"),
        ("creat v", 2, "'create'"),
        ("create", 2, "<VOLUME>"),
        ("create v", 2, "--config <FILE>|--fast"),
        ("create v --slwo a:1G", 2, "'--slow'"),
        ("create v --slow a", 1, "give a size"),
        ("create v --slow /dev/none", 1, "there is no such device"),
        // A file there would be in memory.
        (
            "create v --slow /dev/none:64M",
            1,
            "there is no such device",
        ),
        ("serve exists --nbd unix:exists.sock", 2, "control socket"),
        ("create v --slow a:0", 2, "is zero"),
        ("create v --slow a:99999999T", 2, "too large"),
        ("create v --slow a:9E", 2, "less than 8E"),
        (
            "create v --slow a:64M --policy greendm,PT=4,PT=16",
            2,
            "`PT` is given twice",
        ),
        ("status exists.toml", 1, "give the volume, `exists`"),
        ("status v.toml", 1, "named without `.toml`: `v`"),
        // Nothing is said about the front end of a volume that does not exist.
        ("serve v --device", 1, "no such volume"),
        (
            "serve exists.toml --nbd unix:s",
            1,
            "give the volume, `exists`",
        ),
        (
            "serve v --nbd unix:ddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd",
            2,
            "a socket's may have 107",
        ),
        ("create v --slow a:64Q", 2, "is no size"),
        ("create v --slow a:-1G", 2, "is no size"),
        ("create v --slow a:10%", 2, "give bytes"),
        // Not "use `-- -4`": that would be no value of the option.
        (
            "create v --slow a:64M --extent -4K",
            2,
            "no value is negative",
        ),
        (
            "sim exists --policy lru --fast-size 10% --address-bins 4294967295",
            2,
            "at most 1048576",
        ),
        (
            "sim exists --policy lru --fast-size 10% --address-bins 1000000 --time-bins 1000",
            2,
            "too much memory",
        ),
        (
            "sim exists --policy lru --fast-size 10% --standby nan",
            2,
            "standby: must be within",
        ),
        (
            "sim exists --policy lru --fast-size 10% --energy-bound",
            2,
            "needs --time trace",
        ),
        ("top --count -1", 2, "no value is negative"),
        ("create v\u{1b}m --slow a:64M", 2, "control characters"),
        (
            "create v --fast a:8M --slow b:64M --policy benefit,class=1-7+min=20",
            2,
            "at most 100 per cent (a min is that of each class",
        ),
        ("find .", 1, "is a directory"),
        ("create v/ --slow a:64M", 2, "is no name for a volume"),
        ("create v --slow dangling:64M", 1, "is a symbolic link to"),
        (
            "sim gen:zipf,requests=10,requests=20 --fast-size 10% --extent 64K",
            2,
            "`requests` is given twice",
        ),
        (
            "create v --slow a:1000001",
            2,
            "is not a multiple of the extent (64K): use 960K",
        ),
        ("create v --fast b:101% --slow a:64M", 2, "more than 100%"),
        ("create v --slow a:64M --extent 60K", 2, "power of two"),
        (
            "create v --slow a:64M --policy grendm",
            2,
            "nearest: `greendm`",
        ),
        (
            "create v --slow a:64M --policy greendm,PTT=1",
            2,
            "nearest: `PT`",
        ),
        ("create v --slow a:64M --policy greendm,PT=99", 2, "PT"),
        (
            "create v --slow a:64M --paced slow=wd5000aak",
            2,
            "wd5000aaks",
        ),
        (
            "create v --slow a:64M --paced 3=wd5000aaks",
            2,
            "tiers 0 to 0",
        ),
        (
            "create v --fast a:64M --slow a:64M",
            2,
            "the same device as",
        ),
        (
            "create v --fast a:64M --slow ./a:64M",
            2,
            "the same device as",
        ),
        ("create v --slow a:64K", 2, "at least 1M"),
        ("create no/dir/v --slow a:64M", 1, "no such directory"),
        ("create exists --slow a:64M", 1, "exists already"),
        ("create v --slow no/such/a:64M", 1, "no/such/a"),
        ("create v --config bad.toml", 1, "did you mean `policy`"),
        ("create v --config missing.toml", 1, "missing.toml"),
        (
            "create v --config bad.toml --extent 64K",
            2,
            "cannot be used with",
        ),
        ("serve v", 2, "--block-file"),
        ("serve v --nbd nonsense", 2, "unix:PATH"),
        ("serve v --nbd unix:", 2, "unix:PATH"),
        ("serve v --nbd :1:1 --nbd-allow-remote", 2, "--nbd-tls-cert"),
        ("serve v --nbd unix:s --nbd-tls-key k", 2, "--nbd-tls-cert"),
        (
            "serve v --nbd :1:1 --nbd-tls-cert c --nbd-tls-key k --nbd-tls-clients a",
            1,
            "c: ",
        ),
        (
            "serve v --iscsi 127.0.0.1:1 --iscsi-allow-remote",
            2,
            "--iscsi-chap",
        ),
        ("serve v --iscsi 127.0.0.1:1 --iscsi-chap c", 1, "c: "),
        ("serve v --nbd unix:s", 1, "v.toml"),
        ("stop v", 1, "no such volume"),
        ("stats v", 1, "no such volume"),
        ("status v", 1, "no such volume"),
        ("check v", 1, "no such volume"),
        ("stats exists", 1, "not served"),
        ("why v", 2, "<OFFSET>"),
        ("why v x", 2, "is no size"),
        ("set v", 2, "<KEY=VALUE>"),
        ("set v PT", 2, "KEY=VALUE"),
        ("set v PT=fast", 2, "is a number"),
        ("record v", 2, "--out"),
        ("find missing", 1, "missing"),
        ("find text", 1, "none of these devices"),
        ("sim", 2, "<TRACE>"),
        (
            "sim text --policy greendm --fast-size 10% --hit-only",
            1,
            "text",
        ),
        (
            "sim missing --policy greendm --fast-size 10% --hit-only",
            1,
            "ISOTHERM_TRACES",
        ),
        (
            "sim text --policy greendm --fast-size 0% --hit-only",
            2,
            "is zero",
        ),
        ("sim text --policy greendm", 2, "--fast-size is needed"),
        (
            "sim text --policy greendm --fast-size 10% --slow wd5000aak",
            2,
            "wd5000aaks",
        ),
        (
            "sim text --policy greendm --tier nvme-tlc --tier exos-18tb",
            2,
            "needs a size",
        ),
        (
            "sim text --policy greendm --fast-size 10% --accelerate 2",
            2,
            "--time trace",
        ),
        (
            "sim text --policy greendm --fast-size 10% --hit-only --format spcc",
            2,
            "nearest: `spc`",
        ),
        ("trace info", 2, "<FILE>"),
        ("trace convert text --out o --to msr", 2, "can only be read"),
        ("policies extra", 2, "unexpected argument"),
    ] {
        let out = place.run(call);
        let stderr = String::from_utf8_lossy(&out.stderr);
        let good = out.status.code() == Some(code)
            && stderr.lines().count() == 1
            && stderr.contains(needle);
        if !good || !out.stdout.is_empty() {
            wrong.push(format!(
                "`{call}`: {:?} {stderr} (wanted {code}, {needle})",
                out.status.code()
            ));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    // No file is left half made: only the earlier files are there.
    assert_eq!(
        place.names(),
        ["bad.toml", "dangling", "exists.toml", "text"]
    );
}

#[test]
fn every_command_has_help_with_an_example() {
    let place = Place::new();
    let top = place.ok("--help");
    let commands: Vec<String> = lines(&top)
        .skip_while(|l| !l.starts_with("Commands:"))
        .skip(1)
        .take_while(|l| !l.is_empty())
        .filter_map(|l| l.split_whitespace().next().map(str::to_owned))
        .filter(|c| c != "help")
        .collect();
    assert!(commands.len() >= 15, "{commands:?}");
    for c in commands {
        let help = place.ok(&format!("{c} --help"));
        assert!(help.contains("Example"), "{c}");
    }
}

/// A directory and files whose names are no UTF-8: every answer has a replacement for the bytes, also that of the server.
#[test]
fn names_that_are_no_utf8_are_no_reason_to_panic() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let place = Place::new();
    place.ok("create w --fast f:8M --slow s:16M");
    let dir = place.path("").join(OsStr::from_bytes(b"d\xff"));
    std::fs::create_dir(&dir).expect("made");
    // The paths of the members are relative to the directory, so they have its name in them.
    let text = std::fs::read_to_string(place.path("w.toml")).expect("read");
    let text = text.replace(&place.path("").display().to_string(), "../");
    assert!(text.contains("\"../f\""), "{text}");
    std::fs::write(dir.join("w.toml"), text).expect("written");
    std::fs::remove_file(place.path("w.toml")).expect("removed");
    let command = |call: &str| {
        let mut c = place.command(call);
        c.current_dir(&dir);
        c
    };
    let served = Place::wait_ready(command("serve w --nbd unix:n"), "w");
    let out = OsStr::from_bytes(b"x\xff");
    let mut wrong = Vec::new();
    let mut run = |mut c: std::process::Command| {
        let out = c.output().expect("starts");
        if !out.status.success() {
            wrong.push(format!("{c:?}: {}", String::from_utf8_lossy(&out.stderr)));
        }
    };
    let calls = ["status w", "stats w", "why w 0", "list", "classes show w"];
    for call in calls {
        run(command(call));
        run(command(&format!("{call} --json")));
    }
    let mut record = command("record w --seconds 1 --out");
    record.arg(out);
    run(record);
    for call in ["stop w", "status w", "check w"] {
        run(command(call));
    }
    assert!(dir.join(out).exists());
    assert_eq!(served.end().0, Some(0));
    assert!(wrong.is_empty(), "{wrong:#?}");
}
