//! What a program does through a descriptor after the last name of the file is gone, and times: the same as in a plain directory.

use crate::world::{World, run};
use isotherm_files::fuse::Io;
use isotherm_files::mover::Outcome;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

/// Runs a script in a plain directory and in the mount, on either tier, and compares what it prints.
fn same_as_plain(script: &str, io: Io) {
    let Some(w) = World::new(|_| {}, io) else {
        return;
    };
    let plain = w.root.join("plain");
    fs::create_dir(&plain).unwrap();
    let print = |dir: &std::path::Path| {
        let file = w.root.join("script.py");
        fs::write(&file, script).unwrap();
        let (script, dir) = (
            format!("python3 {} > ../out", file.display()),
            dir.to_owned(),
        );
        let (tell, done) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            run(&script, &dir);
            let _ = tell.send(());
        });
        done.recv_timeout(Duration::from_secs(120)).ok()?;
        fs::read_to_string(w.root.join("out")).ok()
    };
    let expected = print(&plain).unwrap();
    assert!(expected.lines().count() > 10, "{expected}");
    let Some(shown) = print(&w.at("")) else {
        // A mount whose threads have ended answers nobody, also not when it is unmounted.
        std::mem::forget(w);
        panic!("the script failed in the mount, or has no end");
    };
    for (n, (now, plain)) in shown.lines().zip(expected.lines()).enumerate() {
        assert_eq!(now, plain, "line {n}");
    }
    assert_eq!(w.ask("", "check")["ok"], true, "{}", w.ask("", "check"));
}

const HANDLES: &str = r"
import os, errno, stat, struct, ctypes
libc = ctypes.CDLL(None, use_errno=True)
ACL = struct.pack('<I', 2) + b''.join(struct.pack('<HHI', *e) for e in
    [(1, 6, 0xffffffff), (2, 4, 1), (4, 0, 0xffffffff), (16, 4, 0xffffffff), (32, 0, 0xffffffff)])
def removed(kind):
    make(kind, 'x'); f = opened(kind, 'x'); (os.rmdir if kind == 'dir' else os.unlink)('x'); return f
def replaced(kind):
    make(kind, 'x'); make(kind, 'y'); f = opened(kind, 'x'); os.rename('y', 'x'); return f
def made_again(kind):
    f = removed(kind); make(kind, 'x'); return f
def make(kind, name):
    if kind == 'dir': os.mkdir(name, 0o750)
    elif kind == 'pipe': os.mkfifo(name, 0o640)
    else:
        with open(name, 'w') as f: f.write('0123456789' * 1000)
        os.chmod(name, 0o640)
def opened(kind, name):
    return os.open(name, {'dir': os.O_RDONLY, 'pipe': os.O_RDWR}.get(kind, os.O_RDWR))
def call(what, work):
    try: r = work()
    except OSError as e: r = errno.errorcode[e.errno]
    print(what, r)
def attributes(f):
    def at(): return oct(os.fstat(f).st_mode), os.fstat(f).st_uid, os.fstat(f).st_gid, os.fstat(f).st_nlink
    call('stat', at)
    call('chmod', lambda: os.fchmod(f, 0o604)); call('stat', at)
    call('chown', lambda: os.fchown(f, 11, 12)); call('stat', at)
    call('utime', lambda: os.utime(f, ns=(1500000000123456789, 1600000000987654321)))
    call('times', lambda: (os.fstat(f).st_atime_ns, os.fstat(f).st_mtime_ns))
    call('utime of one', lambda: libc.futimens(f, (ctypes.c_long * 4)(0, (1 << 30) - 2, 7, 8)))
    call('times', lambda: (os.fstat(f).st_atime_ns, os.fstat(f).st_mtime_ns))
def xattrs(f):
    names = lambda: sorted(os.listxattr(f))
    call('get', lambda: os.getxattr(f, 'user.a'))
    call('replace', lambda: os.setxattr(f, 'user.a', b'0', os.XATTR_REPLACE))
    call('set', lambda: os.setxattr(f, 'user.a', b'1')); call('get', lambda: os.getxattr(f, 'user.a'))
    call('create', lambda: os.setxattr(f, 'user.a', b'2', os.XATTR_CREATE))
    call('replace', lambda: os.setxattr(f, 'user.a', b'3', os.XATTR_REPLACE)); call('get', lambda: os.getxattr(f, 'user.a'))
    call('another', lambda: os.setxattr(f, 'user.b', b'x' * 300)); call('list', names)
    call('remove', lambda: os.removexattr(f, 'user.a')); call('again', lambda: os.removexattr(f, 'user.a'))
    call('get', lambda: os.getxattr(f, 'user.a')); call('list', names)
def acls(f):
    call('acl', lambda: os.setxattr(f, 'system.posix_acl_access', ACL))
    call('mode', lambda: oct(os.fstat(f).st_mode))
    call('get', lambda: os.getxattr(f, 'system.posix_acl_access') == ACL)
    call('chmod', lambda: os.fchmod(f, 0o600)); call('get', lambda: os.getxattr(f, 'system.posix_acl_access').hex())
    call('remove', lambda: os.removexattr(f, 'system.posix_acl_access'))
    call('list', lambda: sorted(os.listxattr(f))); call('mode', lambda: oct(os.fstat(f).st_mode))
def data(f):
    size = lambda: os.fstat(f).st_size
    call('read', lambda: os.pread(f, 7, 5)); call('write', lambda: os.pwrite(f, b'new', 20000)); call('size', size)
    call('hole', lambda: (os.lseek(f, 0, os.SEEK_HOLE) >= 10000, os.lseek(f, 19000, os.SEEK_DATA) <= 20000))
    call('end', lambda: os.lseek(f, 0, os.SEEK_END)); call('beyond', lambda: os.lseek(f, 30000, os.SEEK_DATA))
    call('truncate', lambda: os.ftruncate(f, 6000)); call('size', size)
    call('space', lambda: os.posix_fallocate(f, 0, 9000)); call('size', size)
    call('punch', lambda: libc.fallocate(f, 3, ctypes.c_long(0), ctypes.c_long(4096))); call('read', lambda: os.pread(f, 4, 4094))
    call('sync', lambda: (os.fsync(f), os.fdatasync(f)))
    g = os.open(f'/proc/self/fd/{f}', os.O_RDWR | os.O_APPEND)
    call('append', lambda: os.write(g, b'end')); call('size', size); call('same', lambda: os.path.sameopenfile(f, g))
    call('copy', lambda: os.copy_file_range(f, g, 5, 6000)); call('cut', lambda: os.truncate(f'/proc/self/fd/{f}', 10)); call('size', size)
    call('open cut', lambda: os.close(os.open(f'/proc/self/fd/{f}', os.O_WRONLY | os.O_TRUNC))); call('size', size)
    os.close(g)
    call('link', lambda: os.link(f'/proc/self/fd/{f}', 'back', follow_symlinks=True))
os.umask(0)
for kind in ['file', 'dir', 'pipe']:
    for gone in [removed, replaced, made_again]:
        for work in [attributes] + ([data] if kind == 'file' else []) + ([] if kind == 'pipe' else [xattrs]) + ([acls] if kind == 'file' else []):
            print('==', kind, gone.__name__, work.__name__)
            f = gone(kind); work(f); os.close(f)
            if os.path.lexists('x'):
                s = os.stat('x'); print('the other', oct(s.st_mode), s.st_size if kind == 'file' else 0, s.st_uid, os.listxattr('x') if kind != 'pipe' else 0)
                (os.rmdir if kind == 'dir' else os.unlink)('x')
";

#[test]
fn files_without_names_are_as_in_a_plain_directory() {
    for io in [Io::Cached, Io::Passthrough] {
        same_as_plain(HANDLES, io);
    }
}

/// Times that the kernel lets programs set, among them fractions before 1970 and the ends of what file systems can store.
const TIMES: &str = r"
import os
G = 1000000000
all = [s * G + n for s in [-(1 << 31), -86400, -3, -2, -1, 0, 1, (1 << 31) - 1, 1 << 31, (1 << 32) + 5] for n in [0, 1, 500000000, 999999999]]
all += [-(1 << 40) * G + 5, (1 << 40) * G + 5]
for kind in ['file', 'dir', 'link']:
    name = 't-' + kind
    if kind == 'file': open(name, 'w').close()
    elif kind == 'dir': os.mkdir(name)
    else: os.symlink('to', name)
    for t in all:
        os.utime(name, ns=(t, t + 1), follow_symlinks=False)
        s = os.lstat(name); print(kind, t, s.st_atime_ns, s.st_mtime_ns)
";

/// Times at both ends of the kernel's numbers, which no program shows, but which every owner of a file can set.
const EXTREMES: &str = r"
import os, ctypes
libc = ctypes.CDLL(None, use_errno=True)
ends = [-(1 << 63), -(1 << 63) + 1, -(1 << 62), -(1 << 55), -(1 << 34), -1, 0, 1 << 34, 1 << 55, 1 << 62, (1 << 63) - 2, (1 << 63) - 1]
pairs = [(s, n) for s in ends for n in [0, 1, 999999999]]
for kind in ['file', 'dir', 'link']:
    name = 'e-' + kind
    if kind == 'file': open(name, 'w').close()
    elif kind == 'dir': os.mkdir(name)
    else: os.symlink('to', name)
    for s, n in pairs:
        for t in [(s, n, 7, 8), (7, 8, s, n), (s, n, s, n)]:
            r = libc.utimensat(-100, name.encode(), (ctypes.c_long * 4)(*t), 0x100)
            e = os.lstat(name); print(kind, t, r, ctypes.get_errno() if r else 0, e.st_atime_ns, e.st_mtime_ns)
f = os.open('e-file', os.O_RDWR)
for s, n in pairs:
    r = libc.futimens(f, (ctypes.c_long * 4)(s, n, s, n)); e = os.fstat(f); print('open', s, n, r, e.st_atime_ns, e.st_mtime_ns)
";

/// A time of -2^63 s ended a thread of the session in the library below, and a few of them the mount.
#[test]
fn times_that_no_clock_shows() {
    for io in [Io::Cached, Io::Passthrough] {
        same_as_plain(EXTREMES, io);
    }
}

#[test]
fn times_are_kept() {
    same_as_plain(TIMES, Io::Cached);
    let Some(mut w) = World::new(|_| {}, Io::Cached) else {
        return;
    };
    let times = [
        (-2, 500_000_000),
        (-1, 1),
        (0, 0),
        (978_307_200, 123_456_789),
    ];
    let script =
        "import os, sys; os.utime(sys.argv[1], ns=(int(sys.argv[2]), int(sys.argv[2]) + 3))";
    let seen = |path: &std::path::Path| {
        let m = fs::metadata(path).unwrap();
        let access = (m.atime(), m.atime_nsec());
        (
            access,
            (m.mtime(), m.mtime_nsec()),
            (m.ctime(), m.ctime_nsec()),
        )
    };
    for (i, (sec, nsec)) in times.into_iter().enumerate() {
        let name = format!("f{i}");
        fs::write(w.at(&name), vec![7; 100_000]).unwrap();
        let ns = sec * 1_000_000_000 + nsec;
        run(&format!("python3 -c '{script}' {name} {ns}"), &w.at(""));
        let before = seen(&w.at(&name));
        assert_eq!(before.0, (sec, nsec));
        // A move reads the file, which is no access by a user.
        for (to, tier) in [(1, "slow"), (0, "fast"), (1, "slow")] {
            assert_eq!(w.send(&name, to), Outcome::Done);
            assert_eq!(seen(&w.at(&name)), before, "{name} on {tier}");
            let there = seen(&w.on(tier, &name));
            assert_eq!((there.0, there.1), (before.0, before.1), "{name} on {tier}");
        }
    }
    w.unmount();
    w.settings.copies = true;
    w.mount();
    for (i, (sec, nsec)) in times.into_iter().enumerate() {
        let name = format!("f{i}");
        let store = &w.mounted.as_ref().unwrap().store;
        let node = store.cat().find(name.as_bytes()).unwrap();
        assert_eq!(store.fetch(node), Outcome::Done);
        let (access, written, _) = seen(&w.at(&name));
        assert_eq!((access, written), ((sec, nsec), (sec, nsec + 3)), "copied");
    }
}
