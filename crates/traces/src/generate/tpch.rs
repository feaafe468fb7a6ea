//! TPC-H as the disk sees it, with the classes of DSS Table 6.
//!
//! - OODT 4.3.3: scale factor 10 on MyISAM; more than 85 % of requests are 4 KB, mean 5.3 KB, 99 % reads, and most writes are metadata of
//!   the database's files. The paper gives no more than the sizes, so they are drawn from a distribution. The pages to read follow from
//!   index lookups (Zipf) that lead to rows in the window of a query (assumed). The most accessed blocks are all metadata, because the page
//!   cache is emptied every second (4.1): on ext2, a random read of a large file's page then first reads the page's indirect block, which
//!   points to 1024 pages and precedes them on the disk.
//! - DSS 5.2, 5.7: PostgreSQL, scale factor 8, 29 GB, queries 2, 17, 18, 19 back to back, indexes created last. Assumed: the number of
//!   lookups and scans of each query, and the sizes of the single tables and indexes (their sum is the paper's).

use rand::{RngExt, SeedableRng};

use super::db::{Db, Table, class};
use super::dist::{Sizes, Zipf};
use super::param::{Param, Values};
use super::run::{Rng, Steps};
use crate::layout::LayoutError;
use crate::record::{Op, Record};

const POOL: Param = Param::bytes("pool", 1 << 30, (1 << 20, 1 << 40), "buffer pool (assumed)");
const PAGE: Param = Param::bytes("page", 8 << 10, (4 << 10, 64 << 10), "bytes of a page");

/// TPC-H as OODT ran it.
pub(super) const TPCH: &[Param] = &[
    Param::count(
        "sf",
        10,
        (1, 1000),
        "scale factor, GB of tables (OODT 4.3.3)",
    ),
    Param::count("requests", 1_000_000, (0, 1 << 40), "requests (assumed)"),
    Param::real("reads", 0.99, (0.0, 1.0), "share of reads (OODT 4.3.3)"),
    Param::real(
        "indirect",
        0.8,
        (0.0, 1.0),
        "data reads that take their indirect block from the disk first (OODT 4.1, 4.3.3; share assumed)",
    ),
    Param::real(
        "exponent",
        0.7,
        (0.0, 5.0),
        "Zipf exponent of index pages (assumed)",
    ),
];

/// TPC-H as DSS ran it.
pub(super) const TPCH_DSS: &[Param] = &[
    Param::count("sf", 8, (1, 1000), "scale factor, GB of tables (DSS 5.2)"),
    POOL,
    PAGE,
    Param::bytes(
        "request",
        128 << 10,
        (4 << 10, 4 << 20),
        "largest request: read-ahead of scans",
    ),
    Param::real(
        "lookups",
        1.0,
        (0.0, 100.0),
        "index lookups of queries 2 and 17, times this (assumed: 60 000 and 240 000 a GB)",
    ),
    Param::switch(
        "prepare",
        false,
        "the trace begins with the writing of the tables, then of the indexes (DSS 5.7); 0: it finds them made",
    ),
];

/// OODT's sizes for TPC-H: more than 85 % are 4 KB, mean 5.3 KB. The indirect blocks, which are 4 KB each, are included.
pub(super) const TPCH_SIZES: &[(u64, f64)] = &[
    (4 << 10, 0.78),
    (8 << 10, 0.11),
    (16 << 10, 0.08),
    (32 << 10, 0.03),
];

/// Pages to which an indirect block points.
const POINTERS: u64 = 1024;

/// A large file of the database: each indirect block is followed by the pages to which it points.
#[derive(Clone, Copy, Debug)]
struct File {
    table: Table,
    /// The number of pages, not counting indirect blocks.
    pages: u64,
}

impl File {
    fn new(db: &mut Db, gb: f64, class: u8) -> File {
        let bytes = ((gb * f64::from(1 << 30)) as u64).max(1 << 20);
        let groups = (bytes / TPCH_PAGE).div_ceil(POINTERS);
        File {
            table: db.table(groups * (POINTERS + 1) * TPCH_PAGE, class),
            pages: groups * POINTERS,
        }
    }
    /// The places of page `page` and of its indirect block.
    fn places(page: u64) -> (u64, u64) {
        let block = page / POINTERS * (POINTERS + 1);
        (block + 1 + page % POINTERS, block)
    }
}

/// Pages of 4 KiB, because MyISAM leaves the caching of rows to the page cache.
const TPCH_PAGE: u64 = 4096;

/// TPC-H on MyISAM: 22 queries, each with its own window of the large tables.
pub(super) struct Tpch {
    db: Db,
    rng: Rng,
    left: u64,
    per_query: u64,
    query: Option<u64>,
    /// The probability of a write.
    writes: f64,
    indirect: f64,
    sizes: Sizes,
    indexes: Zipf,
    index: File,
    tables: [File; 2],
    inodes: Table,
    temporary: File,
    window: (u64, u64),
    table: File,
}

impl Tpch {
    pub fn new(v: &Values) -> Tpch {
        let sf = v.real("sf") * v.scale;
        let mut db = Db::new(TPCH_PAGE, 32 << 10, 1 << 16, 1 << 20);
        let inodes = db.table(64 << 10, class::INODE);
        let index = File::new(&mut db, 0.4 * sf, class::INDEX);
        // One file for lineitem and one for the other tables together.
        let tables = [0.75, 0.35].map(|gb| File::new(&mut db, gb * sf, class::RANDOM));
        let temporary = File::new(&mut db, 0.05 * sf, class::TEMPORARY);
        let indirect = v.real("indirect");
        let writes = 1.0 - v.real("reads");
        let requests = v.scaled("requests", 0);
        Tpch {
            rng: Rng::seed_from_u64(v.seed),
            left: requests,
            per_query: requests / 22 + 1,
            query: None,
            // A read may come with the read of an indirect block, which counts as a request, too.
            writes: writes * (1.0 + indirect) / (1.0 + writes * indirect),
            indirect,
            sizes: Sizes::new(TPCH_SIZES),
            indexes: Zipf::new(index.pages, v.real("exponent")),
            index,
            window: (0, tables[0].pages),
            table: tables[0],
            tables,
            inodes,
            temporary,
            db,
        }
    }

    /// The next query. Most queries join with lineitem, over a seventh of its dates or over all of it.
    fn next_query(&mut self) {
        self.table = self.tables[usize::from(self.rng.random_range(0..100) < 30)];
        let pages = self.table.pages;
        let width = if self.rng.random::<bool>() {
            pages
        } else {
            (pages / 7).max(1)
        };
        self.window = (self.rng.random_range(0..=pages - width), width);
    }
}

impl Steps for Tpch {
    fn step(&mut self, out: &mut Vec<Record>) -> Result<bool, LayoutError> {
        if self.left == 0 {
            return Ok(false);
        }
        let query = Some(self.left / self.per_query);
        if self.query != query {
            self.query = query;
            self.next_query();
        }
        let read = self.rng.random::<f64>() >= self.writes;
        let pages = self.sizes.draw(&mut self.rng) / TPCH_PAGE;
        let (file, page) = if read && self.rng.random_range(0..100) < 40 {
            (self.index, self.indexes.rank(&mut self.rng))
        } else if read {
            let (from, width) = self.window;
            (self.table, from + self.rng.random_range(0..width))
        } else {
            let page = self.rng.random_range(0..self.temporary.pages);
            (self.temporary, page)
        };
        // A request ends at the next indirect block at the latest.
        let pages = pages.min(POINTERS - page % POINTERS) as u32;
        let (at, indirect) = File::places(page);
        let metadata = file.table.as_class(class::INDIRECT);
        if !read && self.rng.random_range(0..100) < 80 {
            // Most writes update the metadata of the database's files (OODT 4.3.3).
            let page = self.rng.random_range(0..self.inodes.pages);
            self.db.request(Op::Write, self.inodes, page, 1);
        } else if !read {
            self.db.request(Op::Write, file.table, at, pages);
        } else {
            if self.left > 1 && self.rng.random::<f64>() < self.indirect {
                self.db.request(Op::Read, metadata, indirect, 1);
            }
            self.db.request(Op::Read, file.table, at, pages);
        }
        self.left -= self.db.out.len() as u64;
        out.append(&mut self.db.out);
        Ok(self.left > 0)
    }
}

/// The next action of DSS' run.
#[derive(Clone, Copy)]
enum Part {
    /// Tables, then their indexes, are written from first to last: the one with number `what`, from page `at` on.
    Make { what: usize, at: u64 },
    /// Index lookups, each followed by the read of a row.
    Lookups { table: usize, left: u64 },
    /// A scan from page `at` on, in requests of the largest size. One in `spill` of the requests is also written to a temporary table.
    Scan { table: usize, at: u64, spill: u64 },
    /// The temporary table is read back.
    Temporary { at: u64 },
}

/// TPC-H on PostgreSQL: queries 2, 17, 18, 19.
pub(super) struct TpchDss {
    db: Db,
    rng: Rng,
    /// Lineitem, orders, partsupp, part and the rest; each with its index.
    tables: Vec<(Table, Table)>,
    scanned: Vec<Table>,
    temporary: Table,
    spilled: u64,
    system: Table,
    step_pages: u64,
    parts: Vec<Part>,
}

impl TpchDss {
    pub fn new(v: &Values) -> TpchDss {
        let sf = v.real("sf") * v.scale;
        let bytes = |gb: f64| ((gb * sf * (1u64 << 30) as f64) as u64).max(1 << 20);
        let page = v.count("page") / 4096 * 4096;
        let request = v.count("request");
        let mut db = Db::new(page, request, (v.real("pool") * v.scale) as u64, 16 << 20);
        let system = db.table(4 << 20, class::SYSTEM);
        // GB per scale factor in PostgreSQL. With the indexes, which are created last, and temporary space they add up to 29 GB at scale
        // factor 8.
        let heaps = [0.95, 0.22, 0.15, 0.08];
        let heap: Vec<Table> = heaps
            .iter()
            .map(|&gb| db.table(bytes(gb), class::RANDOM))
            .collect();
        let temporary = db.table(bytes(0.3), class::TEMPORARY);
        let indexes = [1.35, 0.30, 0.20, 0.07];
        let tables: Vec<(Table, Table)> = heap
            .iter()
            .zip(indexes)
            .map(|(&h, gb)| (h, db.table(bytes(gb), class::INDEX)))
            .collect();
        let scanned = heap.iter().map(|h| h.as_class(class::SEQUENTIAL)).collect();
        let lookups = |per_gb: f64| (per_gb * sf * v.real("lookups")) as u64;
        // In reverse order, as a stack: query 2 (partsupp by part), 17 (lineitem by part), 18 (lineitem grouped through temporary space,
        // then orders), 19 (part, lineitem).
        let scan = |table, spill| Part::Scan {
            table,
            at: 0,
            spill,
        };
        let mut parts = vec![
            scan(0, 0),
            scan(3, 0),
            Part::Lookups {
                table: 1,
                left: lookups(20_000.0),
            },
            Part::Temporary { at: 0 },
            scan(0, 4),
            Part::Lookups {
                table: 0,
                left: lookups(240_000.0),
            },
            scan(3, 0),
            Part::Lookups {
                table: 2,
                left: lookups(60_000.0),
            },
            scan(3, 0),
        ];
        if v.on("prepare") {
            parts.push(Part::Make { what: 0, at: 0 });
        }
        TpchDss {
            rng: Rng::seed_from_u64(v.seed),
            tables,
            scanned,
            temporary,
            spilled: 0,
            system,
            step_pages: (request / page).max(1),
            parts,
            db,
        }
    }
}

impl Steps for TpchDss {
    fn step(&mut self, out: &mut Vec<Record>) -> Result<bool, LayoutError> {
        let Some(part) = self.parts.pop() else {
            return Ok(false);
        };
        let making = matches!(part, Part::Make { .. });
        if !making && self.rng.random_range(0..1000) == 0 {
            let page = self.rng.random_range(0..self.system.pages);
            self.db.read(self.system, page);
        }
        let more = match part {
            Part::Lookups { left: 0, .. } => None,
            Part::Lookups { table, left } => {
                let (heap, index) = self.tables[table];
                // A lookup reads the root and inner pages (the first hundredth of the index), a leaf, and the row.
                let inner = self.rng.random_range(0..index.pages.div_ceil(100));
                let leaf = self.rng.random_range(0..index.pages);
                let row = self.rng.random_range(0..heap.pages);
                self.db.read(index, inner);
                self.db.read(index, leaf);
                self.db.read(heap, row);
                Some(Part::Lookups {
                    table,
                    left: left - 1,
                })
            }
            Part::Make { what, at } => {
                let n = self.tables.len();
                let (heap, index) = self.tables[what % n];
                let t = if what < n { heap } else { index };
                self.db.stream(Op::Write, t, at, self.step_pages);
                let next = at + self.step_pages;
                if next < t.pages {
                    Some(Part::Make { what, at: next })
                } else {
                    (what + 1 < 2 * n).then_some(Part::Make {
                        what: what + 1,
                        at: 0,
                    })
                }
            }
            Part::Scan { table, at, spill } => {
                let t = self.scanned[table];
                self.db.stream(Op::Read, t, at, self.step_pages);
                let number = at / self.step_pages;
                if spill > 0 && number.is_multiple_of(spill) {
                    let to = self.spilled % self.temporary.pages;
                    self.db
                        .stream(Op::Write, self.temporary, to, self.step_pages);
                    self.spilled += self.step_pages;
                }
                let next = at + self.step_pages;
                (next < t.pages).then_some(Part::Scan {
                    table,
                    at: next,
                    spill,
                })
            }
            Part::Temporary { at } => {
                self.db
                    .stream(Op::Read, self.temporary, at, self.step_pages);
                let next = at + self.step_pages;
                (next < self.spilled.min(self.temporary.pages))
                    .then_some(Part::Temporary { at: next })
            }
        };
        self.parts.extend(more);
        out.append(&mut self.db.out);
        Ok(!self.parts.is_empty())
    }
}
