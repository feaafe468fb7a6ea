//! Initiators that share the disk, and exclude each other.

use super::{READ, Rig, WRITE, data_out, good, half_a_write, noise, rig, rig_with};
use isotherm_live::iscsi::pdu::u32_at;
use isotherm_live::iscsi::reservation_file::ReservationFile;
use isotherm_live::iscsi::testing::{Initiator, Outcome};
use std::path::Path;

/// Status RESERVATION CONFLICT.
const CONFLICT: u8 = 0x18;
const REGISTER: u8 = 0;
const RESERVE: u8 = 1;
const CLEAR: u8 = 3;
const PREEMPT_AND_ABORT: u8 = 5;
/// Write exclusive, registrants only.
const KIND: u8 = 5;

fn out(i: &mut Initiator, action: u8, key: u64, about: u64, aptpl: bool) -> Outcome {
    let mut cdb = [0; 10];
    (cdb[0], cdb[1], cdb[2], cdb[8]) = (0x5f, action, KIND, 24);
    if action == REGISTER {
        cdb[2] = 0;
    }
    let mut data = [0; 24];
    data[..8].copy_from_slice(&key.to_be_bytes());
    data[8..16].copy_from_slice(&about.to_be_bytes());
    data[20] = u8::from(aptpl);
    i.command(&cdb, 0, &data).unwrap()
}

fn keys(i: &mut Initiator) -> usize {
    let answer = i
        .command(&[0x5e, 0, 0, 0, 0, 0, 0, 1, 0, 0], 256, &[])
        .unwrap();
    (answer.data.len() - 8) / 8
}

fn write(i: &mut Initiator, data: &[u8]) -> Outcome {
    let blocks = (data.len() / 512) as u32;
    i.command(&Initiator::blocks(WRITE, 0, blocks, 0, false), 0, data)
        .unwrap()
}

fn read(i: &mut Initiator, bytes: u32) -> Vec<u8> {
    let cdb = Initiator::blocks(READ, 0, bytes / 512, 0, false);
    let back = i.command(&cdb, bytes, &[]).unwrap();
    good(&back);
    back.data
}

#[test]
fn a_fenced_off_initiator_writes_no_more_not_even_a_write_in_progress() {
    let rig = rig();
    let (mut a, mut b) = (rig.login("iqn.x:a"), rig.login("iqn.x:b"));
    good(&write(&mut b, &noise(1, 4096)));
    good(&out(&mut a, REGISTER, 0, 11, false));
    good(&out(&mut a, RESERVE, 11, 0, false));
    assert_eq!(write(&mut b, &noise(2, 4096)).status, CONFLICT);
    assert!(read(&mut b, 4096) == noise(1, 4096), "reads are free");
    assert_eq!(out(&mut b, CLEAR, 0, 0, false).status, CONFLICT);
    good(&out(&mut b, REGISTER, 0, 12, false));
    good(&write(&mut b, &noise(3, 4096)));
    // A write of 128 KiB is in progress when its initiator is excluded.
    let r2t = half_a_write(&mut b);
    good(&out(&mut a, PREEMPT_AND_ABORT, 11, 12, false));
    assert_eq!(keys(&mut a), 1);
    let rest = vec![9; (128 << 10) - 512];
    b.send(data_out(&r2t, 512, 0, true), &rest).unwrap();
    let answer = b.receive().unwrap();
    assert_eq!((answer.header[0], answer.header[3]), (0x21, CONFLICT));
    assert_eq!(u32_at(&answer.header, 16), u32_at(&r2t, 16));
    // The next command gets the unit attention, later ones the conflict.
    let news = b.command(&[0; 6], 0, &[]).unwrap();
    assert_eq!(news.sense, Some((6, 0x2a, 5)));
    assert_eq!(write(&mut b, &noise(4, 4096)).status, CONFLICT);
    assert!(read(&mut a, 4096) == noise(3, 4096));
    good(&write(&mut a, &noise(5, 4096)));
    // Registrations survive sessions.
    a.logout().unwrap();
    let mut a = rig.login("iqn.x:a");
    good(&write(&mut a, &noise(6, 4096)));
    good(&out(&mut a, CLEAR, 11, 0, false));
    good(&write(&mut b, &noise(7, 4096)));
    assert_eq!(keys(&mut b), 0);
}

fn kept(file: &Path) -> Rig {
    let reservation_file = ReservationFile {
        file: file.to_owned(),
        volume: "v".into(),
    };
    rig_with(8 << 20, |c| c.reservation_file = Some(reservation_file))
}

#[test]
fn reservations_outlive_the_server_where_that_was_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("v.reservations");
    for (aptpl, status) in [(false, 0), (true, CONFLICT)] {
        let before = kept(&file);
        let mut a = before.login("iqn.x:a");
        good(&out(&mut a, REGISTER, 0, 11, aptpl));
        good(&out(&mut a, RESERVE, 11, 0, false));
        // As after a kill: nothing is written at its end.
        before.server.stop();
        let after = kept(&file);
        let mut b = after.login("iqn.x:b");
        assert_eq!(write(&mut b, &noise(1, 4096)).status, status, "{aptpl}");
        let mut a = after.login("iqn.x:a");
        good(&write(&mut a, &noise(2, 4096)));
        assert_eq!(keys(&mut a), usize::from(aptpl));
    }
    // If reservations cannot be stored, the target does not claim that they are.
    let rig = rig();
    let mut a = rig.login("iqn.x:a");
    assert_eq!(out(&mut a, REGISTER, 0, 11, true).sense, Some((5, 0x26, 0)));
    assert_eq!(keys(&mut a), 0);
}
