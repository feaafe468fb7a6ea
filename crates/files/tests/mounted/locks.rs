//! Locks between processes while the file that they lock moves: POSIX, flock and OFD.

use crate::world::{World, run, until};
use isotherm_files::fuse::Io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Three processes increment a counter under each kind of lock. Then: conflicts and their owner, the release by a close of any descriptor, a
/// deadlock, and a wait that a signal ends.
const SCRIPT: &str = r"
import errno, fcntl, os, signal, struct, time
F = 'locked'
open(F, 'w').write('0' * 4096)
def of(kind, start, n): return struct.pack('hhqqi4x', kind, 0, start, n, 0)
def child(work):
    pid = os.fork()
    if pid == 0:
        try: os._exit(work())
        except BaseException: os._exit(99)
    return pid
def end(pid): return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
def refused(fd, *where):
    try: fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, *where); return False
    except OSError as e: return e.errno in (errno.EAGAIN, errno.EACCES)
def count(kind):
    for _ in range(40):
        fd = os.open(F, os.O_RDWR)
        if kind == 'posix': fcntl.lockf(fd, fcntl.LOCK_EX, 10, 100)
        elif kind == 'flock': fcntl.flock(fd, fcntl.LOCK_EX)
        else: fcntl.fcntl(fd, fcntl.F_OFD_SETLKW, of(fcntl.F_WRLCK, 100, 10))
        n = int(open('counter').read())
        c = os.open('counter', os.O_WRONLY); os.write(c, b'%d' % (n + 1)); os.close(c)
        os.close(fd)
    return 0
fcntl.F_OFD_SETLKW = 38
for kind in ('posix', 'flock', 'ofd'):
    open('counter', 'w').write('0')
    for pid in [child(lambda: count(kind)) for _ in range(3)]: assert end(pid) == 0, kind
    assert open('counter').read() == '120', (kind, open('counter').read())
fd = os.open(F, os.O_RDWR); fcntl.lockf(fd, fcntl.LOCK_EX, 50, 0)
me = os.getpid()
def conflicts():
    g = os.open(F, os.O_RDWR)
    assert refused(g, 10, 40)
    fcntl.lockf(g, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 50)
    owner = struct.unpack('hhqqi4x', fcntl.fcntl(g, fcntl.F_GETLK, of(fcntl.F_WRLCK, 0, 1)))
    assert (owner[0], owner[4]) == (fcntl.F_WRLCK, me), owner
    return 0
assert end(child(conflicts)) == 0
os.close(os.open(F, os.O_RDONLY))
assert end(child(lambda: refused(os.open(F, os.O_RDWR)))) == 0, 'a close releases'
a = os.open(F, os.O_RDWR); fcntl.lockf(a, fcntl.LOCK_EX, 1, 0)
def other():
    b = os.open(F, os.O_RDWR); fcntl.lockf(b, fcntl.LOCK_EX, 1, 1)
    try: fcntl.lockf(b, fcntl.LOCK_EX, 1, 0); return 0
    except OSError as e: return 3 if e.errno == errno.EDEADLK else 1
pid = child(other)
while not refused(a, 1, 1): fcntl.lockf(a, fcntl.LOCK_UN, 1, 1); time.sleep(.01)
mine = False
try: fcntl.lockf(a, fcntl.LOCK_EX, 1, 1)
except OSError as e: mine = e.errno == errno.EDEADLK
fcntl.lockf(a, fcntl.LOCK_UN)
assert mine or end(pid) == 3, 'nobody found the deadlock'
if mine: assert end(pid) == 0
fcntl.lockf(a, fcntl.LOCK_EX, 1, 0)
def interrupted():
    class Rang(Exception): pass
    def ring(*_): raise Rang
    signal.signal(signal.SIGALRM, ring); signal.setitimer(signal.ITIMER_REAL, .2)
    try: fcntl.lockf(os.open(F, os.O_RDWR), fcntl.LOCK_EX, 1, 0); return 1
    except Rang: return 0
assert end(child(interrupted)) == 0
";

fn locks(io: Io) {
    let Some(w) = World::new(|_| {}, io) else {
        return;
    };
    std::fs::write(w.root.join("locks.py"), SCRIPT).unwrap();
    let (store, stop) = (
        Arc::clone(&w.mounted.as_ref().unwrap().store),
        AtomicBool::new(false),
    );
    std::thread::scope(|s| {
        let mover =
            s.spawn(|| isotherm_files::chaos::run(&store, 1, || stop.load(Ordering::SeqCst)));
        let work = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            run("timeout 120 python3 ../locks.py", &w.at(""));
            if io != Io::Passthrough {
                until("a move", || w.moves() > 0);
            }
        }));
        stop.store(true, Ordering::SeqCst);
        mover.join().unwrap();
        if let Err(e) = work {
            std::panic::resume_unwind(e);
        }
    });
}

#[test]
fn locks_hold_while_their_file_moves() {
    for io in [Io::Cached, Io::Writeback, Io::Passthrough] {
        locks(io);
    }
}
