//! The reference in the block file's benchmark: a minimal FUSE server of one file.
//!
//! ```text
//! fuse_pread DIR BACKING_FILE
//! ```
//!
//! Shows `DIR/file`. One session thread serves a read with `pread` and a write with `pwrite` on the backing file before it takes the next
//! request. Direct I/O and the kernel settings are those of the block file, so that a difference comes from our code. Prints `ready` once
//! I/O works, and ends with standard input.

use std::error::Error;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::Duration;

use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty,
    ReplyEntry, ReplyOpen, ReplyWrite, Request, Session, WriteFlags,
};

const TTL: Duration = Duration::from_secs(3600);
const LARGEST: usize = 1 << 20;

struct OneFile {
    backing: File,
    file: FileAttr,
}

impl OneFile {
    fn attributes(&self, ino: INodeNo) -> FileAttr {
        if ino == INodeNo::ROOT {
            FileAttr {
                ino,
                kind: FileType::Directory,
                perm: 0o755,
                size: 0,
                nlink: 2,
                ..self.file
            }
        } else {
            self.file
        }
    }
}

impl Filesystem for OneFile {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        let _ = config.set_max_write(LARGEST as u32);
        let _ = config.set_max_background(512);
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        Ok(())
    }

    fn lookup(&self, _req: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if name == "file" {
            reply.entry(&TTL, &self.file, Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&TTL, &self.attributes(ino));
    }

    fn open(&self, _req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.opened(
            FileHandle(0),
            FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES,
        );
    }

    fn read(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        // Small requests use the stack, as a simple server would use a prepared buffer.
        let mut small = [0u8; 16384];
        let mut large = Vec::new();
        let buffer = if size as usize <= small.len() {
            &mut small[..size as usize]
        } else {
            large.resize(size as usize, 0);
            &mut large[..]
        };
        match self.backing.read_at(buffer, offset) {
            Ok(n) => reply.data(&buffer[..n]),
            Err(error) => reply.error(error.into()),
        }
    }

    fn write(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.backing.write_at(data, offset) {
            Ok(n) => reply.written(n as u32),
            Err(error) => reply.error(error.into()),
        }
    }

    fn flush(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn fsync(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        match self.backing.sync_data() {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error.into()),
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [dir, backing] = arguments.as_slice() else {
        return Err("usage: fuse_pread DIR BACKING_FILE".into());
    };
    let backing = File::options().read(true).write(true).open(backing)?;
    let about = backing.metadata()?;
    let file = FileAttr {
        ino: INodeNo(2),
        size: about.len(),
        blocks: about.len() / 512,
        atime: about.modified()?,
        mtime: about.modified()?,
        ctime: about.modified()?,
        crtime: about.modified()?,
        kind: FileType::RegularFile,
        perm: 0o600,
        nlink: 1,
        uid: about.uid(),
        gid: about.gid(),
        rdev: 0,
        blksize: 4096,
        flags: 0,
    };
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName("fuse_pread".into()),
        MountOption::DefaultPermissions,
    ];
    let session = Session::new(OneFile { backing, file }, dir, &config)?.spawn()?;
    println!("ready");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    session.umount_and_join()?;
    Ok(())
}
