//! Tests of `replay`.

use super::*;

fn record(ms: u64, op: Op, offset: u64, len: u32) -> Record {
    Record::new(Nanos::from_millis(ms), op, offset, len)
}

#[test]
fn touched_regions_lie_side_by_side_in_order() {
    let far = 30 << 30;
    let records = vec![
        record(0, Op::Write, far + REGION - 512, 1024),
        record(1, Op::Read, 5 * REGION + 4096, 512),
        record(60_000, Op::Write, far + 2 * REGION, 512),
    ];
    let plan = Plan::of(records, "t".into(), 8, "greendm".into()).expect("a plan");
    let offsets: Vec<u64> = plan.records.iter().map(|r| r.offset).collect();
    assert_eq!(offsets, [2 * REGION - 512, 4096, 3 * REGION]);
    assert_eq!((plan.volume, plan.extents.len()), (4 * REGION, 4));
    assert!((plan.minutes - 1.0).abs() < 1e-9);
    assert!(Plan::of(Vec::new(), "t".into(), 8, "greendm".into()).is_err());
}

#[test]
fn a_wrong_or_old_sector_is_seen() {
    let versions = [0, 7, 7, 0];
    let mut data = vec![0; 1024];
    stamp(1, 7, &mut data[..512]);
    stamp(2, 7, &mut data[512..]);
    assert_eq!(check(&versions, 512, &data), Ok(()));
    stamp(2, 6, &mut data[512..]);
    assert_eq!(check(&versions, 512, &data), Err(1024));
    stamp(3, 7, &mut data[512..]);
    assert_eq!(check(&versions, 512, &data), Err(1024));
    stamp(2, 7, &mut data[512..]);
    data[511] ^= 1;
    assert_eq!(check(&versions, 512, &data), Err(512));
}

#[test]
fn a_replay_runs_and_a_damaged_device_is_noticed() {
    let dir = tempfile::tempdir().expect("a directory");
    let records = (0..400u64)
        .map(|i| {
            let op = if i % 3 == 0 { Op::Read } else { Op::Write };
            record(i, op, i * 7919 % 600 * 4096, 8192)
        })
        .collect();
    let plan = Plan::of(records, "t".into(), 8, "greendm".into()).expect("a plan");
    let stop = Stop::default();
    for kind in SetUp::ALL {
        let at = dir.path().join(format!("{kind:?}"));
        fs::create_dir(&at).expect("made");
        let sized = Sized::find(
            kind,
            &plan.policy,
            (plan.volume / EXTENT) as u32,
            plan.fast(),
            &at,
        )
        .expect("sizes");
        let place = Place {
            kind,
            volume: sized.create(&at).expect("made"),
            dir: at.clone(),
        };
        let mut run = Run::new(&plan, &stop);
        // Without pacing, because the test is about data and not about time.
        let server = place.open(&sized, false).expect("opens");
        run.fill(&server.port()).expect("filled");
        run.replay(&server.port()).expect("replayed");
        assert_eq!(run.latencies.len(), 400);
        server.stop().expect("stopped");
        for member in ["ssd.img", "hdd.img"]
            .map(|n| at.join(n))
            .iter()
            .filter(|p| p.exists())
        {
            let mut bytes = fs::read(member).expect("read");
            // This is after the metadata, which has checksums of its own.
            let data = bytes.len() / 2;
            bytes[data..].fill(0xa5);
            let end = bytes.len() - 64 * 1024;
            let original = fs::read(member).expect("read");
            bytes[end..].copy_from_slice(&original[end..]);
            fs::write(member, bytes).expect("written");
        }
        let server = place.open(&sized, false).expect("opens");
        let seen = run.read_back(&server.port());
        assert!(
            seen.is_err_and(|e| e.to_string().contains("wrong data")),
            "{kind:?}"
        );
    }
}
