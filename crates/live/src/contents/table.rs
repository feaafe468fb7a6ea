//! Signatures that consist only of a magic number at a fixed place.
//!
//! Places and numbers are facts of the formats, from their public descriptions: the kernel's on-disk headers and the formats' own
//! specifications. A magic number of less than four bytes is never in this table: see `checks.rs`.

/// The place of a magic number.
#[derive(Clone, Copy)]
pub(super) enum At {
    /// Number of bytes from the start.
    Start(u64),
    /// Number of bytes before the end.
    End(u64),
}

/// Name of the format, place and bytes of its magic number.
pub(super) type Entry = (&'static str, At, &'static [u8]);

use At::{End, Start};

/// File systems.
const FILE_SYSTEMS: &[Entry] = &[
    ("an XFS file system", Start(0), b"XFSB"),
    ("a btrfs file system", Start(0x1_0040), b"_BHRfS_M"),
    ("a btrfs file system", Start(0x400_0040), b"_BHRfS_M"),
    ("a btrfs file system", Start(0x40_0000_0040), b"_BHRfS_M"),
    (
        "a bcachefs file system",
        Start(4120),
        b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef",
    ),
    ("an NTFS file system", Start(3), b"NTFS    "),
    ("an exFAT file system", Start(3), b"EXFAT   "),
    ("a ReFS file system", Start(3), b"ReFS\0\0\0\0"),
    ("a BitLocker volume", Start(3), b"-FVE-FS-"),
    ("an ISO 9660 file system", Start(0x8001), b"CD001"),
    ("a UDF file system", Start(0x8001), b"BEA01"),
    ("a UDF file system", Start(0x8801), b"NSR0"),
    ("a UDF file system", Start(0x9001), b"NSR0"),
    ("an F2FS file system", Start(1024), b"\x10\x20\xf5\xf2"),
    ("an F2FS file system", Start(5120), b"\x10\x20\xf5\xf2"),
    ("a JFS file system", Start(0x8000), b"JFS1"),
    ("a ReiserFS file system", Start(0x1_0034), b"ReIsEr"),
    ("a ReiserFS file system", Start(0x2034), b"ReIsEr"),
    ("a Reiser4 file system", Start(0x1_0000), b"ReIsEr4"),
    ("a UFS file system", Start(8192 + 1372), b"\x54\x19\x01\x00"),
    ("a UFS file system", Start(8192 + 1372), b"\x00\x01\x19\x54"),
    (
        "a UFS2 file system",
        Start(65536 + 1372),
        b"\x19\x01\x54\x19",
    ),
    (
        "a UFS2 file system",
        Start(65536 + 1372),
        b"\x19\x54\x01\x19",
    ),
    ("an APFS container", Start(32), b"NXSB"),
    ("a squashfs image", Start(0), b"hsqs"),
    ("a cramfs image", Start(0), b"\x45\x3d\xcd\x28"),
    ("an EROFS file system", Start(1024), b"\xe2\xe1\xf5\xe0"),
    ("a GFS2 file system", Start(0x1_0000), b"\x01\x16\x19\x70"),
    ("an OCFS2 file system", Start(1024), b"OCFSV2"),
    ("an OCFS2 file system", Start(2048), b"OCFSV2"),
    ("an OCFS2 file system", Start(4096), b"OCFSV2"),
    ("an OCFS2 file system", Start(8192), b"OCFSV2"),
    ("a VMFS volume", Start(0x10_0000), b"\x0d\xd0\x01\xc0"),
    ("a VMFS file system", Start(0x20_0000), b"\x5e\xf1\xab\x2f"),
    ("a zonefs file system", Start(0), b"SFOZ"),
    ("a romfs image", Start(0), b"-rom1fs-"),
];

/// Layers below file systems: encryption, volume managers, caches, arrays.
const LAYERS: &[Entry] = &[
    ("a LUKS volume", Start(0), b"LUKS\xba\xbe"),
    ("a LUKS2 header copy", Start(0x4000), b"SKUL\xba\xbe"),
    ("a LUKS2 header copy", Start(0x8000), b"SKUL\xba\xbe"),
    ("a LUKS2 header copy", Start(0x1_0000), b"SKUL\xba\xbe"),
    ("a LUKS2 header copy", Start(0x2_0000), b"SKUL\xba\xbe"),
    ("a LUKS2 header copy", Start(0x4_0000), b"SKUL\xba\xbe"),
    ("a LUKS2 header copy", Start(0x8_0000), b"SKUL\xba\xbe"),
    ("a LUKS2 header copy", Start(0x10_0000), b"SKUL\xba\xbe"),
    ("a LUKS2 header copy", Start(0x20_0000), b"SKUL\xba\xbe"),
    ("a LUKS2 header copy", Start(0x40_0000), b"SKUL\xba\xbe"),
    ("an LVM physical volume", Start(0), b"LABELONE"),
    ("an LVM physical volume", Start(512), b"LABELONE"),
    ("an LVM physical volume", Start(1024), b"LABELONE"),
    ("an LVM physical volume", Start(1536), b"LABELONE"),
    (
        "a bcache device",
        Start(4120),
        b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81",
    ),
    // The cache device of Open CAS: the magic number of `ocf_superblock_config`, after two flags and a number of 16 bits.
    ("an Open CAS cache", Start(4), b"\xa6\x1c\x7e\x18"),
    // The kernel's dm-cache and dm-thin keep metadata on a device of its own, dm-writecache metadata and data on one.
    ("dm-cache metadata", Start(32), b"\x03\xc4\x18\0\0\0\0\0"),
    ("dm-thin metadata", Start(32), b"\xba\x52\x9c\x01\0\0\0\0"),
    ("a dm-writecache cache", Start(0), b"\x21\x93\x48\x23"),
    (
        "a Ceph BlueStore device",
        Start(0),
        b"bluestore block device",
    ),
    ("a VDO volume", Start(0), b"dmvdo001"),
    (
        "a Stratis pool member",
        Start(516),
        b"!Stra0tis\x86\xff\x02^\x41rh",
    ),
    ("a dm-verity hash area", Start(0), b"verity\0\0"),
    ("a dm-integrity area", Start(0), b"integrt\0"),
    ("a dm-snapshot store", Start(0), b"SnAp"),
    ("an Oracle ASM disk", Start(32), b"ORCLDISK"),
    (
        "an Intel RAID member",
        End(1024),
        b"Intel Raid ISM Cfg Sig. ",
    ),
    ("a DDF RAID member", End(512), b"\xde\x11\xde\x11"),
    ("a DRBD device", End(4096 - 60), b"\x83\x74\x02\x6b"),
    ("a DRBD device", End(4096 - 60), b"\x83\x74\x02\x6d"),
    ("a GPT partition table", Start(512), b"EFI PART"),
    ("a GPT partition table", Start(4096), b"EFI PART"),
    ("a GPT partition table (its copy)", End(512), b"EFI PART"),
    ("a GPT partition table (its copy)", End(4096), b"EFI PART"),
    ("a BSD disk label", Start(512), b"\x57\x45\x56\x82"),
    ("a BSD disk label", Start(64), b"\x57\x45\x56\x82"),
];

/// Images of machines and disks.
const IMAGES: &[Entry] = &[
    ("a qcow2 image", Start(0), b"QFI\xfb"),
    ("a VMDK image", Start(0), b"KDMV"),
    ("a VMDK image", Start(0), b"COWD"),
    ("a VMDK description", Start(0), b"# Disk DescriptorFile"),
    ("a VDI image", Start(64), b"\x7f\x10\xda\xbe"),
    ("a VHD image", Start(0), b"conectix"),
    ("a VHD image", End(512), b"conectix"),
    ("a VHDX image", Start(0), b"vhdxfile"),
    ("a QED image", Start(0), b"QED\0"),
    ("a Parallels image", Start(0), b"WithoutFreeSpace"),
    ("a Parallels image", Start(0), b"WithouFreSpacExt"),
    ("a DMG image", End(512), b"koly"),
    ("a WIM image", Start(0), b"MSWIM\0\0\0"),
    ("a partclone image", Start(0), b"partclone-image"),
];

/// Files of databases, and archives and documents, of which this may be the only copy.
const FILES: &[Entry] = &[
    ("an SQLite database", Start(0), b"SQLite format 3\0"),
    ("an SQLite write-ahead log", Start(0), b"\x37\x7f\x06\x82"),
    ("an SQLite write-ahead log", Start(0), b"\x37\x7f\x06\x83"),
    (
        "an SQLite rollback journal",
        Start(0),
        b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7",
    ),
    ("an InnoDB redo log", Start(16), b"MySQL "),
    ("an InnoDB redo log", Start(16), b"MariaDB "),
    ("an InnoDB redo log", Start(16), b"ibbackup"),
    ("a MySQL binary log", Start(0), b"\xfebin"),
    ("an LMDB database", Start(16), b"\xde\xc0\xef\xbe"),
    ("a Berkeley DB database", Start(12), b"\x62\x31\x05\x00"),
    ("a Berkeley DB database", Start(12), b"\x61\x15\x06\x00"),
    ("a Redis dump", Start(0), b"REDIS0"),
    ("a PostgreSQL dump", Start(0), b"PGDMP"),
    ("a tar archive", Start(257), b"ustar"),
    ("a zip archive", Start(0), b"PK\x03\x04"),
    ("a 7z archive", Start(0), b"7z\xbc\xaf\x27\x1c"),
    ("xz-compressed data", Start(0), b"\xfd7zXZ\0"),
    ("zstd-compressed data", Start(0), b"\x28\xb5\x2f\xfd"),
    ("gzip-compressed data", Start(0), b"\x1f\x8b\x08\x00"),
    ("gzip-compressed data", Start(0), b"\x1f\x8b\x08\x08"),
    ("a PDF document", Start(0), b"%PDF-"),
    ("an ELF program", Start(0), b"\x7fELF"),
    ("a Parquet file", Start(0), b"PAR1"),
];

/// All entries.
pub(super) fn entries() -> impl Iterator<Item = &'static Entry> {
    [FILE_SYSTEMS, LAYERS, IMAGES, FILES].into_iter().flatten()
}
