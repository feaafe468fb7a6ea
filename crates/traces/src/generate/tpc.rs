//! TPC-C and TPC-H as the disk sees them, with the classes of DSS Table 6.
//!
//! - OODT 4.3.2: TPC-C, 1 000 000 transactions on MySQL with default parameters; mean request 22 KB, few metadata.
//! - OODT 4.3.3: TPC-H, scale factor 10 on MyISAM; more than 85 % of requests are 4 KB, mean 5.3 KB, 99 % reads.
//! - DSS 5.2: TPC-H on PostgreSQL, scale factor 8, 29 GB, queries 2, 17, 18, 19 back to back, indexes made last.
//!
//! The transactions of TPC-C, their mix and their skew (NURand) are those of its specification (clauses 2 and 5.2.3), table sizes
//! those of clause 1. Assumed: a page of 8 KiB, read-ahead in clusters, checkpoints that write neighbours together; cluster and
//! checkpoint are set so that the mean comes to OODT's 22 KB. For OODT's TPC-H the request sizes are drawn (they are all that
//! the paper gives); which pages are read follows from index lookups that lead to rows in the window of a query.

use rand::{RngExt, SeedableRng};

use super::db::{Db, Table, class};
use super::dist::{Sizes, Zipf};
use super::param::{Param, Values};
use super::run::{Rng, Steps};
use crate::layout::LayoutError;
use crate::record::{Op, Record};

const POOL: Param = Param::bytes(
    "pool",
    128 << 20,
    (1 << 20, 1 << 40),
    "buffer pool (MySQL's default: OODT 4.3.2)",
);
const PAGE: Param = Param::bytes("page", 8 << 10, (4 << 10, 64 << 10), "bytes of a page");

/// TPC-C.
pub(super) const TPCC: &[Param] = &[
    Param::count(
        "warehouses",
        20,
        (1, 100_000),
        "warehouses of about 90 MB (assumed)",
    ),
    Param::count(
        "transactions",
        1_000_000,
        (0, 1 << 40),
        "transactions (OODT 4.3.2)",
    ),
    POOL,
    PAGE,
    Param::bytes(
        "cluster",
        32 << 10,
        (4 << 10, 1 << 20),
        "read on a miss in a table (calibrated: mean request 22 KB)",
    ),
    Param::bytes("request", 128 << 10, (4 << 10, 4 << 20), "largest request"),
    Param::real(
        "checkpoint",
        0.4,
        (0.01, 1.0),
        "share of the pool that is dirty when a checkpoint begins (assumed)",
    ),
];

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
        "exponent",
        0.7,
        (0.0, 5.0),
        "Zipf exponent of index pages (assumed)",
    ),
];

/// TPC-H as DSS ran it.
pub(super) const TPCH_DSS: &[Param] = &[
    Param::count("sf", 8, (1, 1000), "scale factor, GB of tables (DSS 5.2)"),
    POOL.or(1_073_741_824.0),
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
];

/// NURand of TPC-C, clause 2.1.6, with C = 0.
fn nurand(rng: &mut Rng, a: u64, n: u64) -> u64 {
    (rng.random_range(0..=a) | rng.random_range(0..n)) % n
}

/// TPC-C's database and its transactions.
pub(super) struct Tpcc {
    db: Db,
    rng: Rng,
    left: u64,
    warehouses: u64,
    page: u64,
    cluster: u64,
    checkpoint: usize,
    small: Table,
    item: Table,
    customer: Table,
    stock: Table,
    orders: Table,
    order_line: Table,
    history: Table,
    free_space: Table,
    customer_index: Table,
    stock_index: Table,
    order_index: Table,
    system: Table,
    /// Orders made so far.
    ordered: u64,
}

/// Rows a warehouse and bytes a row (TPC-C clause 1.2).
const CUSTOMERS: (u64, u64) = (30_000, 655);
const STOCK: (u64, u64) = (100_000, 306);
const ITEMS: (u64, u64) = (100_000, 82);
const ORDERS: (u64, u64) = (30_000, 24);
const ORDER_LINES: (u64, u64) = (300_000, 54);
const HISTORY: (u64, u64) = (30_000, 46);
/// Bytes of an index entry.
const ENTRY: u64 = 24;

impl Tpcc {
    pub fn new(v: &Values) -> Tpcc {
        let warehouses = v.scaled("warehouses", 1);
        let transactions = v.scaled("transactions", 0);
        let page = v.count("page") / 4096 * 4096;
        let pool = (v.real("pool") * v.scale) as u64;
        let mut db = Db::new(page, v.count("request"), pool, 64 << 20);
        let bytes = |rows: (u64, u64)| warehouses * rows.0 * rows.1;
        // Ten of 22 transactions make an order.
        let new = transactions * 45 / 100;
        Tpcc {
            small: db.table(warehouses * 11 * page, class::RANDOM),
            system: db.table(1 << 20, class::SYSTEM),
            item: db.table(ITEMS.0 * ITEMS.1, class::RANDOM),
            customer: db.table(bytes(CUSTOMERS), class::RANDOM),
            stock: db.table(bytes(STOCK), class::RANDOM),
            orders: db.table(bytes(ORDERS) + new * ORDERS.1, class::SEQUENTIAL),
            order_line: db.table(
                bytes(ORDER_LINES) + new * 10 * ORDER_LINES.1,
                class::SEQUENTIAL,
            ),
            history: db.table(bytes(HISTORY) + new * HISTORY.1, class::SEQUENTIAL),
            free_space: db.table(1 << 20, class::FREE_SPACE),
            customer_index: db.table(warehouses * CUSTOMERS.0 * ENTRY * 2, class::INDEX),
            stock_index: db.table(warehouses * STOCK.0 * ENTRY, class::INDEX),
            order_index: db.table((warehouses * ORDERS.0 + new) * ENTRY * 11, class::INDEX),
            rng: Rng::seed_from_u64(v.seed),
            left: transactions,
            warehouses,
            page,
            cluster: (v.count("cluster") / page).max(1),
            checkpoint: ((pool / page) as f64 * v.real("checkpoint")).max(8.0) as usize,
            ordered: 0,
            db,
        }
    }

    /// The cluster of pages around a row of a warehouse.
    fn row(&mut self, table: Table, warehouse: u64, rows: (u64, u64), row: u64, change: bool) {
        let page = (warehouse * rows.0 + row) * rows.1 / self.page;
        self.db
            .read_run(table, page / self.cluster * self.cluster, self.cluster);
        if change {
            self.db.change(table, page);
        }
    }

    fn entry(&mut self, table: Table, number: u64) {
        let page = number * ENTRY / self.page % table.pages;
        self.db.read(table, page);
    }

    fn customer(&mut self, w: u64, change: bool) {
        let c = nurand(&mut self.rng, 1023, 3000) + 3000 * self.rng.random_range(0..10);
        self.entry(self.customer_index, w * CUSTOMERS.0 + c);
        if self.rng.random_range(0..100) < 60 {
            // By last name: three customers share it on average, and the index by name is another.
            let half = self.customer_index.pages / 2;
            let page = half + (w * CUSTOMERS.0 + c) * ENTRY / self.page;
            self.db.read(self.customer_index, page);
        }
        self.row(self.customer, w, CUSTOMERS, c, change);
    }

    fn new_order(&mut self) {
        let w = self.rng.random_range(0..self.warehouses);
        let district = w * 11 + 1 + self.rng.random_range(0..10);
        self.db.read(self.small, w * 11);
        self.db.change(self.small, district);
        self.customer(w, false);
        for _ in 0..self.rng.random_range(5..=15) {
            let i = nurand(&mut self.rng, 8191, ITEMS.0);
            self.row(self.item, 0, ITEMS, i, false);
            // One line in a hundred comes from another warehouse.
            let from = if self.rng.random_range(0..100) == 0 {
                self.rng.random_range(0..self.warehouses)
            } else {
                w
            };
            self.entry(self.stock_index, from * STOCK.0 + i);
            self.row(self.stock, from, STOCK, i, true);
        }
        self.ordered += 1;
        let order = self.warehouses * ORDERS.0 + self.ordered;
        self.append(self.orders, order * ORDERS.1);
        self.append(self.order_line, (order * 10) * ORDER_LINES.1);
        let page = order * ENTRY * 11 / self.page;
        self.db.change(self.order_index, page);
        self.db.log(4096 + self.rng.random_range(0..2048));
    }

    /// A row at the end of a table; a new page is taken from the free space map.
    fn append(&mut self, table: Table, at: u64) {
        let page = at / self.page;
        self.db.fill(table, page);
        if at % self.page < ORDER_LINES.1 * 10 {
            let map = page / 8192 % self.free_space.pages;
            self.db.change(self.free_space, map);
        }
    }

    fn payment(&mut self) {
        let w = self.rng.random_range(0..self.warehouses);
        self.db.change(self.small, w * 11);
        let district = w * 11 + 1 + self.rng.random_range(0..10);
        self.db.change(self.small, district);
        self.customer(w, true);
        self.append(
            self.history,
            (self.warehouses * HISTORY.0 + self.ordered) * HISTORY.1,
        );
        self.db.log(1024);
    }

    /// The orders of a customer or district, back from the newest: their lines lie together.
    fn old_orders(&mut self, back: u64, n: u64, change: bool) {
        let newest = self.warehouses * ORDERS.0 + self.ordered;
        let order = newest.saturating_sub(self.rng.random_range(0..back.min(newest)) + 1);
        self.entry(self.order_index, order * 11);
        let page = order * 10 * ORDER_LINES.1 / self.page;
        self.db.read_run(
            self.order_line,
            page,
            (n * 10 * ORDER_LINES.1)
                .div_ceil(self.page)
                .max(self.cluster),
        );
        if change {
            self.db.change(self.order_line, page);
        }
    }

    fn transaction(&mut self) {
        // The mix of clause 5.2.3.
        match self.rng.random_range(0..100) {
            0..45 => self.new_order(),
            45..88 => self.payment(),
            88..92 => {
                let w = self.rng.random_range(0..self.warehouses);
                self.customer(w, false);
                self.old_orders(3000 * self.warehouses, 1, false);
            }
            92..96 => {
                for _ in 0..10 {
                    self.old_orders(900 * self.warehouses, 1, true);
                }
                self.db.log(8192);
            }
            _ => {
                let w = self.rng.random_range(0..self.warehouses);
                self.old_orders(20, 20, false);
                for _ in 0..20 {
                    let i = nurand(&mut self.rng, 8191, STOCK.0);
                    self.row(self.stock, w, STOCK, i, false);
                }
            }
        }
        if self.rng.random_range(0..1000) == 0 {
            let page = self.rng.random_range(0..self.system.pages);
            self.db.read(self.system, page);
        }
        self.db.commit();
        if self.db.dirty_pages() >= self.checkpoint {
            self.db.checkpoint();
        }
    }
}

impl Steps for Tpcc {
    fn step(&mut self, out: &mut Vec<Record>) -> Result<bool, LayoutError> {
        if self.left == 0 {
            self.db.checkpoint();
        } else {
            self.left -= 1;
            self.transaction();
        }
        out.append(&mut self.db.out);
        Ok(self.left > 0 || self.db.dirty_pages() > 0)
    }
}

/// OODT's sizes for TPC-H: more than 85 % 4 KB, mean 5.3 KB.
pub(super) const TPCH_SIZES: &[(u64, f64)] = &[
    (4 << 10, 0.88),
    (8 << 10, 0.06),
    (16 << 10, 0.04),
    (32 << 10, 0.02),
];

/// Pages of 4 KiB, as MyISAM leaves caching rows to the page cache.
const TPCH_PAGE: u64 = 4096;

/// TPC-H on MyISAM: 22 queries, each with its window of the big tables.
pub(super) struct Tpch {
    db: Db,
    rng: Rng,
    left: u64,
    per_query: u64,
    reads: f64,
    sizes: Sizes,
    indexes: Zipf,
    index: Table,
    tables: [Table; 2],
    inodes: Table,
    temporary: Table,
    window: (u64, u64),
    table: Table,
}

impl Tpch {
    pub fn new(v: &Values) -> Tpch {
        let sf = v.real("sf") * v.scale;
        let gb = |x: f64| ((x * sf * (1u64 << 30) as f64) as u64).max(1 << 20);
        let mut db = Db::new(TPCH_PAGE, 32 << 10, 1 << 16, 1 << 20);
        let inodes = db.table(64 << 10, class::INODE);
        let index = db.table(gb(0.4), class::INDEX);
        // Lineitem; the other tables together.
        let tables = [
            db.table(gb(0.75), class::RANDOM),
            db.table(gb(0.35), class::RANDOM),
        ];
        let temporary = db.table(gb(0.05), class::TEMPORARY);
        let requests = v.scaled("requests", 0);
        Tpch {
            rng: Rng::seed_from_u64(v.seed),
            left: requests,
            per_query: requests / 22 + 1,
            reads: v.real("reads"),
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

    /// The next query: most join with lineitem, over a seventh of its dates or all of it.
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
        if self.left.is_multiple_of(self.per_query) {
            self.next_query();
        }
        self.left -= 1;
        let pages = self.sizes.draw(&mut self.rng) / TPCH_PAGE;
        let read = self.rng.random::<f64>() < self.reads;
        let (op, table, page) = if read && self.rng.random_range(0..100) < 40 {
            (Op::Read, self.index, self.indexes.rank(&mut self.rng))
        } else if read {
            (
                Op::Read,
                self.table,
                self.window.0 + self.rng.random_range(0..self.window.1),
            )
        } else if self.rng.random_range(0..100) < 80 {
            // Most writes update the metadata of the database's files (OODT 4.3.3).
            (
                Op::Write,
                self.inodes,
                self.rng.random_range(0..self.inodes.pages),
            )
        } else {
            (
                Op::Write,
                self.temporary,
                self.rng.random_range(0..self.temporary.pages),
            )
        };
        let page = page.min(table.pages.saturating_sub(pages));
        self.db.request(op, table, page, pages as u32);
        out.append(&mut self.db.out);
        Ok(self.left > 0)
    }
}

/// What DSS' run does next.
#[derive(Clone, Copy)]
enum Part {
    /// Index lookups, each followed by a row.
    Lookups { table: usize, left: u64 },
    /// A scan from a page on, in requests of the largest size; one in `spill` of them is written to a temporary table.
    Scan { table: usize, at: u64, spill: u64 },
    /// What was spilled is read back.
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
        // GB per scale factor in PostgreSQL; with their indexes, made last, and temporary space, 29 GB at 8.
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
        // Last first: 2 (partsupp by part), 17 (lineitem by part), 18 (lineitem grouped through temporary space, then orders), 19
        // (part, lineitem).
        let scan = |table, spill| Part::Scan {
            table,
            at: 0,
            spill,
        };
        let parts = vec![
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
        if self.rng.random_range(0..1000) == 0 {
            let page = self.rng.random_range(0..self.system.pages);
            self.db.read(self.system, page);
        }
        let more = match part {
            Part::Lookups { left: 0, .. } => None,
            Part::Lookups { table, left } => {
                let (heap, index) = self.tables[table];
                // The root and inner pages are the first hundredth of an index; a leaf; the row.
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
            Part::Scan { table, at, spill } => {
                let t = self.scanned[table];
                self.db.stream(Op::Read, t, at, self.step_pages);
                let number = at / self.step_pages;
                if spill > 0 && number % spill == 0 {
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

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn nurand_stays_in_range_and_is_skewed() {
        let mut rng = Rng::seed_from_u64(5);
        let draws: Vec<u64> = (0..100_000)
            .map(|_| nurand(&mut rng, 8191, 100_000))
            .collect();
        assert!(draws.iter().all(|&d| d < 100_000));
        // Numbers with many low bits set are drawn more often: that is NURand's skew.
        let hot = draws
            .iter()
            .filter(|&&d| (d & 8191).count_ones() >= 9)
            .count();
        assert!(hot > 60_000, "{hot}");
    }
}
