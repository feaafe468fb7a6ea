//! Events files: recorded runs, which people send each other.

use isotherm_core::{
    BufRef, DeviceOp, Effect, ExtentId, IoError, MemberId, Nanos, OpId, OpKind, Params, Request,
    RequestOp, Tag,
};
use isotherm_traces::events::{
    Call, Encoder, End, Ending, Event, Image, Origin, Reader, Standing, Writer, pack, unpack,
};

/// A small file that is right, with every kind of call, effect and buffer.
pub fn valid() -> Vec<u8> {
    let origin = Origin {
        program: "isotherm 0".into(),
        volume: "v".into(),
        policy: "greendm,PT=2".into(),
        epoch: Some(7),
        time_base: Nanos(1_000_000),
        params: Params {
            standby_after: vec![None, Some(Nanos::from_secs(60))],
            move_bytes_per_s: Some(1 << 20),
            ..Params::default()
        },
        superblocks: vec![Some(vec![1; 4096]), None],
    };
    let mut image = Image::default();
    for member in 0..2 {
        image.saw(MemberId(member), 8192, &[3; 8192]);
    }
    image.saw(MemberId(1), 1 << 40, &[4; 4096]);
    image.failed(MemberId(1), 0, 4096);
    let mut writer = Writer::create(Vec::new(), &origin, &image).expect("in memory");
    let mut encoder = Encoder::new(Vec::new());
    for (i, (call, effects)) in calls().into_iter().enumerate() {
        encoder.event(
            Nanos(1_000_000 + i as u64 / 2 * 777),
            &call,
            &effects,
            |_| 0xabcd,
        );
        if i == 4 {
            writer.events(&encoder.take(Vec::new())).expect("in memory");
        }
    }
    let (events, requests) = encoder.counts();
    writer.events(&encoder.take(Vec::new())).expect("in memory");
    let end = End {
        ending: Ending::Asked,
        events,
        requests,
        standing: Some(Standing {
            next_wake: Some(Nanos(9)),
            counters: "Counters".into(),
        }),
    };
    writer.finish(&end).expect("in memory")
}

#[expect(clippy::too_many_lines, reason = "one scenario")]
fn calls() -> Vec<(Call, Vec<Effect>)> {
    let request = |op, offset, len, class, fua| {
        Call::Submit(Request {
            tag: Tag(3),
            op,
            offset,
            len,
            fua,
            class,
        })
    };
    let bufs = [
        BufRef::None,
        BufRef::Request {
            tag: Tag(3),
            offset: 512,
        },
        BufRef::Move {
            index: 2,
            offset: 0,
        },
        BufRef::Meta,
    ];
    let kinds = [OpKind::Flush, OpKind::Write, OpKind::Read, OpKind::Write];
    let starts = bufs
        .into_iter()
        .zip(kinds)
        .enumerate()
        .map(|(i, (buf, kind))| {
            Effect::Start(DeviceOp {
                id: OpId(i as u32),
                member: MemberId(i as u8 % 2),
                kind,
                offset: (i as u64) << 33,
                len: 4096,
                buf,
                fua: i == 3,
            })
        });
    let zero = Effect::Zero {
        tag: Tag(3),
        offset: 0,
        len: 65536,
    };
    let copy = Effect::CopyFromMove {
        index: 1,
        from: 2,
        tag: Tag(3),
        to: 4,
        len: 5,
    };
    let reply = |result| Effect::Reply {
        tag: Tag(3),
        result,
    };
    let complete = |result| Call::Complete {
        id: OpId(300),
        result,
    };
    vec![
        (
            request(RequestOp::Read, u64::MAX - 5, 100, 0, false),
            vec![zero],
        ),
        (
            request(RequestOp::Write, 0, 1 << 25, 63, true),
            starts.collect(),
        ),
        (
            request(RequestOp::WriteZeroes { keep: true }, 1 << 50, 7, 1, false),
            vec![],
        ),
        (
            complete(Ok(u32::MAX)),
            vec![Effect::Patch { tag: Tag(3) }, reply(Ok(()))],
        ),
        (
            complete(Err(IoError::Gone)),
            vec![copy, reply(Err(IoError::NoSpace))],
        ),
        (Call::Tick, vec![reply(Ok(())); 40]),
        (
            Call::Set {
                key: "PT".into(),
                value: 0.1,
            },
            vec![],
        ),
        (
            Call::Policy {
                text: "lru,write-mode=write-around".into(),
            },
            vec![],
        ),
        (
            Call::Reclassify {
                extent: ExtentId(70_000),
                class: 63,
                runs: vec![(15, 63), (1, 0)],
            },
            vec![reply(Ok(()))],
        ),
        (Call::Close, vec![]),
    ]
}

/// Any bytes as a file. How many events it has; `None` if it is refused. What is accepted comes back when written again.
pub fn file(data: &[u8]) -> Option<u64> {
    let mut reader = Reader::new(data).ok()?;
    let mut events = Vec::new();
    while let Some(e) = reader.next().ok()? {
        events.push(e);
    }
    let end = reader.end().expect("behind the last event").clone();
    let mut writer =
        Writer::create(Vec::new(), reader.origin(), reader.image()).expect("what was read");
    let mut encoder = Encoder::new(Vec::new());
    for e in &events {
        let effects: Vec<Effect> = e.decisions.iter().map(|d| d.effect).collect();
        let mut metas = e
            .decisions
            .iter()
            .filter(|d| is_meta(&d.effect))
            .map(|d| d.meta);
        let metas = std::cell::RefCell::new(&mut metas);
        encoder.event(e.now, &e.call, &effects, |_| {
            metas.borrow_mut().next().unwrap_or(0)
        });
    }
    writer
        .events(&encoder.take(Vec::new()))
        .expect("what was read");
    let written = writer.finish(&end).expect("what was read");
    let mut again = Reader::new(&written[..]).expect("our own");
    assert_eq!(again.image(), reader.image());
    assert_eq!(
        format!("{:?}", again.origin()),
        format!("{:?}", reader.origin())
    );
    for e in &events {
        let back = again.next().expect("our own").expect("as many");
        assert!(same(e, &back), "{e:?}\n{back:?}");
    }
    assert_eq!(again.next().expect("our own"), None);
    assert_eq!(again.end(), Some(&end));
    Some(end.events)
}

fn is_meta(e: &Effect) -> bool {
    matches!(e, Effect::Start(op) if op.buf == BufRef::Meta)
}

/// Equal, where a value that is no number equals itself.
fn same(a: &Event, b: &Event) -> bool {
    match (&a.call, &b.call) {
        (Call::Set { key: k, value: v }, Call::Set { key: l, value: w }) => {
            (k, v.to_bits(), a.now, &a.decisions) == (l, w.to_bits(), b.now, &b.decisions)
        }
        _ => a == b,
    }
}

/// Bytes as the payload of one block (of the valid file's block number `n`), the others as they are.
pub fn payload(n: usize, data: &[u8]) -> Option<u64> {
    let mut blocks = unpack(&valid()).expect("our own");
    let n = n % blocks.len();
    blocks[n].1 = data.to_vec();
    file(&pack(&blocks).expect("short"))
}

/// A file if it claims to be one, else a payload of the block that the first byte names.
pub fn any(data: &[u8]) -> Option<u64> {
    match data {
        [n, rest @ ..] if !isotherm_traces::events::is_events(data) => {
            payload(usize::from(*n), rest)
        }
        _ => file(data),
    }
}
