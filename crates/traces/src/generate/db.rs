//! A database below its buffer pool, as the disk sees it: tables in one address space, pages that are read on a miss, dirty pages that
//! checkpoints write, and a log that is written at each commit.

use std::collections::BTreeSet;

use isotherm_core::Nanos;
use lru::LruCache;

use crate::layout::Service;
use crate::record::{Flags, Op, Record};

/// Classes of DSS Table 6.
pub(super) mod class {
    pub const INODE: u8 = 4;
    pub const INDIRECT: u8 = 5;
    pub const LOG: u8 = 19;
    pub const SYSTEM: u8 = 20;
    pub const FREE_SPACE: u8 = 21;
    pub const TEMPORARY: u8 = 22;
    pub const RANDOM: u8 = 23;
    pub const SEQUENTIAL: u8 = 24;
    pub const INDEX: u8 = 25;
}

/// A table or index.
#[derive(Clone, Copy, Debug)]
pub(super) struct Table {
    first: u64,
    pub pages: u64,
    class: u8,
}

impl Table {
    /// The same pages under another class, for a scan of a table that is otherwise read at random.
    pub fn as_class(self, class: u8) -> Table {
        Table { class, ..self }
    }
}

/// The database.
pub(super) struct Db {
    page: u32,
    longest: u32,
    pool_pages: usize,
    /// In order of use, the least recently used page last. It is never iterated, so the order of hashes decides nothing.
    pool: LruCache<u64, ()>,
    dirty: BTreeSet<u64>,
    tables: Vec<Table>,
    pages: u64,
    log: Table,
    log_at: u64,
    log_bytes: u64,
    now: u64,
    head: u64,
    service: Service,
    pub out: Vec<Record>,
}

impl Db {
    /// A database with pages of `page` bytes, requests of up to `longest` bytes, a pool of `pool` bytes and a log of `log` bytes.
    pub fn new(page: u64, longest: u64, pool: u64, log: u64) -> Db {
        let mut db = Db {
            page: page as u32,
            longest: (longest / page).max(1) as u32,
            pool_pages: (pool / page).max(16) as usize,
            pool: LruCache::unbounded(),
            dirty: BTreeSet::new(),
            tables: Vec::new(),
            pages: 0,
            log: Table {
                first: 0,
                pages: 0,
                class: class::LOG,
            },
            log_at: 0,
            log_bytes: 0,
            now: 0,
            head: 0,
            service: Service::default(),
            out: Vec::new(),
        };
        db.log = db.table(log.max(1 << 20), class::LOG);
        db
    }

    /// Adds a table of `bytes` after the existing ones.
    pub fn table(&mut self, bytes: u64, class: u8) -> Table {
        let table = Table {
            first: self.pages,
            pages: bytes.div_ceil(u64::from(self.page)).max(1),
            class,
        };
        self.pages += table.pages;
        self.tables.push(table);
        table
    }

    /// Reads a page of a table unless it is in the pool.
    pub fn read(&mut self, table: Table, page: u64) {
        self.read_run(table, page, 1);
    }

    /// Reads `n` neighbouring pages. Each run of pages that are not in the pool becomes requests.
    pub fn read_run(&mut self, table: Table, page: u64, n: u64) {
        let from = table.first + page.min(table.pages - 1);
        let to = (from + n).min(table.first + table.pages);
        let mut missing = (from, 0u32);
        for p in from..to {
            if self.pool.get(&p).is_some() {
                self.fetch(missing, table.class);
                missing = (p + 1, 0);
                continue;
            }
            missing.1 += 1;
            if missing.1 == self.longest {
                self.fetch(missing, table.class);
                missing = (p + 1, 0);
            }
        }
        self.fetch(missing, table.class);
    }

    fn fetch(&mut self, (first, n): (u64, u32), class: u8) {
        if n > 0 {
            self.emit(Op::Read, first, n, class, Flags::NONE);
            (first..first + u64::from(n)).for_each(|p| self.keep(p));
        }
    }

    /// Changes a page. It is read first unless it is in the pool, and a checkpoint writes it.
    pub fn change(&mut self, table: Table, page: u64) {
        self.read(table, page);
        self.dirty.insert(table.first + page.min(table.pages - 1));
    }

    /// Fills a new page, which need not be read.
    pub fn fill(&mut self, table: Table, page: u64) {
        let p = table.first + page % table.pages;
        self.keep(p);
        self.dirty.insert(p);
    }

    /// Adds `bytes` to the log.
    pub fn log(&mut self, bytes: u64) {
        self.log_bytes += bytes;
    }

    /// Writes the log up to its end, starting with the block of 4 KiB that the last commit left partly filled.
    pub fn commit(&mut self) {
        if self.log_bytes == 0 {
            return;
        }
        let begin = self.log_at / 4096 * 4096;
        let end = (self.log_at + self.log_bytes).next_multiple_of(4096);
        let ring = self.log.pages * u64::from(self.page);
        let mut at = begin;
        while at < end {
            let inside = at % ring;
            let len = (end - at)
                .min(ring - inside)
                .min(u64::from(self.longest * self.page));
            let offset = self.log.first * u64::from(self.page) + inside;
            self.push(Op::Write, offset, len as u32, class::LOG, Flags::SYNC);
            at += len;
        }
        self.log_at += self.log_bytes;
        self.log_bytes = 0;
    }

    /// Pages that wait for a checkpoint.
    pub fn dirty_pages(&self) -> usize {
        self.dirty.len()
    }

    /// Writes all dirty pages in the order of their addresses, neighbours of one table together.
    pub fn checkpoint(&mut self) {
        let dirty = std::mem::take(&mut self.dirty);
        let mut run: Option<(u64, u32, u8)> = None;
        for p in dirty {
            let class = self.class_of(p);
            run = match run {
                Some((first, n, c))
                    if first + u64::from(n) == p && c == class && n < self.longest =>
                {
                    Some((first, n + 1, c))
                }
                other => {
                    self.write(other);
                    Some((p, 1, class))
                }
            };
        }
        self.write(run);
    }

    fn write(&mut self, run: Option<(u64, u32, u8)>) {
        if let Some((first, n, class)) = run {
            self.emit(Op::Write, first, n, class, Flags::NONE);
        }
    }

    /// Accesses pages of a scan or of temporary data, which bypass the pool.
    pub fn stream(&mut self, op: Op, table: Table, page: u64, n: u64) {
        let n = n.min(table.pages.saturating_sub(page));
        if n > 0 {
            self.request(op, table, page, n as u32);
        }
    }

    /// A request that bypasses the pool.
    pub fn request(&mut self, op: Op, table: Table, page: u64, n: u32) {
        self.emit(op, table.first + page, n, table.class, Flags::NONE);
    }

    fn emit(&mut self, op: Op, page: u64, n: u32, class: u8, flags: Flags) {
        self.push(op, page * u64::from(self.page), n * self.page, class, flags);
    }

    fn push(&mut self, op: Op, offset: u64, len: u32, class: u8, flags: Flags) {
        self.out.push(Record {
            class,
            flags: flags.with(Flags::META, class < class::LOG && class > 0),
            ..Record::new(Nanos(self.now), op, offset, len)
        });
        let s = self.service;
        let seek = if offset == self.head {
            s.sequential.0
        } else {
            s.random.0
        };
        self.now = self
            .now
            .saturating_add(seek + u64::from(len) * 1_000_000_000 / s.bytes_per_s);
        self.head = offset + u64::from(len);
    }

    fn class_of(&self, page: u64) -> u8 {
        let at = self.tables.partition_point(|t| t.first <= page);
        at.checked_sub(1).map_or(0, |at| self.tables[at].class)
    }

    /// Adds a page to the pool. A dirty victim is written at once, as a database does when no clean page is left.
    fn keep(&mut self, page: u64) {
        self.pool.put(page, ());
        while self.pool.len() > self.pool_pages {
            let Some((victim, ())) = self.pool.pop_lru() else {
                return;
            };
            if self.dirty.remove(&victim) {
                let class = self.class_of(victim);
                self.emit(Op::Write, victim, 1, class, Flags::NONE);
            }
        }
    }
}
