//! An initiator that sends anything: headers, login texts with and without secrets, commands to the disk.

use isotherm_live::iscsi::chap::Secrets;
use isotherm_live::iscsi::login::{Login, Step, Target};
use isotherm_live::iscsi::pdu::{
    HEADER, Incoming, MAX_SEGMENT, What, add_pair, header, put, put_data_len,
};
use isotherm_live::iscsi::reservations::{Nexus, Order, Reservations};
use isotherm_live::iscsi::scsi::{self, Disk, MAX_RANGES, MAX_TRANSFER, MAX_UNMAP, Task};
use std::sync::Arc;

const IQN: &str = "iqn.2026-01.org.example:v";
const BLOCKS: u64 = 1 << 20;

/// What a valid initiator sends: a login in two steps, one command of every kind with its data, a ping, a goodbye.
pub fn valid_session() -> Vec<u8> {
    let mut out = vec![0];
    let mut send = |opcode: u8, flags: u8, cdb: &[u8], data: &[u8]| {
        let mut b = header(opcode, flags, 1);
        put(&mut b, 20, 4096);
        b[32..32 + cdb.len()].copy_from_slice(cdb);
        put_data_len(&mut b, data.len());
        out.extend_from_slice(&b);
        out.extend_from_slice(data);
        out.resize(1 + (out.len() - 1).next_multiple_of(4), 0);
    };
    let mut names = Vec::new();
    for (key, value) in [
        ("InitiatorName", "iqn.x:a"),
        ("TargetName", IQN),
        ("AuthMethod", "None"),
    ] {
        add_pair(&mut names, key, value);
    }
    send(0x43, 0x81, &[], &names);
    let mut keys = Vec::new();
    for (key, value) in [
        ("MaxBurstLength", "262144"),
        ("HeaderDigest", "CRC32C,None"),
        ("X", "y"),
    ] {
        add_pair(&mut keys, key, value);
    }
    send(0x43, 0x87, &[], &keys);
    let mut list = vec![0, 22, 0, 16, 0, 0, 0, 0];
    list.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 8, 0, 0, 0, 0]);
    for (cdb, data) in [
        (&[0x12u8, 1, 0x83, 0, 255, 0][..], &[][..]),
        (&[0x1a, 0, 0x3f, 0, 255, 0], &[]),
        (&[0x28, 0, 0, 0, 0, 7, 3, 0, 8, 0], &[]),
        (
            &[0x8a, 8, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 1, 31, 0],
            &[9; 512],
        ),
        (&[0x42, 0, 0, 0, 0, 0, 5, 0, 24, 0], &list),
        (
            &[0x93, 8, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 8, 0, 0],
            &[0; 512],
        ),
        (&[0x9e, 0x12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0], &[]),
    ] {
        send(0x01, 0xe1, cdb, data);
    }
    send(0x00, 0x80, &[], b"ping");
    send(0x06, 0x80, &[], &[]);
    out
}

fn within(e: &scsi::Extent) {
    assert!(
        e.offset + u64::from(e.len) <= BLOCKS * 512 && e.len <= MAX_TRANSFER && e.class < 32,
        "{e:?}"
    );
}

/// A command and its data; whether it was understood.
fn command(disk: &Disk, cdb: &[u8; 16], data: &[u8]) -> bool {
    let Ok(task) = scsi::task(disk, cdb) else {
        return false;
    };
    match &task {
        Task::Read(e) | Task::Write(e) | Task::Verify(e) | Task::Compare(e) => within(e),
        Task::WriteSame { extent, .. } => within(extent),
        Task::Unmap { .. } => {
            if let Ok(ranges) = scsi::unmap_ranges(disk, data) {
                assert!(ranges.len() <= MAX_RANGES);
                assert!(ranges.iter().all(|r| r.0 + r.1 <= BLOCKS * 512));
                assert!(ranges.iter().map(|r| r.1).sum::<u64>() <= MAX_UNMAP);
            }
        }
        Task::Status { offset, .. } => assert!(*offset < BLOCKS * 512),
        Task::Say(bytes, _) => assert!(bytes.len() < 4096),
        Task::ReserveOut { action, scope_type } => {
            // Whatever is asked for, and however often: the state stays whole and bounded, and its report has the length that it says.
            let who = Nexus::default();
            let mut all = Reservations::default();
            if let Ok(order) = Order::parse(*action, *scope_type, data) {
                for action in [*action, 0, 6, 1, 5, 2, 3] {
                    let _ = all.change(&who, &Order { action, ..order });
                }
            }
            assert!(all.registrants.len() <= 1);
            let report = all.report(0, true).unwrap_or_default();
            assert_eq!(report.len(), 8 + 8 * all.registrants.len());
        }
        Task::Nothing | Task::Flush { .. } | Task::ReserveIn { .. } => {}
    }
    assert!(task.data_in(disk.block) <= MAX_TRANSFER.max(u32::from(u16::MAX)));
    true
}

/// Play the target to `data`: the first byte says whether there are secrets and whether the disk is read-only. How many commands
/// were understood.
pub fn session(data: &[u8]) -> usize {
    let [how, stream @ ..] = data else {
        return 0;
    };
    let secrets = (how & 1 != 0)
        .then(|| Secrets::parse("joe secret-of-joe\nmutual us our-own-secret").ok())
        .flatten();
    let disk = Disk {
        name: "v".into(),
        target: IQN.into(),
        uuid: [1; 16],
        present_blocks: BLOCKS.into(),
        block: 512,
        preferred: 65536,
        read_only: how & 2 != 0,
        zeros: true,
    };
    let guarded = secrets.is_some();
    let target = Target {
        name: IQN.into(),
        secrets: secrets.map(Arc::new),
    };
    let mut login = Login::new(target, 1, 9, [7; 16]);
    let (mut at, mut begun, mut understood) = (0, false, 0);
    while let Some(b) = stream.get(at..at + HEADER).and_then(|b| b.try_into().ok()) {
        let Ok(incoming) = Incoming::parse(b) else {
            return understood;
        };
        assert!(
            incoming.data <= MAX_SEGMENT && incoming.padding < 4 && incoming.more_header <= 1020
        );
        at += HEADER + incoming.more_header;
        let Some(segment) = stream.get(at..at + incoming.data) else {
            return understood;
        };
        at += incoming.data + incoming.padding;
        match incoming.what {
            What::Login(request) if !begun => match login.step(&request, segment) {
                Step::Reply(..) => {}
                Step::Begin(..) => {
                    // Nobody guesses the answer to a challenge.
                    assert!(!guarded, "let in without a secret");
                    begun = true;
                }
                Step::Refuse(b, why) => {
                    assert!(b[36] != 0 && !why.is_empty());
                    return understood;
                }
            },
            What::Command(c) if begun => understood += usize::from(command(&disk, &c.cdb, segment)),
            _ if !begun => return understood,
            _ => {}
        }
    }
    understood
}
