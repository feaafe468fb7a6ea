//! TPC-H's tables in its own text form (`|` between columns), and its queries with the parameters of the specification's validation run.
//!
//! ```text
//! tpch schema               the tables, as SQL
//! tpch keys                 primary keys, and an index for each foreign key, as SQL
//! tpch query NUMBER         2, 17, 18 or 19
//! tpch TABLE SCALE          rows of region, nation, supplier, part, partsupp, customer, orders or lineitem
//! ```
//! `bench/classes/tpch.py` loads PostgreSQL with it.

use std::fmt::Display;
use std::io::{self, Write};
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator,
    PartSuppGenerator, RegionGenerator, SupplierGenerator,
};
use tpchgen::q_and_a::queries;

/// Clause 1.4 of the specification.
const TABLES: [(&str, &str); 8] = [
    (
        "region",
        "r_regionkey int, r_name char(25), r_comment varchar(152)",
    ),
    (
        "nation",
        "n_nationkey int, n_name char(25), n_regionkey int, n_comment varchar(152)",
    ),
    (
        "supplier",
        "s_suppkey int, s_name char(25), s_address varchar(40), s_nationkey int, s_phone char(15), s_acctbal decimal(15,2), \
         s_comment varchar(101)",
    ),
    (
        "part",
        "p_partkey int, p_name varchar(55), p_mfgr char(25), p_brand char(10), p_type varchar(25), p_size int, p_container char(10), \
         p_retailprice decimal(15,2), p_comment varchar(23)",
    ),
    (
        "partsupp",
        "ps_partkey int, ps_suppkey int, ps_availqty int, ps_supplycost decimal(15,2), ps_comment varchar(199)",
    ),
    (
        "customer",
        "c_custkey int, c_name varchar(25), c_address varchar(40), c_nationkey int, c_phone char(15), c_acctbal decimal(15,2), \
         c_mktsegment char(10), c_comment varchar(117)",
    ),
    (
        "orders",
        "o_orderkey bigint, o_custkey int, o_orderstatus char(1), o_totalprice decimal(15,2), o_orderdate date, o_orderpriority char(15), \
         o_clerk char(15), o_shippriority int, o_comment varchar(79)",
    ),
    (
        "lineitem",
        "l_orderkey bigint, l_partkey int, l_suppkey int, l_linenumber int, l_quantity decimal(15,2), l_extendedprice decimal(15,2), \
         l_discount decimal(15,2), l_tax decimal(15,2), l_returnflag char(1), l_linestatus char(1), l_shipdate date, l_commitdate date, \
         l_receiptdate date, l_shipinstruct char(25), l_shipmode char(10), l_comment varchar(44)",
    ),
];

/// Tables and the columns of their primary keys.
const KEYS: [(&str, &str); 8] = [
    ("region", "r_regionkey"),
    ("nation", "n_nationkey"),
    ("supplier", "s_suppkey"),
    ("part", "p_partkey"),
    ("partsupp", "ps_partkey, ps_suppkey"),
    ("customer", "c_custkey"),
    ("orders", "o_orderkey"),
    ("lineitem", "l_orderkey, l_linenumber"),
];
/// Tables and the columns of further indexes.
const INDEXES: [(&str, &str); 8] = [
    ("nation", "n_regionkey"),
    ("supplier", "s_nationkey"),
    ("partsupp", "ps_suppkey"),
    ("customer", "c_nationkey"),
    ("orders", "o_custkey"),
    ("lineitem", "l_partkey, l_suppkey"),
    ("lineitem", "l_suppkey"),
    ("lineitem", "l_shipdate"),
];

/// Parameters of the validation run (clauses 2.4.2.4, 2.4.17.4, 2.4.18.4, 2.4.19.4), and how many rows the query shows if not all.
const PARAMETERS: [(i32, &[&str], Option<u32>); 4] = [
    (2, &["15", "BRASS", "EUROPE"], Some(100)),
    (17, &["Brand#23", "MED BOX"], None),
    (18, &["300"], Some(100)),
    (
        19,
        &["Brand#12", "Brand#23", "Brand#34", "1", "10", "20"],
        None,
    ),
];

fn print(out: &mut impl Write, rows: impl Iterator<Item = impl Display>) -> io::Result<()> {
    for row in rows {
        let row = row.to_string();
        // The text form ends each row with a bar, PostgreSQL's does not.
        writeln!(out, "{}", row.strip_suffix('|').unwrap_or(&row))?;
    }
    Ok(())
}

fn table(out: &mut impl Write, name: &str, scale: f64) -> io::Result<()> {
    match name {
        "region" => print(out, RegionGenerator::default().iter()),
        "nation" => print(out, NationGenerator::default().iter()),
        "supplier" => print(out, SupplierGenerator::new(scale, 1, 1).iter()),
        "part" => print(out, PartGenerator::new(scale, 1, 1).iter()),
        "partsupp" => print(out, PartSuppGenerator::new(scale, 1, 1).iter()),
        "customer" => print(out, CustomerGenerator::new(scale, 1, 1).iter()),
        "orders" => print(out, OrderGenerator::new(scale, 1, 1).iter()),
        "lineitem" => print(out, LineItemGenerator::new(scale, 1, 1).iter()),
        _ => Err(usage()),
    }
}

fn query(number: &str) -> Option<String> {
    let number = number.parse().ok()?;
    let (_, with, rows) = PARAMETERS.iter().find(|(n, ..)| *n == number)?;
    let mut text = queries::query(number)?.trim().to_owned();
    for (i, value) in with.iter().enumerate() {
        text = text.replace(&format!(":{}", i + 1), value);
    }
    if let Some(rows) = rows {
        text = format!("{} limit {rows};", text.trim_end_matches(';'));
    }
    Some(text)
}

fn usage() -> io::Error {
    io::Error::other("usage: tpch schema | keys | query NUMBER | TABLE SCALE")
}

fn main() -> io::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut out = io::BufWriter::new(io::stdout().lock());
    match words[..] {
        ["schema"] => {
            for (name, columns) in TABLES {
                writeln!(out, "create table {name} ({columns});")?;
            }
        }
        ["keys"] => {
            for (name, columns) in KEYS {
                writeln!(out, "alter table {name} add primary key ({columns});")?;
            }
            for (name, columns) in INDEXES {
                writeln!(out, "create index on {name} ({columns});")?;
            }
        }
        ["query", number] => writeln!(out, "{}", query(number).ok_or_else(usage)?)?,
        [name, scale] => table(&mut out, name, scale.parse().map_err(|_| usage())?)?,
        _ => return Err(usage()),
    }
    out.flush()
}
