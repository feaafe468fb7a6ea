//! Small traces written by hand, one per format.
#![allow(dead_code)] // every test binary uses a part of this

use isotherm_traces::{Format, Info, Options, Record, info, open};

/// A blktrace event, in either byte order.
pub fn blktrace_event(
    big: bool,
    action: u32,
    time: u64,
    sector: u64,
    bytes: u32,
    payload: &[u8],
) -> Vec<u8> {
    let mut out = Vec::new();
    let mut put = |little: &[u8]| {
        if big {
            out.extend(little.iter().rev());
        } else {
            out.extend(little);
        }
    };
    put(&0x6561_7407_u32.to_le_bytes());
    put(&1_u32.to_le_bytes());
    put(&time.to_le_bytes());
    put(&sector.to_le_bytes());
    put(&bytes.to_le_bytes());
    put(&action.to_le_bytes());
    put(&99_u32.to_le_bytes());
    put(&(8_u32 << 20 | 16).to_le_bytes());
    put(&0_u32.to_le_bytes());
    put(&0_u16.to_le_bytes());
    put(&(payload.len() as u16).to_le_bytes());
    out.extend(payload);
    out
}

/// A vscsi record, version 1.
pub fn vscsi1(command: u16, bytes: u32, lbn: u64, us: u64) -> Vec<u8> {
    let mut b = Vec::new();
    b.extend(7_u32.to_le_bytes());
    b.extend(bytes.to_le_bytes());
    b.extend(1_u32.to_le_bytes());
    b.extend(command.to_le_bytes());
    b.extend(0x0100_u16.to_le_bytes());
    b.extend(lbn.to_le_bytes());
    b.extend(us.to_le_bytes());
    b
}

/// A vscsi record, version 2.
pub fn vscsi2(command: u16, bytes: u32, lbn: u64, us: u64, response_us: u64) -> Vec<u8> {
    let mut b = Vec::new();
    b.extend(command.to_le_bytes());
    b.extend(0x0200_u16.to_le_bytes());
    b.extend(7_u32.to_le_bytes());
    b.extend(bytes.to_le_bytes());
    b.extend(1_u32.to_le_bytes());
    b.extend(lbn.to_le_bytes());
    b.extend(us.to_le_bytes());
    b.extend(response_us.to_le_bytes());
    b
}

/// An oracleGeneral record.
pub fn oracle(seconds: u32, object: u64, size: u32, next: i64) -> Vec<u8> {
    let mut b = Vec::new();
    b.extend(seconds.to_le_bytes());
    b.extend(object.to_le_bytes());
    b.extend(size.to_le_bytes());
    b.extend(next.to_le_bytes());
    b
}

/// Q (queue) of a write, sync and FUA, as the kernel combines them.
pub const BLKTRACE_QUEUE_WRITE_FUA: u32 = 1 | (1 << 1 | 1 << 3 | 1 << 4 | 1 << 15) << 16;
/// D (issue) of a read of metadata.
pub const BLKTRACE_ISSUE_READ_META: u32 = 7 | (1 | 1 << 6 | 1 << 12) << 16;

/// Every stream format with a small valid trace of it.
#[expect(clippy::too_many_lines, reason = "one scenario")]
pub fn samples() -> Vec<(Format, Vec<u8>)> {
    let text = |format, text: &str| (format, text.as_bytes().to_vec());
    vec![
        text(
            Format::Blkreplay,
            "Some licence\n\nstart ; sector; length ; op ;  replay_delay=0 ; replay_duration=0\n\
             0.5 ; 8 ; 16 ; W ; 0.0 ; 0.0\n  1.000000001 ; 24 ; 8 ;RA ; 0.0 ; 0.0\n",
        ),
        text(
            Format::Spc,
            "3,20,4096,w,0.000001\n0,20,512,R,1.5\n3,0,1024,r,1.25,extra\n",
        ),
        text(
            Format::Fiu,
            "89966811921625 4257 nfsd 488846200 8 W 6 0 2c4787c7671c2f638777c4ab72859ce1\n\
             89966811921725 4257 two words 8 16 R 6 16 88b93b628d84082186026d9da044f173\n",
        ),
        text(
            Format::Msr,
            "128166385295514663,hm,0,Write,9056014336,2048,2833\n128166385295514673,hm,1,Read,4096,512,10\n",
        ),
        (
            Format::Vscsi1,
            [
                vscsi1(0x2a, 512, 100, 5),
                vscsi1(0x28, 4096, 8, 7),
                vscsi1(0x12, 36, 0, 8),
            ]
            .concat(),
        ),
        (
            Format::Vscsi2,
            [vscsi2(0x8a, 512, 100, 5, 40), vscsi2(0x35, 0, 0, 7, 1)].concat(),
        ),
        text(Format::DiskSim, "1000 0 8 16 1\n2500 1 0 8 0\n"),
        text(Format::Arc, "1 1 0 0\n3050771 25 0 1\n"),
        (
            Format::Oracle,
            [
                oracle(10, 3, 4096, 2),
                oracle(10, 1 << 40, 512, -1),
                oracle(12, 3, 4096, -1),
            ]
            .concat(),
        ),
        (
            Format::Blktrace,
            [
                blktrace_event(false, 1 << 26 | 2, 0, 0, 0, b"a message"),
                blktrace_event(false, BLKTRACE_QUEUE_WRITE_FUA, 1_000, 64, 4096, b""),
                blktrace_event(false, BLKTRACE_ISSUE_READ_META, 1_500, 8, 512, b"odd"),
                blktrace_event(false, BLKTRACE_QUEUE_WRITE_FUA, 2_000, 72, 8192, b"xyz"),
            ]
            .concat(),
        ),
        text(
            Format::Blkparse,
            "  8,0    3        1     0.000000000   697  A  WS 223490 + 8 <- (8,1) 223427\n\
             \x20 8,0    3        2     0.000000500   697  Q  WS 223490 + 8 [kjournald]\n\
             \x20 8,0    3        3     0.000001000   697  D  WS 223490 + 8 [kjournald]\n\
             \x20 8,0    3        4     0.000002000     0  Q FWS [kworker]\n\
             \x20 8,0    3        5     0.000003000     0  m   N cfq schedule dispatch\n\
             \x20 8,16   1        1     0.250000000   700  Q  RM 0 + 1 [ls]\n\
             CPU3 (8,0):\n Reads Queued:           0,        0KiB\n",
        ),
        text(
            Format::FioV2,
            "fio version 2 iolog\n/dev/sda add\n/dev/sda open\n/dev/sda read 4096 8192\n/dev/sda wait 250 0\n\
             /dev/sda write 0 512\n/dev/sda wait 1000 0\n/dev/sda sync 0 0\n/dev/sda trim 0 4096\n/dev/sda close\n",
        ),
        text(
            Format::FioV3,
            "fio version 3 iolog\n2 a add\n3 b add\n872 a open\n873 b open\n878 a write 0 16384\n888 b read 512 512\n\
             900 a datasync 0 0\n1000 a close\n",
        ),
        text(
            Format::Alibaba,
            "419,W,8792731648,16384,1577808000000626\n725,R,0,4096,1577808000000700\n",
        ),
        text(
            Format::Tencent,
            "1538323200,4247200,128,1,1058\n1538323201,8,16,0,1063\n",
        ),
        text(
            Format::Systor,
            "Timestamp,Response,IOType,LUN,Offset,Size\n1456095145.133076000,0.000806000,R,0,4096,131072\n\
             1456095145.126285000,,W,1,512,512\n",
        ),
        text(
            Format::Etw,
            "BeginHeader\n               DiskRead,  TimeStamp,     Process Name ( PID),   ThreadID,             IrpPtr,   ByteOffset\n\
             EndHeader\n            DiskReadInit,       9000,      store.exe (1204),       4512, 0xfffffa800c7a1010\n\
             \x20               DiskRead,       9750,      store.exe (1204),       4512, 0xfffffa800c7a1010, 0x00a1b2c000, 0x00001000, \
             750,        2, 0x060043,         700, Normal, , 0xfffffa800d4c7b80, \"D:\\a, b.edb\"\n\
             \x20              DiskWrite,       9900,      System (   4),         96, 0xfffffa800c7a2010, 0x0000000200, 0x00010000, \
             100,        0, 0x060043,          90\n\
             \x20              DiskFlush,       9950,      System (   4),         96, 0xfffffa800c7a2010,         10,        0\n",
        ),
        text(
            Format::Hplajw,
            "time_us,disk,op,offset_bytes,size_bytes,wait_us,response_us\n0,1,R,270336,4096,174,19687\n22479,0,W,256,2048,76,10\n",
        ),
        text(
            Format::Octf,
            "device.id,device.name,file.id,file.offset,file.size,header.sid,header.timestamp,io.error,io.flush,io.fua,\
             io.ioClass,io.latency,io.lba,io.len,io.operation,io.qd\n\
             5,nvme0n1,,,,23,1000,false,false,true,1,144925,16,8,Write,1\n\
             6,nvme1n1,77,0,3,24,2000,false,false,false,11,12530,,8,Read,1\n\
             5,nvme0n1,,,,25,3000,false,true,false,0,85643,0,0,Write,1\n\
             5,nvme0n1,,,,26,4000,false,false,false,0,1,8,64,Discard,1\n",
        ),
        text(Format::BlockList, "0\n17\n17\n*\n3\n"),
        text(
            Format::Csv,
            "time_ns,device,op,offset,length,class,flags,file_size,latency_ns\n5,0,read,1,2,63,8,,\n9,1,write,0,4096,0,3,99,7\n",
        ),
    ]
}

/// An events file with a read, a write and a flush; the write is answered first.
pub fn events() -> Vec<u8> {
    use isotherm_core::{Effect, IoError, Nanos, Params, Request, RequestOp, Tag};
    use isotherm_traces::events::{Call, Encoder, End, Ending, Image, Origin, Writer};
    let origin = Origin {
        program: "isotherm".into(),
        volume: "v".into(),
        policy: "greendm".into(),
        epoch: None,
        time_base: Nanos(0),
        params: Params::default(),
        superblocks: Vec::new(),
    };
    let image = Image::default();
    let mut writer = Writer::create(Vec::new(), &origin, &image).expect("in memory");
    let mut encoder = Encoder::new(Vec::new());
    let mut call = |now, tag, op, class, replies: &[(u32, bool)]| {
        let request = Request {
            tag: Tag(tag),
            op,
            offset: u64::from(tag) * 4096,
            len: if op == RequestOp::Flush { 0 } else { 512 },
            fua: op == RequestOp::Write,
            class,
        };
        let effects: Vec<Effect> = replies
            .iter()
            .map(|(tag, ok)| Effect::Reply {
                tag: Tag(*tag),
                result: if *ok { Ok(()) } else { Err(IoError::Io) },
            })
            .collect();
        encoder.event(Nanos(now), &Call::Submit(request), &effects, |_| 0);
    };
    call(1000, 7, RequestOp::Read, 5, &[]);
    call(1500, 8, RequestOp::Write, 63, &[(8, true)]);
    call(4000, 9, RequestOp::Flush, 0, &[(7, false)]);
    encoder.event(Nanos(5000), &Call::Tick, &[], |_| 0);
    let (events, requests) = encoder.counts();
    writer.events(&encoder.take(Vec::new())).expect("in memory");
    let end = End {
        ending: Ending::Asked,
        events,
        requests,
        standing: None,
    };
    writer.finish(&end).expect("in memory")
}

/// A file with this content, in a directory of its own.
pub fn written(content: &[u8]) -> (tempfile::TempDir, std::path::PathBuf) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("trace");
    std::fs::write(&path, content).expect("writing the trace");
    (dir, path)
}

/// What `trace info` finds in a file with this content, and its records.
pub fn read(content: &[u8], options: &Options) -> (Info, Vec<Record>) {
    let (_dir, path) = written(content);
    let found = info(&path, options).expect("figures");
    let records = open(&path, options).expect("a trace");
    (found, records.map(|r| r.expect("a record")).collect())
}

/// The option `--columns`.
pub fn columns(text: &str) -> Options {
    Options {
        columns: Some(text.parse().expect(text)),
        ..Options::default()
    }
}
