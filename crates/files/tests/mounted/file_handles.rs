//! File handles, with which the server of NFS names files: they last as long as the file, whatever the kernel and this program have forgotten.
//! And listings by pieces, as that server makes them.

use crate::inodes::kill;
use crate::world::{World, run};
use isotherm_files::fuse::Io;
use isotherm_files::mover::Outcome;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, symlink};
use std::process::Command;

/// `take PATH...`: prints the handles. `open HANDLE...`: prints what each file has, what is in the directory, or where the link leads; for a
/// directory also its path.
const SCRIPT: &str = r"
import ctypes, errno, os, stat, sys
libc = ctypes.CDLL(None, use_errno=True)
class Handle(ctypes.Structure): _fields_ = [('bytes', ctypes.c_uint), ('type', ctypes.c_int), ('data', ctypes.c_ubyte * 128)]
def checked(r):
    if r < 0: raise OSError(ctypes.get_errno(), '')
    return r
def take(path):
    h, mount = Handle(128), ctypes.c_int()
    checked(libc.name_to_handle_at(-100, os.fsencode(path), ctypes.byref(h), ctypes.byref(mount), 0))
    return '%d:%s' % (h.type, bytes(h.data[:h.bytes]).hex())
root = os.open('.', os.O_RDONLY)
def opened(handle):
    kind, data = handle.split(':'); data = bytes.fromhex(data)
    h = Handle(len(data), int(kind)); h.data[:len(data)] = data
    fd = checked(libc.open_by_handle_at(root, ctypes.byref(h), os.O_PATH)); mode = os.fstat(fd).st_mode
    if stat.S_ISLNK(mode): return 'link ' + os.readlink('', dir_fd=fd)
    os.close(fd); fd = checked(libc.open_by_handle_at(root, ctypes.byref(h), os.O_RDONLY))
    if stat.S_ISDIR(mode): return 'dir %s %s' % (os.path.relpath(os.readlink('/proc/self/fd/%d' % fd)), sorted(os.listdir(fd)))
    return 'file %d %s' % (os.fstat(fd).st_nlink, os.read(fd, 100).decode())
for arg in sys.argv[2:]:
    try: print({'take': take, 'open': opened}[sys.argv[1]](arg))
    except OSError as e: print(errno.errorcode[e.errno])
";

fn python(w: &World, script: &str, args: &[&str]) -> String {
    let mut python = Command::new("python3");
    python.args(["-c", script]).args(args);
    let out = python.current_dir(w.at(".")).output().unwrap();
    assert!(out.status.success(), "{args:?}: {out:?}");
    String::from_utf8(out.stdout).unwrap().trim_end().into()
}

fn take<const N: usize>(w: &World, paths: [&str; N]) -> [String; N] {
    let all = python(w, SCRIPT, &[&["take"], &paths[..]].concat());
    let all: Vec<String> = all.lines().map(str::to_owned).collect();
    assert!(all.iter().all(|h| h.contains(':')), "{all:?}");
    all.try_into().unwrap()
}

fn open<S: AsRef<str>>(w: &World, handles: &[S]) -> Vec<String> {
    let mut args = vec!["open"];
    args.extend(handles.iter().map(S::as_ref));
    python(w, SCRIPT, &args)
        .lines()
        .map(str::to_owned)
        .collect()
}

/// The kernel forgets all names and files that nobody uses.
fn forget() {
    fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
}

/// Everything that can happen between taking a handle and using it.
fn meanwhile(w: &mut World, what: &str) {
    match what {
        "forgotten" => forget(),
        "mounted again" => {
            w.unmount();
            w.mount();
        }
        "killed" => {
            kill(w);
            w.mount();
        }
        _ => {}
    }
}
const MEANWHILE: [&str; 4] = ["", "forgotten", "mounted again", "killed"];

#[test]
fn handles_last() {
    for io in [Io::Cached, Io::Writeback, Io::Passthrough] {
        let Some(mut w) = World::new(|_| {}, io) else {
            return;
        };
        w.unmount();
        run("mkdir -p slow/old fast/old; printf a >slow/old/a", &w.root);
        w.mount();
        fs::create_dir_all(w.at("d/e")).unwrap();
        for f in ["f", "d/e/g"] {
            fs::write(w.at(f), f).unwrap();
        }
        symlink("d", w.at("s")).unwrap();
        let all = [
            ("f", "file 1 f"),
            ("d/e/g", "file 1 d/e/g"),
            ("old/a", "file 1 a"),
            ("d", "dir d ['e']"),
            ("d/e", "dir d/e ['g']"),
            ("s", "link d"),
            (".", "dir . ['d', 'f', 'old', 's']"),
        ];
        let handles = take(&w, all.map(|a| a.0));
        for (turn, what) in MEANWHILE.into_iter().chain(MEANWHILE).enumerate() {
            if turn > 3 {
                let to = u8::from(turn % 2 == 0);
                for f in ["f", "d/e/g", "old/a"] {
                    assert_eq!(w.send(f, to), Outcome::Done);
                }
            }
            meanwhile(&mut w, what);
            assert_eq!(open(&w, &handles), all.map(|a| a.1), "{what}, {io:?}");
            assert_eq!(take(&w, all.map(|a| a.0)), handles, "{what}, {io:?}");
        }
        assert_eq!(w.ask("", "check")["ok"], true);
    }
}

/// A file is removed, and another one gets its name; through the mount, by a rename, and by others on the tier.
#[test]
fn a_handle_never_names_the_file_that_took_the_place() {
    for what in MEANWHILE {
        let Some(mut w) = World::new(|_| {}, Io::Cached) else {
            return;
        };
        let names = ["removed", "replaced", "open", "under", "dir"];
        for name in &names[..4] {
            fs::write(w.at(name), "old").unwrap();
        }
        fs::create_dir(w.at("dir")).unwrap();
        let old = take(&w, names);
        let reader = File::open(w.at("open")).unwrap();
        for name in ["removed", "open"] {
            fs::remove_file(w.at(name)).unwrap();
            fs::write(w.at(name), "new").unwrap();
        }
        fs::write(w.at("x"), "new").unwrap();
        fs::rename(w.at("x"), w.at("replaced")).unwrap();
        fs::remove_dir(w.at("dir")).unwrap();
        fs::create_dir(w.at("dir")).unwrap();
        run("printf new >x; mv x under", &w.on("fast", ""));
        forget();
        // As on other file systems, the handle of a removed file is good as long as somebody has the file open.
        assert_eq!(open(&w, &old[2..3]), ["file 0 old"]);
        drop(reader);
        meanwhile(&mut w, what);
        for _ in 0..2 {
            assert_eq!(open(&w, &old), ["ESTALE"; 5], "{what}");
        }
        for name in &names[..4] {
            assert_eq!(fs::read(w.at(name)).unwrap(), b"new", "{name}, {what}");
        }
        let shown = ["file 1 new"; 4].into_iter().chain(["dir dir []"]);
        assert!(open(&w, &take(&w, names)).into_iter().eq(shown), "{what}");
    }
}

/// The disk of a file is absent: the file is not gone, so its handle is good again when the disk is back.
#[test]
fn a_handle_waits_for_a_disk_that_is_away() {
    let Some(mut w) = World::with_disks(|_| {}, Io::Cached) else {
        return;
    };
    fs::create_dir(w.at("d")).unwrap();
    for (name, disk) in [("d/away", 2), ("d/here", 1)] {
        fs::write(w.at(name), name).unwrap();
        assert_eq!(w.send(name, disk), Outcome::Done);
    }
    let handles = take(&w, ["d/away", "d/here", "d"]);
    let see = |w: &World| open(w, &handles);
    let shown = ["file 1 d/away", "file 1 d/here", "dir d ['away', 'here']"];
    assert_eq!(see(&w), shown);
    w.unmount();
    run("mv slow2 gone; mkdir slow2", &w.root);
    w.settings.degraded = true;
    w.mount();
    for _ in 0..2 {
        assert_eq!(see(&w), ["EIO", shown[1], shown[2]]);
        forget();
    }
    w.unmount();
    run("rmdir slow2; mv gone slow2", &w.root);
    w.settings.degraded = false;
    w.mount();
    assert_eq!(see(&w), shown);
}

/// Directories are renamed, and files have several names in several directories.
#[test]
fn a_handle_follows_renames_and_any_of_several_names() {
    for what in MEANWHILE {
        let Some(mut w) = World::new(|_| {}, Io::Cached) else {
            return;
        };
        for d in ["a/b/c", "x", "y"] {
            fs::create_dir_all(w.at(d)).unwrap();
        }
        fs::write(w.at("a/b/c/f"), "f").unwrap();
        fs::write(w.at("x/one"), "many").unwrap();
        fs::hard_link(w.at("x/one"), w.at("y/two")).unwrap();
        fs::hard_link(w.at("x/one"), w.at("a/three")).unwrap();
        let handles = take(&w, ["a/b/c/f", "a/b/c", "y/two"]);
        let many = &handles[2..];
        assert_eq!(take(&w, ["x/one"]), many);
        assert_eq!(w.send("a/b/c/f", 1), Outcome::Done);
        fs::rename(w.at("a/b"), w.at("y/new")).unwrap();
        fs::rename(w.at("y"), w.at("x/y")).unwrap();
        fs::remove_file(w.at("x/one")).unwrap();
        meanwhile(&mut w, what);
        let shown = ["file 1 f", "dir x/y/new/c ['f']", "file 2 many"];
        assert_eq!(open(&w, &handles), shown, "{what}");
        fs::remove_file(w.at("x/y/two")).unwrap();
        meanwhile(&mut w, what);
        assert_eq!(open(&w, many), ["file 1 many"], "{what}");
        fs::remove_file(w.at("a/three")).unwrap();
        meanwhile(&mut w, what);
        assert_eq!(open(&w, many), ["ESTALE"], "{what}");
    }
}

/// Other disks are mounted at the same place, whose files have the same numbers.
#[test]
fn a_handle_is_of_one_set_of_disks() {
    let Some(mut w) = World::new(|_| {}, Io::Cached) else {
        return;
    };
    let fill = |w: &World, text: &str| {
        fs::create_dir(w.at("d")).unwrap();
        fs::write(w.at("d/f"), text).unwrap();
        let number = fs::metadata(w.at("d/f")).unwrap().ino();
        (number, take(w, ["d", "d/f"]))
    };
    let (number, first) = fill(&w, "first");
    w.unmount();
    run("mkdir other; mv fast slow other; mkdir fast slow", &w.root);
    w.mount();
    let (same, second) = fill(&w, "second");
    assert_eq!(same, number);
    for _ in 0..2 {
        assert_eq!(open(&w, &first), ["ESTALE", "ESTALE"]);
        assert_eq!(open(&w, &second[1..]), ["file 1 second"]);
        forget();
    }
    w.unmount();
    run("rm -r fast slow; mv other/* .", &w.root);
    w.mount();
    let both = [&first[1], &second[1]];
    assert_eq!(open(&w, &both), ["file 1 first", "ESTALE"]);
    // The fast tier is lost. What the other disk has keeps its handle; what handles named before and is lost is not found as another file.
    assert_eq!(w.send("d/f", 1), Outcome::Done);
    fs::write(w.at("lost"), "lost").unwrap();
    let [lost] = take(&w, ["lost"]);
    w.unmount();
    run("rm -r fast; mkdir fast", &w.root);
    w.settings.accept = true;
    w.mount();
    fs::write(w.at("lost"), "another").unwrap();
    assert_eq!(open(&w, &[&first[1], &lost]), ["file 1 first", "ESTALE"]);
}

/// Numbers that nobody was given, and right ones with another generation.
#[test]
fn a_forged_handle_is_stale() {
    let Some(mut w) = World::new(|_| {}, Io::Cached) else {
        return;
    };
    fs::write(w.at("f"), "f").unwrap();
    let [handle] = take(&w, ["f"]);
    let (kind, hex) = handle.split_once(':').unwrap();
    // Three words: the upper and the lower half of the number, the generation.
    let word = |at: usize| {
        u32::from_str_radix(&hex[at * 8..at * 8 + 8], 16)
            .unwrap()
            .swap_bytes()
    };
    let [high, low, generation] = [0, 1, 2].map(word);
    let number = u64::from(high) << 32 | u64::from(low);
    assert_eq!(number, fs::metadata(w.at("f")).unwrap().ino());
    let forge = |number: u64, generation: u32| {
        let words = [(number >> 32) as u32, number as u32, generation];
        let hex = words.map(|w| format!("{:08x}", w.swap_bytes())).concat();
        format!("{kind}:{hex}")
    };
    assert_eq!(forge(number, generation), handle);
    for what in MEANWHILE {
        meanwhile(&mut w, what);
        // 2^63 and more are those without a lasting number.
        let numbers = [
            0,
            number + 1,
            1 << 20,
            1 << 40,
            1 << 63,
            1 << 63 | 1,
            u64::MAX,
        ];
        let forged = numbers.into_iter().map(|n| forge(n, generation));
        let forged: Vec<String> = forged
            .chain((0..32).map(|bit| forge(number, generation ^ 1 << bit)))
            .collect();
        assert_eq!(open(&w, &forged), vec!["ESTALE"; forged.len()], "{what}");
        assert_eq!(open(&w, &[&handle]), ["file 1 f"]);
    }
}

/// Opens the directory at a place, prints a few entries and the place behind them, and closes it.
const PIECE: &str = r"
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
fd = os.open('d', os.O_RDONLY | os.O_DIRECTORY)
os.lseek(fd, int(sys.argv[1]), os.SEEK_SET)
b = ctypes.create_string_buffer(2000)
n = libc.syscall(217 if os.uname().machine == 'x86_64' else 61, fd, b, 2000)
at, place = 0, sys.argv[1]
while at < n:
    ino, place, length = struct.unpack_from('=QqH', b.raw, at)
    name = b.raw[at + 19:at + length].split(b'\0')[0].decode()
    print(ino, name); at += length
print('at', place)
";

/// Each piece is read through a descriptor of its own. In between, names come, go and are replaced, and it is mounted again.
#[test]
fn a_listing_by_pieces_has_each_name_once() {
    let Some(mut w) = World::new(|_| {}, Io::Cached) else {
        return;
    };
    fs::create_dir(w.at("d")).unwrap();
    for i in 0..600 {
        fs::write(w.at(&format!("d/stays{i}")), "x").unwrap();
    }
    let (mut seen, mut place, mut pieces) = (BTreeMap::<String, u32>::new(), "0".to_owned(), 0);
    loop {
        let piece = python(&w, PIECE, &[&place]);
        let (names, next) = piece.rsplit_once("at ").unwrap();
        if names.is_empty() {
            break;
        }
        assert_ne!(place, next);
        place = next.into();
        assert!(place.parse::<u64>().unwrap() < 1 << 31);
        for line in names.lines() {
            let (number, name) = line.split_once(' ').unwrap();
            *seen.entry(name.into()).or_default() += 1;
            // A server of NFS finds the name of a directory by its number in the listing above.
            if let Ok(there) = fs::symlink_metadata(w.at("d").join(name)) {
                assert_eq!(there.ino().to_string(), number, "{name}");
            }
        }
        pieces += 1;
        for i in 0..20 {
            let n = pieces * 20 + i;
            fs::write(w.at(&format!("d/comes{n}")), "x").unwrap();
            let _ = fs::remove_file(w.at(&format!("d/comes{}", n / 2)));
            fs::write(w.at("d/new"), "x").unwrap();
            fs::rename(w.at("d/new"), w.at(&format!("d/stays{}", n % 600))).unwrap();
        }
        match pieces {
            4 => meanwhile(&mut w, "mounted again"),
            8 => meanwhile(&mut w, "killed"),
            n if n % 3 == 0 => forget(),
            _ => {}
        }
    }
    assert!(pieces > 8, "{pieces}");
    let mut stays = (0..600)
        .map(|i| format!("stays{i}"))
        .chain([".".into(), "..".into()]);
    assert_eq!(stays.find(|n| seen.get(n) != Some(&1)), None);
}
