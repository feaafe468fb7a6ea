//! The list of generators.

use serde::Serialize;

use super::param::{Param, Values};
use super::run::{Beside, Generate, Requests, Single, Stepped, Steps};
use super::{block, dss, filebench, hro, iozone, postmark, tpcc, tpch};
use crate::layout::LayoutError;

/// Makes a generator from its parameters.
type Make = fn(&Values) -> Result<Box<dyn Generate>, LayoutError>;

/// A generator, as the list of generators shows it.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Generator {
    /// The name to type after `gen:`.
    pub name: &'static str,
    /// Its workload, in one line.
    pub what: &'static str,
    /// The paper and section.
    pub source: &'static str,
    /// Its parameters, besides `scale` and `seed`.
    pub params: &'static [Param],
    /// The default scale; 1 is the size in the paper.
    pub scale: f64,
    /// Names of its devices.
    pub devices: &'static [&'static str],
    #[serde(skip)]
    pub(super) make: Make,
}

fn stepped<W: Steps + 'static>(workload: W) -> Box<dyn Generate> {
    Box::new(Stepped::new(workload))
}

fn single<W: Requests + 'static>(workload: W) -> Box<dyn Generate> {
    Box::new(Single(workload))
}

const fn row(
    name: &'static str,
    what: &'static str,
    source: &'static str,
    params: &'static [Param],
    make: Make,
) -> Generator {
    Generator {
        name,
        what,
        source,
        params,
        scale: 1.0,
        devices: &["gen"],
        make,
    }
}

static TABLE: &[Generator] = &[
    row(
        "postmark",
        "mail server: 40 000 files of 32 to 40 KB on ext2, mean request 9.5 KB",
        "OODT 4.3.1",
        postmark::OODT,
        |v| Ok(stepped(postmark::Postmark::new(v)?)),
    ),
    row(
        "postmark-loris",
        "mail server: 40 000 files of 4 to 28 KB in 10 directories",
        "Loris V-B1",
        postmark::LORIS,
        |v| Ok(stepped(postmark::Postmark::new(v)?)),
    ),
    row(
        "web-server",
        "25 000 files of 32 KB, ten reads to an append, uniform choice",
        "Loris V-B3",
        filebench::WEB,
        |v| Ok(stepped(filebench::Web::new(v, 0)?)),
    ),
    row(
        "web-server-zipf",
        "as web-server, Zipf choice among the first of two sets of files",
        "Loris V-B4",
        filebench::WEB_ZIPF,
        |v| Ok(stepped(filebench::Web::new(v, 0)?)),
    ),
    row(
        "web-server-oodt",
        "10 000 files of 16 KB on ext2 with the sync option",
        "OODT 4.3.5",
        filebench::WEB_OODT,
        |v| Ok(stepped(filebench::Web::new(v, 0)?)),
    ),
    row(
        "file-server",
        "10 000 files of 128 KB: delete, create, append, read, stat, uniform choice",
        "Loris V-B2",
        filebench::FILE,
        |v| Ok(stepped(filebench::FileServer::new(v, 0)?)),
    ),
    row(
        "file-server-greendm",
        "8 GB of files of 128 KB, choice by a Gamma distribution",
        "GreenDM 6.2.5",
        filebench::FILE_GREENDM,
        |v| Ok(stepped(filebench::FileServer::new(v, 0)?)),
    ),
    Generator {
        devices: &["file-server", "web-server"],
        ..row(
            "mixed",
            "file server and web server on two volumes at the same time",
            "Loris V-E",
            filebench::MIXED,
            |v| {
                let (file, web) = filebench::mixed(v)?;
                Ok(Box::new(Beside(Stepped::new(file), Stepped::new(web))))
            },
        )
    },
    row(
        "specsfs",
        "file server with the file sizes of SPECsfs, reads and creates 2 to 1, on ext3",
        "DSS 5.2, Table 8",
        dss::SPECSFS,
        |v| Ok(stepped(dss::Server::new(v, dss::SPECSFS_SIZES)?)),
    ),
    row(
        "email",
        "e-mail server, reads and creates 2 to 1, on ext3",
        "DSS 5.2, Table 8",
        dss::EMAIL,
        |v| Ok(stepped(dss::Server::new(v, dss::EMAIL_SIZES)?)),
    ),
    row(
        "tpcc",
        "TPC-C below its buffer pool, with the classes of PostgreSQL",
        "OODT 4.3.2, DSS Table 6",
        tpcc::TPCC,
        |v| Ok(stepped(tpcc::Tpcc::new(v))),
    ),
    row(
        "tpch",
        "TPC-H on MyISAM: random reads, mostly 4 KB",
        "OODT 4.3.3, DSS Table 6",
        tpch::TPCH,
        |v| Ok(stepped(tpch::Tpch::new(v))),
    ),
    row(
        "tpch-dss",
        "TPC-H on PostgreSQL: queries 2, 17, 18, 19",
        "DSS 5.2 and 5.7, Table 6",
        tpch::TPCH_DSS,
        |v| Ok(stepped(tpch::TpchDss::new(v))),
    ),
    row(
        "iozone",
        "the 13 tests on one file",
        "OODT 4.3.4",
        iozone::IOZONE,
        |v| Ok(stepped(iozone::Iozone::new(v)?)),
    ),
    row(
        "web-search",
        "stand-in for UMass web search with the paper's totals",
        "GreenDM Table 6.3",
        block::WEB_SEARCH,
        |v| {
            Ok(single(block::Totals::new(
                v,
                block::SEARCH_READS,
                block::SEARCH_WRITES,
            )))
        },
    ),
    row(
        "fiu-online",
        "stand-in for FIU online with the paper's totals",
        "GreenDM Table 6.3",
        block::FIU_ONLINE,
        |v| {
            Ok(single(block::Totals::new(
                v,
                block::ONLINE_READS,
                block::ONLINE_WRITES,
            )))
        },
    ),
    Generator {
        scale: 0.001,
        ..row(
            "mail-hro",
            "stand-in for a week of a campus mail server",
            "HRO Table I, figure 3",
            hro::MAIL,
            |v| Ok(stepped(hro::Week::new(v)?)),
        )
    },
    Generator {
        scale: 0.001,
        ..row(
            "office-hro",
            "stand-in for a week of an office server",
            "HRO Table I, figure 3",
            hro::OFFICE,
            |v| Ok(stepped(hro::Week::new(v)?)),
        )
    },
    Generator {
        scale: 0.001,
        ..row(
            "research-hro",
            "stand-in for a week of a research server",
            "HRO Table I, figure 3",
            hro::RESEARCH,
            |v| Ok(stepped(hro::Week::new(v)?)),
        )
    },
    row(
        "uniform",
        "random requests of one size over a span",
        "GreenDM 6.1.3 (figure 6.4)",
        block::UNIFORM,
        |v| Ok(single(block::Blocks::new(v)?)),
    ),
    row(
        "zipf",
        "requests of one size, Zipf over blocks, fast enough for a billion",
        "ours",
        block::ZIPF,
        |v| Ok(single(block::Blocks::new(v)?)),
    ),
];

/// All generators, in the order of the documentation.
pub fn generators() -> &'static [Generator] {
    TABLE
}
