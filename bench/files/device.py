"""The share of processor time that a mount spends in the two calls with which it takes a request of the kernel and answers it (read and
writev of /dev/fuse). FUSE over io_uring replaces these two by one, so this share bounds what it could save. Needs root, perf and fio.

    bench/files/device.py        $ISOTHERM  the program (target/release/isotherm)

perf samples all processors while one program works. The left column is the time in both calls without the waiting for requests and the
waking of who asked, which a ring needs as well; the right one is the time in their entries, exits and checks alone, without the copies of
requests and answers. Both are in per cent of all samples of the program and the server.
"""

import os
import re
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ISOTHERM = os.environ.get("ISOTHERM", HERE + "/../../target/release/isotherm")
COUNT = 20000
# Both need these, however requests arrive.
ALSO_NEEDED = re.compile(r"^(__)?schedule|^__wake_up|^try_to_wake_up|^fuse_request_end|^wake_up")
CALLS = re.compile(r"^(ksys_read|fuse_dev_read|do_writev|fuse_dev_write)$")
ENTRY = re.compile(r"^(do_syscall_64|entry_SYSCALL|entry_SYSRET|syscall_)")
COPIES = re.compile(r"^fuse_copy|^copy_out_args|^_copy_|^copy_(to|from)_user|^rep_movs|^fuse_copy_args|memcpy")
OURS = re.compile(r"isotherm|python3|fio|fuser|mover")


def names(kind, top):
    paths = ["%s/f%d" % (top, i) for i in range(COUNT)]
    step = {
        "create": lambda p: os.close(os.open(p, os.O_CREAT | os.O_WRONLY, 0o644)),
        "open": lambda p: os.close(os.open(p, os.O_RDONLY)),
        "miss": lambda p: os.path.exists(p + "x"),
        "unlink": os.unlink,
    }[kind]
    for path in paths:
        step(path)


def read(top):
    job = ["fio", "--name=x", "--directory=" + top, "--size=256M", "--rw=randread", "--bs=4k", "--norandommap=0"]
    subprocess.run(job + ["--io_size=128M"], check=True, stdout=subprocess.DEVNULL)


def samples(data):
    """Stacks of the samples of the programs, each from the innermost function outwards."""
    text = subprocess.run(["perf", "script", "-i", data, "-F", "comm,ip,sym"], capture_output=True, text=True).stdout
    for block in text.split("\n\n"):
        lines = block.strip().split("\n")
        if OURS.search(lines[0]):
            yield lines[0], [line.split()[1].split("+")[0] for line in lines[1:] if len(line.split()) > 1]


def shares(data):
    everything = both = bare = 0
    for program, stack in samples(data):
        everything += 1
        serves = "fuser" in program
        # All entries and exits of the server's threads count, also those of other calls.
        entry = serves and stack and ENTRY.search(stack[0])
        call = serves and any(CALLS.search(f) for f in stack)
        if not (entry or call) or any(ALSO_NEEDED.search(f) for f in stack):
            continue
        both += 1
        bare += not any(COPIES.search(f) for f in stack)
    return everything, both, bare


def main():
    top = tempfile.mkdtemp(prefix="isotherm-device.", dir="/dev/shm")
    for name in ("fast", "slow", "mnt"):
        os.mkdir(top + "/" + name)
    mnt = top + "/mnt"
    call = [ISOTHERM, "mount", "--fast", top + "/fast", "--slow", top + "/slow", "--no-moves", mnt]
    server = subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert "ready" in server.stdout.readline()
        print("| work | both calls | without copies | samples |\n|---|--:|--:|--:|")
        for kind in ("create", "open", "miss", "unlink", "read"):
            if kind == "read":
                work = [sys.executable, "-c", "import sys; sys.path.insert(0, %r); import device; device.read(%r)" % (HERE, mnt)]
                read(mnt)
            else:
                work = [sys.executable, "-c", "import sys; sys.path.insert(0, %r); import device; device.names(%r, %r)" % (HERE, kind, mnt)]
            data = top + "/perf.data"
            subprocess.run(["perf", "record", "-q", "-a", "-g", "-F", "4999", "-o", data, "--"] + work, check=True)
            everything, both, bare = shares(data)
            print("| %s | %.1f %% | %.1f %% | %d |" % (kind, 100 * both / everything, 100 * bare / everything, everything))
    finally:
        subprocess.run(["umount", mnt])
        server.wait()
        subprocess.run(["rm", "-rf", top])


if __name__ == "__main__":
    main()
