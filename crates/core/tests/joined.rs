//! Adjacent moves become one device operation; a fault of that operation affects only the moves that it concerns.
#![allow(clippy::unwrap_used)]

mod rig;

use isotherm_core::engine::Params;
use isotherm_core::policy::{
    Access, Action, ParamError, Place, Policy, Refusal, Uses, View, WriteTo,
};
use isotherm_core::*;
use rig::{EXTENT, Run};

const SLOW: MemberId = MemberId(1);
const FAST: MemberId = MemberId(0);

fn params(buffers: u16) -> Params {
    Params {
        move_buffers: buffers,
        ..Params::default()
    }
}

/// Records every operation that is started; operations end only when a test ends them.
struct Steps {
    run: Run,
    ops: Vec<DeviceOp>,
}

impl Steps {
    fn new(policy: &str, params: Params) -> Steps {
        Steps::of(Run::new(policy, params))
    }
    fn of(run: Run) -> Steps {
        let ops = Vec::new();
        Steps { run, ops }
    }
    fn note(&mut self) -> Vec<Effect> {
        let out = std::mem::take(&mut self.run.out);
        for e in &out {
            if let Effect::Start(op) = e {
                self.ops.push(*op);
            }
        }
        out
    }
    /// A request for `n` extents from `first` on.
    fn ask(&mut self, tag: u32, op: RequestOp, first: u64, n: u64) -> Vec<Effect> {
        let req = Request {
            tag: Tag(tag),
            op,
            offset: first * EXTENT,
            len: (n * EXTENT) as u32,
            fua: false,
            class: 0,
        };
        self.run.now = self.run.now + Nanos::from_millis(1);
        self.run.engine.submit(self.run.now, req, &mut self.run.out);
        self.note()
    }
    fn end(&mut self, op: DeviceOp, result: Result<u32, IoError>) -> Vec<Effect> {
        self.run.now = self.run.now + Nanos::from_millis(1);
        self.ops.retain(|o| o.id != op.id);
        self.run
            .engine
            .complete(self.run.now, op.id, result, &mut self.run.out);
        self.note()
    }
    /// Operations of moves in progress on `member`.
    fn moves(&self, member: MemberId, kind: OpKind) -> Vec<DeviceOp> {
        let of = |o: &&DeviceOp| {
            matches!(o.buf, BufRef::Move { .. }) && o.member == member && o.kind == kind
        };
        self.ops.iter().filter(of).copied().collect()
    }
    /// Ends all operations with success.
    fn settle(&mut self) {
        for _ in 0..10_000 {
            let Some(&op) = self.ops.first() else {
                self.run.now = self.run.now + Nanos::from_secs(1);
                self.run.engine.tick(self.run.now, &mut self.run.out);
                self.note();
                if self.ops.is_empty() {
                    return;
                }
                continue;
            };
            self.end(op, Ok(op.len));
        }
        panic!("the operations do not end");
    }
    fn copies(&self) -> u64 {
        self.run.engine.counters().fetches.done
    }
}

fn replies(out: &[Effect]) -> usize {
    let is = |e: &&Effect| matches!(e, Effect::Reply { result: Ok(()), .. });
    out.iter().filter(is).count()
}

#[test]
fn a_cold_read_reads_the_disk_once_and_its_fetches_write_once() {
    let mut s = Steps::new("lru", params(32));
    s.ask(1, RequestOp::Read, 8, 16);
    // The disk is read once for all extents, and not separately for the request.
    let reads: Vec<_> = s.ops.iter().filter(|o| o.member == SLOW).collect();
    assert_eq!(reads.len(), 1, "{:?}", s.ops);
    assert_eq!((reads[0].kind, reads[0].len), (OpKind::Read, 16 * 4096));
    let read = *reads[0];
    let out = s.end(read, Ok(read.len));
    // The request is answered with the data that was read, while this is still being written to the cache.
    assert_eq!(replies(&out), 1);
    let copied = |e: &&Effect| matches!(e, Effect::CopyFromMove { .. });
    assert_eq!(out.iter().filter(copied).count(), 16);
    let writes = s.moves(FAST, OpKind::Write);
    assert_eq!(writes.len(), 1);
    assert_eq!(writes[0].len, 16 * 4096);
    s.settle();
    assert_eq!(s.copies(), 16);
    assert_eq!(s.run.refused(Refusal::Limit), 0);
}

/// 512 KiB in extents of 4 KiB, with the buffers of a volume with such extents.
#[test]
fn a_cold_read_of_128_extents_takes_one_disk_read_and_refuses_no_fetch() {
    let buffers = Params::buffers_for(EXTENT as u32);
    let mut s = Steps::of(Run::of(rig::sized("lru", params(buffers), 160, 1024)));
    s.ask(1, RequestOp::Read, 0, 128);
    let reads: Vec<_> = s.ops.iter().filter(|o| o.member == SLOW).copied().collect();
    assert_eq!(reads.len(), 1, "{:?}", s.ops);
    assert_eq!(reads[0].len, 512 << 10);
    s.end(reads[0], Ok(reads[0].len));
    let writes = s.moves(FAST, OpKind::Write);
    assert_eq!((writes.len(), writes[0].len), (1, 512 << 10));
    s.settle();
    assert_eq!(s.copies(), 128);

    // The cache is full: 96 more slots are needed than are free. The least recently used extents, which are adjacent, are evicted.
    s.ask(2, RequestOp::Read, 512, 128);
    let reads: Vec<_> = s.ops.iter().filter(|o| o.member == SLOW).copied().collect();
    assert_eq!(reads.len(), 1, "{:?}", s.ops);
    s.end(reads[0], Ok(reads[0].len));
    let writes = s.moves(FAST, OpKind::Write);
    assert_eq!(writes.iter().map(|o| o.len).sum::<u32>(), 512 << 10);
    assert!(writes.len() <= 2, "{writes:?}");
    s.settle();
    assert_eq!(s.copies(), 256);
    assert_eq!(s.run.refused(Refusal::Limit), 0);
}

#[test]
fn on_a_full_cache_one_write_for_each_run_of_free_slots() {
    let mut s = Steps::new("lru", params(32));
    s.ask(1, RequestOp::Read, 0, 16);
    s.settle();
    // Extents 0..16 are in slots 0..16. Extents 4..8 and 12..14 are the least recently used, so they are evicted.
    for (tag, first, n) in [(2, 0, 4), (3, 8, 4), (4, 14, 2)] {
        s.ask(tag, RequestOp::Read, first, n);
        s.settle();
    }
    s.ask(5, RequestOp::Read, 40, 6);
    let reads = s.moves(SLOW, OpKind::Read);
    assert_eq!(reads.len(), 1);
    assert_eq!(reads[0].len, 6 * 4096);
    s.end(reads[0], Ok(reads[0].len));
    let mut lens: Vec<u32> = s.moves(FAST, OpKind::Write).iter().map(|o| o.len).collect();
    lens.sort_unstable();
    assert_eq!(lens, [2 * 4096, 4 * 4096]);
    s.settle();
    assert_eq!(s.copies(), 16 + 6);
}

#[test]
fn limits_and_the_setting_that_turns_joining_off() {
    for (bytes, lens) in [(0, vec![4096; 8]), (12_288, vec![12_288, 12_288, 8192])] {
        let mut p = params(32);
        p.join_bytes = bytes;
        let mut s = Steps::new("lru", p);
        s.ask(1, RequestOp::Read, 0, 8);
        let seen: Vec<u32> = s.moves(SLOW, OpKind::Read).iter().map(|o| o.len).collect();
        assert_eq!(seen, lens);
        s.settle();
        assert_eq!(s.copies(), 8);
    }
}

#[test]
fn a_slow_device_gets_shorter_joined_operations() {
    let mut p = params(64);
    p.join_time = Nanos::from_millis(2);
    let mut s = Steps::new("lru", p);
    s.ask(1, RequestOp::Read, 0, 16);
    let read = s.moves(SLOW, OpKind::Read)[0];
    assert_eq!(read.len, 16 * 4096);
    // 64 KiB took 8 ms. In 2 ms only 16 KiB would be possible, but 32 KiB are always allowed.
    s.run.now = s.run.now + Nanos::from_millis(7);
    s.end(read, Ok(read.len));
    s.settle();
    s.ask(2, RequestOp::Read, 40, 12);
    let lens: Vec<u32> = s.moves(SLOW, OpKind::Read).iter().map(|o| o.len).collect();
    assert_eq!(lens, [8 * 4096, 4 * 4096]);
    s.settle();
}

#[test]
fn a_failed_joined_operation_is_repeated_per_extent() {
    for torn in [false, true] {
        let mut s = Steps::new("lru", params(32));
        s.ask(1, RequestOp::Read, 0, 4);
        let read = s.moves(SLOW, OpKind::Read)[0];
        let how = if torn { Ok(6144) } else { Err(IoError::Io) };
        let out = s.end(read, how);
        assert_eq!(replies(&out), 0);
        let apart = s.moves(SLOW, OpKind::Read);
        assert_eq!(apart.len(), 4);
        for (i, op) in apart.into_iter().enumerate() {
            assert_eq!((op.offset, op.len), (read.offset + i as u64 * EXTENT, 4096));
            let bad = i == 2;
            s.end(op, if bad { Err(IoError::Io) } else { Ok(4096) });
        }
        s.settle();
        let c = s.run.engine.counters();
        assert_eq!(
            (c.fetches.done, c.fetches.failed, c.joins_repeated),
            (3, 1, 1)
        );
        for e in 0..4 {
            let copied = s.run.engine.explain(s.run.now, ExtentId(e)).copy.is_some();
            assert_eq!(copied, e != 2, "extent {e}");
        }
    }
}

/// Writes make copies; an access to extent 90 causes the copies of 0 to 3 to be written home.
#[derive(Debug)]
struct CleaningPolicy;

impl Policy for CleaningPolicy {
    fn name(&self) -> &'static str {
        "told"
    }
    fn uses(&self) -> Uses {
        Uses::Copies
    }
    fn attach(&mut self, _view: &mut View<'_>) {}
    fn first_touch(&mut self, view: &mut View<'_>, _extent: ExtentId) -> Place {
        Place::Tier(view.slowest())
    }
    fn on_access(&mut self, _view: &mut View<'_>, access: &Access, wanted: &mut Vec<Action>) {
        let (extent, to) = (access.extent, TierId(0));
        if extent.0 == 90 {
            let cleans = [2, 0, 3, 1].map(|e| Action::Clean {
                extent: ExtentId(e),
            });
            wanted.extend(cleans);
        } else if access.write && access.copy.is_none() {
            wanted.push(Action::Allocate { extent, to });
        }
    }
    fn write_to(&mut self, _view: &mut View<'_>, _access: &Access) -> WriteTo {
        WriteTo::Copy
    }
    fn set(&mut self, _key: &str, _value: f64) -> Result<(), ParamError> {
        Err(ParamError::Unknown(String::new()))
    }
    fn params(&self) -> Vec<(&'static str, f64)> {
        Vec::new()
    }
    fn explain(&self, _view: &View<'_>, _extent: ExtentId) -> String {
        String::new()
    }
}

/// Four dirty copies, whose cleans have begun.
fn cleaning() -> Steps {
    let mut s = Steps::new("lru", params(32));
    s.run
        .engine
        .set_policy(s.run.now, Box::new(CleaningPolicy))
        .expect("a caching policy follows another");
    // Homes are in the order of addresses, copies in another order.
    s.ask(7, RequestOp::Read, 0, 4);
    s.settle();
    for (tag, e) in [(1, 3), (2, 1), (3, 0), (4, 2)] {
        s.ask(tag, RequestOp::Write, e, 1);
        s.settle();
    }
    s.ask(5, RequestOp::Read, 90, 1);
    assert_eq!(s.moves(FAST, OpKind::Read).len(), 4);
    s
}

fn dirty(s: &mut Steps) -> Vec<u32> {
    let now = s.run.now;
    let engine = &mut s.run.engine;
    let mut is = |e: &u32| engine.explain(now, ExtentId(*e)).dirty_blocks > 0;
    (0..4).filter(|e| is(e)).collect()
}

#[test]
fn cleans_of_a_batch_go_home_as_one_write() {
    let mut s = cleaning();
    for op in s.moves(FAST, OpKind::Read) {
        assert!(s.moves(SLOW, OpKind::Write).is_empty());
        s.end(op, Ok(4096));
    }
    let home = s.moves(SLOW, OpKind::Write);
    assert_eq!((home.len(), home[0].len), (1, 4 * 4096));
    s.settle();
    assert_eq!(dirty(&mut s), []);
}

#[test]
fn a_concurrent_write_cancels_only_the_move_of_its_extent() {
    let mut s = cleaning();
    s.ask(6, RequestOp::Write, 1, 1);
    for op in s.moves(FAST, OpKind::Read) {
        s.end(op, Ok(4096));
    }
    let lens: Vec<u32> = s.moves(SLOW, OpKind::Write).iter().map(|o| o.len).collect();
    assert_eq!(lens, [4096, 2 * 4096]);
    s.settle();
    assert_eq!(dirty(&mut s), [1]);
}

#[test]
fn a_failed_read_does_not_delay_the_other_moves_of_its_batch() {
    let mut s = cleaning();
    for (i, op) in s.moves(FAST, OpKind::Read).into_iter().enumerate() {
        let bad = i == 3;
        s.end(op, if bad { Err(IoError::Io) } else { Ok(4096) });
    }
    s.settle();
    assert_eq!(dirty(&mut s).len(), 1);
    assert_eq!(s.run.engine.counters().writebacks.failed, 1);
}
