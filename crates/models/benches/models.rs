//! The cost of an operation in the models themselves: start, next event and poll, through `dyn`.
//!
//! `cargo bench -p isotherm-models` (median ÷ 10 000 = ns an operation; the time shown is for 10 000 of them)
//!
//! Budgets, which leave the engine its share of 5 M accesses/s: flash without its translation layer 60 ns, a disk's
//! buffered and sequential operations 60 ns, a disk's random ones 100 ns.

use divan::{Bencher, counter::ItemsCount};
use isotherm_core::Nanos;
use isotherm_models::{DeviceModel, FlashState, ModelOp, Options, preset};

fn main() {
    divan::main();
}

/// Operations of one sample.
const OPS: u64 = 10_000;

/// How offsets follow each other.
#[derive(Clone, Copy)]
enum Pattern {
    Random,
    Sequential,
    /// Always the same few blocks.
    Again,
}

struct Loop {
    model: Box<dyn DeviceModel>,
    offsets: Vec<u64>,
    at: usize,
    now: Nanos,
    done: Vec<u64>,
    pattern: Pattern,
}

impl Loop {
    fn new(name: &str, options: &Options, pattern: Pattern) -> Loop {
        let model = preset(name, options).unwrap_or_else(|e| panic!("{e}"));
        let span = if options.size > 0 {
            options.size
        } else {
            model.capacity()
        };
        let mut random = isotherm_core::random::SplitMix64::new(1);
        let offsets = (0..1u64 << 16)
            .map(|i| match pattern {
                Pattern::Random => random.below(span / 4096) * 4096,
                Pattern::Sequential => i * 4096,
                Pattern::Again => i % 4 * 4096,
            })
            .collect();
        Loop {
            model,
            offsets,
            at: 0,
            now: Nanos(0),
            done: Vec::with_capacity(64),
            pattern,
        }
    }

    fn start(&mut self, write_every: usize) {
        let mut offset = self.offsets[self.at & 0xffff];
        if let Pattern::Sequential = self.pattern {
            offset += (self.at as u64 >> 16) << 28;
        }
        let write = write_every > 0 && self.at.is_multiple_of(write_every);
        let op = if write { ModelOp::Write } else { ModelOp::Read };
        self.model.start(self.now, self.at as u64, op, offset, 4096);
        self.at += 1;
    }

    /// Keep `depth` operations in flight for `OPS` completions.
    fn run(&mut self, write_every: usize) {
        let mut left = OPS;
        while left > 0 {
            self.now = self.model.next_event().unwrap_or(self.now);
            self.model.poll(self.now, &mut self.done);
            let finished = self.done.len();
            left = left.saturating_sub(finished as u64);
            self.done.clear();
            for _ in 0..finished {
                self.start(write_every);
            }
        }
    }
}

fn bench(
    b: Bencher,
    name: &str,
    options: &Options,
    pattern: Pattern,
    depth: usize,
    write_every: usize,
) {
    let mut work = Loop::new(name, options, pattern);
    for _ in 0..depth {
        work.start(write_every);
    }
    work.run(write_every);
    b.counter(ItemsCount::new(OPS))
        .bench_local(|| work.run(write_every));
}

/// Without the flash layer.
fn ideal() -> Options {
    Options {
        flash: FlashState::Rated,
        ..Options::default()
    }
}

#[divan::bench(args = [1, 8, 32])]
fn ssd_random(b: Bencher, depth: usize) {
    bench(b, "intel-320-300", &ideal(), Pattern::Random, depth, 3);
}

#[divan::bench(args = [1, 32])]
fn ssd_32_units_random(b: Bencher, depth: usize) {
    bench(b, "nvme-tlc", &ideal(), Pattern::Random, depth, 3);
}

#[divan::bench(args = [1, 32])]
fn ssd_ftl_random(b: Bencher, depth: usize) {
    let o = Options {
        size: 1 << 30,
        flash: FlashState::Preconditioned,
        ..Options::default()
    };
    bench(b, "intel-320-300", &o, Pattern::Random, depth, 3);
}

#[divan::bench(args = [1, 8, 32])]
fn hdd_random_read(b: Bencher, depth: usize) {
    bench(
        b,
        "wd5000aaks",
        &Options::default(),
        Pattern::Random,
        depth,
        0,
    );
}

#[divan::bench(args = [1, 2, 4, 8, 32])]
fn hdd_random_mixed(b: Bencher, depth: usize) {
    bench(
        b,
        "wd5000aaks",
        &Options::default(),
        Pattern::Random,
        depth,
        3,
    );
}

#[divan::bench(args = [1, 8])]
fn hdd_sequential_read(b: Bencher, depth: usize) {
    bench(
        b,
        "wd5000aaks",
        &Options::default(),
        Pattern::Sequential,
        depth,
        0,
    );
}

#[divan::bench(args = [1, 8])]
fn hdd_sequential_write(b: Bencher, depth: usize) {
    bench(
        b,
        "wd5000aaks",
        &Options::default(),
        Pattern::Sequential,
        depth,
        1,
    );
}

#[divan::bench(args = [1, 8])]
fn hdd_buffered_read(b: Bencher, depth: usize) {
    bench(
        b,
        "wd5000aaks",
        &Options::default(),
        Pattern::Again,
        depth,
        0,
    );
}

#[divan::bench(args = [1, 8])]
fn smr_random_read(b: Bencher, depth: usize) {
    bench(b, "smr-8tb", &Options::default(), Pattern::Random, depth, 0);
}

#[divan::bench]
fn smr_sequential_write(b: Bencher) {
    bench(b, "smr-8tb", &Options::default(), Pattern::Sequential, 1, 1);
}

#[divan::bench]
fn remote_random(b: Bencher) {
    bench(b, "remote", &Options::default(), Pattern::Random, 1, 3);
}
