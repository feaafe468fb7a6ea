//! TPC-C below its buffer pool, with the classes of DSS Table 6.
//!
//! Calibrated on OODT 4.3.2: 1 000 000 transactions on MySQL with default parameters; the mean request is 22 KB, and there is little
//! metadata. The transactions, their mix and their skew (NURand) follow clauses 2 and 5.2.3 of the specification, and the sizes of
//! tables follow its clause 1. Assumed: 20 warehouses, a page of 8 KiB, read-ahead in clusters, checkpoints that write neighbouring pages together. The
//! cluster size is chosen such that the mean is 22 KB.

use rand::{RngExt, SeedableRng};

use super::db::{Db, Table, class};
use super::param::{Param, Values};
use super::run::{Rng, Steps};
use crate::layout::LayoutError;
use crate::record::Record;

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
        56 << 10,
        (4 << 10, 1 << 20),
        "read on a miss in a table (calibrated: mean request 22 KB)",
    ),
    Param::bytes("request", 128 << 10, (4 << 10, 4 << 20), "largest request"),
    Param::bytes(
        "log",
        10 << 20,
        (1 << 20, 1 << 40),
        "log, written round and round (MySQL's default, two files of 5 MB: OODT 4.3.2)",
    ),
    Param::real(
        "checkpoint",
        0.4,
        (0.01, 1.0),
        "share of the pool that is dirty when a checkpoint begins (assumed)",
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

/// Rows per warehouse and bytes per row (TPC-C clause 1.2).
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
        let log = (v.real("log") * v.scale) as u64;
        let mut db = Db::new(page, v.count("request"), pool, log);
        let bytes = |rows: (u64, u64)| warehouses * rows.0 * rows.1;
        // Ten of 22 transactions create an order.
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
            // A lookup by last name: three customers on average have the same name, and it uses a second index.
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
            // One order line in a hundred is supplied by another warehouse.
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

    /// Appends a row at the end of a table. A new page is taken from the free space map.
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

    /// The orders of a customer or district, from the newest backwards. The lines of an order are adjacent.
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
        // The transaction mix of clause 5.2.3.
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
        // NURand draws numbers with many low bits set more often: this is its skew.
        let hot = draws
            .iter()
            .filter(|&&d| (d & 8191).count_ones() >= 9)
            .count();
        assert!(hot > 60_000, "{hot}");
    }
}
