"""A small NBD client and the stamps that the blocks carry; used in the guest and by the replay.

Protocol: the NBD project's proto.md (fixed newstyle handshake, NBD_OPT_EXPORT_NAME, simple replies).
"""

import socket
import struct
import time

BLOCK = 4096
READ, WRITE, DISC, FLUSH = 0, 1, 2, 3
FUA = 1


def stamp(block, version):
    """What block `block` holds after its write number `version` (from 1): every 16 bytes say so."""
    return struct.pack("<QQ", block, version) * (BLOCK // 16)


def version_of(block, data):
    """The version in `data`, 0 if never written; None if these are not the bytes of one write of this block."""
    if data == bytes(BLOCK):
        return 0
    found, version = struct.unpack_from("<QQ", data)
    return version if found == block and version > 0 and data == stamp(block, version) else None


class Nbd:
    """One connection to the default export. Requests may overlap; replies come in any order."""

    def __init__(self, path, wait):
        """Connects to the unix socket `path`, trying for `wait` seconds, as the server may still be starting."""
        until = time.monotonic() + wait
        while True:
            self.socket = socket.socket(socket.AF_UNIX)
            try:
                self.socket.connect(path)
                break
            except OSError:
                self.socket.close()
                if time.monotonic() > until:
                    raise
                time.sleep(0.02)
        self.socket.settimeout(120)
        magic, option_magic, _ = struct.unpack(">8s8sH", self._get(18))
        if (magic, option_magic) != (b"NBDMAGIC", b"IHAVEOPT"):
            raise OSError(f"{path}: no newstyle NBD server")
        self.socket.sendall(struct.pack(">I8sII", 3, b"IHAVEOPT", 1, 0))
        self.size, self.flags = struct.unpack(">QH", self._get(10))
        self.reads = {}

    def _get(self, count):
        parts = bytearray()
        while len(parts) < count:
            more = self.socket.recv(count - len(parts))
            if not more:
                raise OSError("the server closed the connection")
            parts += more
        return bytes(parts)

    def send(self, kind, cookie, offset=0, length=0, data=b"", flags=0):
        """Sends a request. `cookie` is any number not in flight."""
        if kind == READ:
            self.reads[cookie] = length
        head = struct.pack(">IHHQQI", 0x25609513, flags, kind, cookie, offset, len(data) or length)
        self.socket.sendall(head + data)

    def reply(self):
        """Waits for the next reply: its cookie and the bytes read."""
        magic, error, cookie = struct.unpack(">IIQ", self._get(16))
        if magic != 0x67446698:
            raise OSError(f"a reply with magic {magic:#x}")
        if error:
            raise OSError(error, f"the server refused request {cookie}")
        return cookie, self._get(self.reads.pop(cookie, 0))

    def close(self):
        """Says goodbye."""
        self.send(DISC, 0)
        self.socket.close()
