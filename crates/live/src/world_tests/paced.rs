use super::*;

#[test]
fn a_paced_member_ends_what_its_model_ends() {
    let mut b = bench(Some("wd5000aaks"));
    b.file.write_all_at(&vec![3; 1 << 20], 0).unwrap();
    b.file.sync_all().unwrap();
    for i in 0..8u64 {
        let before = b.world.model(0).unwrap().0;
        let offset = (i * 7919 * 4096) % (SIZE - 4096) / 4096 * 4096;
        assert_eq!(
            b.one(
                OpKind::Read,
                offset,
                4096,
                BufRef::Move {
                    index: 0,
                    offset: 0
                },
                false
            ),
            Ok(4096)
        );
        let after = b.world.model(0).unwrap().0;
        assert_eq!(
            (after.reads, after.bytes_read),
            (before.reads + 1, before.bytes_read + 4096)
        );
    }
    let (c, _) = b.world.model(0).unwrap();
    assert!(
        c.seeks >= 6,
        "a full span makes the arm travel: {} seeks",
        c.seeks
    );
    // The world's clock advanced by at least the time that the model's arm and platter needed.
    assert!(b.world.model_now().0 >= c.busy_ns);
    assert_eq!(b.one(OpKind::Write, 0, 4096, BufRef::Meta, true), Ok(4096));
    let (c, _) = b.world.model(0).unwrap();
    assert_eq!((c.writes, c.flushes), (1, 0));
    assert_eq!(b.on_disk(0, 4096), [0xab; 4096]);
}

/// A device that ends operations only when a test tells it to.
struct Gate {
    open: Arc<std::sync::atomic::AtomicBool>,
    held: Vec<u64>,
}

impl DeviceModel for Gate {
    fn start(&mut self, _: Nanos, id: u64, _: ModelOp, _: u64, _: u32) {
        self.held.push(id);
    }
    fn next_event(&self) -> Option<Nanos> {
        self.open
            .load(std::sync::atomic::Ordering::Relaxed)
            .then_some(Nanos(0))
            .filter(|_| !self.held.is_empty())
    }
    fn poll(&mut self, _: Nanos, done: &mut Vec<u64>) {
        if self.next_event().is_some() {
            done.append(&mut self.held);
        }
    }
    fn counters(&self, _: Nanos) -> Counters {
        Counters::default()
    }
    fn wear(&self) -> Wear {
        Wear::default()
    }
    fn capacity(&self) -> u64 {
        SIZE
    }
}

#[test]
fn the_completion_waits_for_file_and_model() {
    let open = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let mut b = bench_with(Some(Box::new(Gate {
        open: Arc::clone(&open),
        held: Vec::new(),
    })));
    let id = b.start(OpKind::Write, 0, 4096, BufRef::Meta, false);
    let mut events = Vec::new();
    // The file is written...
    while b.on_disk(0, 4096) != [0xab; 4096] {
        let soon = b.world.now() + Nanos::from_millis(1);
        b.world.wait(Some(soon), &mut events);
    }
    let soon = b.world.now() + Nanos::from_millis(5);
    b.world.wait(Some(soon), &mut events);
    // ... but its completion is reported only when the model allows it.
    assert!(events.is_empty());
    open.store(true, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(b.finish(1), [(id, Ok(4096))]);
}
