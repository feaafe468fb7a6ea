//! Text as people have it: with a byte-order mark, comments, other separators, without a column; and files that are no traces.

mod common;

use std::sync::Arc;

use common::samples;
use isotherm_traces::{Format, Op, Options, Record, open};
use parquet::basic::{Compression, GzipLevel, ZstdLevel};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

fn written(name: &str, content: &[u8]) -> (tempfile::TempDir, std::path::PathBuf) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join(name);
    std::fs::write(&path, content).expect("writing the trace");
    (dir, path)
}

/// The format and the requests of a trace without bad records.
fn read(content: &[u8], options: &Options) -> (Format, Vec<Record>) {
    let (_dir, path) = written("trace", content);
    let reader = open(&path, options).expect("a trace");
    let format = reader.format();
    (format, reader.map(|r| r.expect("a record")).collect())
}

/// The fields of a line of an MSR trace, without the response time.
const MSR_ROWS: &str = "128166385295514663,hm,0,Write,9056014336,2048\n\
    128166385295514878,hm,0,Write,11855351808,512\n\
    128166385295581453,hm,0,Read,8192,4096\n";

#[test]
fn text_of_windows_programs_and_comments_are_read() {
    let plain = read(MSR_ROWS.as_bytes(), &Options::default());
    assert_eq!((plain.0, plain.1.len()), (Format::Msr, 3));
    let marked = [b"\xef\xbb\xbf", MSR_ROWS.as_bytes()].concat();
    assert_eq!(read(&marked, &Options::default()).1, plain.1);
    let remarks = format!(
        "# hm, first day\n{}",
        MSR_ROWS.replacen('\n', "\n# noon\n", 1)
    );
    assert_eq!(read(remarks.as_bytes(), &Options::default()).1, plain.1);
    let named = format!("timestamp,hostname,disknumber,type,offset,size\n{MSR_ROWS}");
    assert_eq!(read(named.as_bytes(), &Options::default()).1, plain.1);
    // Compressed as well, and also if the user names the format.
    let options = Options {
        format: Some(Format::Msr),
        ..Options::default()
    };
    let packed = zstd::encode_all(&marked[..], 0).expect("compressed");
    assert_eq!(read(&packed, &options).1, plain.1);
}

#[test]
fn a_column_that_all_lines_of_an_msr_trace_lack_is_not_missed() {
    let records = read(MSR_ROWS.as_bytes(), &Options::default()).1;
    assert!(records.iter().all(|r| r.latency_ns.is_none()));
    assert_eq!(
        records[2].time.0,
        (128_166_385_295_581_453 - 128_166_385_295_514_663) * 100
    );
    // A file that ends in the middle of a line lacks it there only.
    for cut in [
        "128166385295514663,hm,0,Write,9056014336,2048,2833\n128166385295514878,hm,0,Write,11855351808,5",
        "128166385295514663,hm,0,Write,9056014336,2048\n128166385295514878,hm,0,Write,11855351808,512,2617\n",
    ] {
        let (_dir, path) = written("cut", cut.as_bytes());
        let named = Options {
            format: Some(Format::Msr),
            ..Options::default()
        };
        let failed = open(&path, &named)
            .expect("opened")
            .find_map(Result::err)
            .expect("an error")
            .to_string();
        assert!(failed.contains("line 2"), "{failed}");
    }
}

#[test]
fn requests_of_windows_events_arrive_before_their_events() {
    let etw = samples().into_iter().find(|(f, _)| *f == Format::Etw);
    let (format, records) = read(&etw.expect("a sample").1, &Options::default());
    assert_eq!(format, Format::Etw);
    let found: Vec<_> = records
        .iter()
        .map(|r| (r.time.0, r.op, r.device, r.offset, r.len, r.latency_ns))
        .collect();
    // The read is logged at 9750 us, 750 us after its arrival.
    assert_eq!(
        found,
        [
            (0, Op::Read, 0, 0xa1b2_c000, 4096, Some(750_000)),
            (800_000, Op::Write, 1, 512, 65_536, Some(100_000)),
            (940_000, Op::Flush, 1, 0, 0, Some(10_000)),
        ]
    );
    let wrong = b"DiskRead, 5, a ( 1), 2, 0x3, 0xzz, 0x200, 1, 0\n".repeat(2);
    let (_dir, path) = written("etw", &wrong);
    let named = Options {
        format: Some(Format::Etw),
        ..Options::default()
    };
    let failed = open(&path, &named).expect("opened").find_map(Result::err);
    let failed = failed.expect("an error").to_string();
    assert!(
        failed.contains("line 1: expected ByteOffset (hexadecimal"),
        "{failed}"
    );
}

#[test]
fn the_suggested_columns_are_those_of_the_numbers() {
    let rows: Vec<Vec<&str>> = MSR_ROWS.lines().map(|l| l.split(',').collect()).collect();
    let lines = |f: &dyn Fn(usize, &[&str]) -> String| -> String {
        rows.iter()
            .enumerate()
            .map(|(i, r)| f(i, r) + "\n")
            .collect()
    };
    let of_msr = "time_100ns,-,-,op,offset_bytes,length_bytes";
    for (text, columns) in [
        // Other separators, and quotes.
        (lines(&|_, r| r.join(";")), of_msr),
        (lines(&|_, r| r.join("\t")), of_msr),
        (lines(&|_, r| format!("\"{}\"", r.join("\",\""))), of_msr),
        // The row numbers of a data frame before it, and its line of names.
        (
            format!(
                ",a,b,c,d,e,f\n{}",
                lines(&|i, r| format!("{i},{}", r.join(",")))
            ),
            "-,time_100ns,-,-,op,offset_bytes,length_bytes",
        ),
        // Units that the names state.
        (
            "TIME(s) COMM T SECTOR BYTES\n0 a W 1024 4096\n1 b R 2048 512\n7 a W 512 4096\n"
                .to_owned(),
            "time_s,-,op,offset_sectors,length_bytes",
        ),
        (
            "time_ns,start,bytes,kind\n500,4096,512,R\n900,0,512,W\n900,512,512,W\n".to_owned(),
            "time_ns,offset_bytes,length_bytes,op",
        ),
        // The time last, in seconds since 1970, and sectors.
        (
            "R,1001,8,1538323200,v\nW,77,16,1538323201,v\nR,5003,8,1538323201,v\n".to_owned(),
            "op,offset_sectors,length_sectors,time_s,-",
        ),
        // A log of latencies by fio.
        (
            "1, 5234, 0, 4096, 0\n1, 6211, 1, 4096, 8192\n2, 5230, 0, 4096, 40960\n".to_owned(),
            "time,-,-,length_bytes,offset_bytes",
        ),
        // No time, and lengths that are all alike.
        (
            "R 81920 4096\nW 4096 4096\nR 40960 4096\n".to_owned(),
            "op,offset_bytes,length_bytes",
        ),
    ] {
        let (_dir, path) = written("own", text.as_bytes());
        let failed = open(&path, &Options::default())
            .expect_err("no format")
            .to_string();
        assert!(
            failed.contains(&format!("`--columns {columns}`")),
            "{text}{failed}"
        );
        let options = Options {
            columns: Some(columns.parse().expect(columns)),
            ..Options::default()
        };
        let found = open(&path, &options).expect("a reader");
        let found: Result<Vec<Record>, _> = found.collect();
        assert_eq!(found.expect(columns).len(), 3, "{text}");
    }
}

/// The project's own CSV takes a direction in the words of other tools.
#[test]
fn own_csv_has_directions_in_any_words() {
    let rows = "op,offset,length\nR,0,512\nWrite,512,512\nread,0,4096\ndiscard,0,4096\n";
    let (format, records) = read(rows.as_bytes(), &Options::default());
    let ops: Vec<Op> = records.iter().map(|r| r.op).collect();
    assert_eq!(format, Format::Csv);
    assert_eq!(ops, [Op::Read, Op::Write, Op::Read, Op::Discard]);
}

#[test]
fn a_file_that_is_no_trace_is_named() {
    let gz = |bytes: &[u8]| {
        use std::io::Write;
        let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        out.write_all(bytes).expect("compressed");
        out.finish().expect("compressed")
    };
    let wide: Vec<u8> = MSR_ROWS.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let mut tar = vec![b'a'; 257];
    tar.extend_from_slice(b"ustar\x0000");
    for (bytes, what) in [
        (gz(&gz(MSR_ROWS.as_bytes())), "compressed twice"),
        ([b"\xff\xfe", &wide[..]].concat(), "UTF-16"),
        (b"PK\x03\x04\x14\x00\x00".to_vec(), "zip"),
        (gz(&tar), "tar"),
        (b"\n<!DOCTYPE html>\n<html>".to_vec(), "web page"),
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n".to_vec(),
            "git lfs pull",
        ),
        (Vec::new(), "empty"),
    ] {
        let (_dir, path) = written("odd", &bytes);
        let failed = open(&path, &Options::default())
            .expect_err("no trace")
            .to_string();
        assert!(failed.contains(what), "{failed}");
        assert!(!failed.contains("--format"), "{failed}");
    }
}

/// A Parquet file as data frames are written: the direction as text, other widths of numbers, nulls allowed.
fn parquet_file(path: &std::path::Path, packed: Compression, offset_type: &str) {
    let schema = format!(
        "message m {{ OPTIONAL BYTE_ARRAY op (UTF8); REQUIRED {offset_type} offset; OPTIONAL INT32 length; }}"
    );
    let schema = Arc::new(parse_message_type(&schema).expect("a schema"));
    let properties = WriterProperties::builder().set_compression(packed).build();
    let file = std::fs::File::create(path).expect("made");
    let mut file = SerializedFileWriter::new(file, schema, Arc::new(properties)).expect("a file");
    let mut group = file.next_row_group().expect("a group");
    let (ops, levels) = (["read", "W"].map(ByteArray::from), [1, 1]);
    while let Some(mut column) = group.next_column().expect("a column") {
        match column.untyped() {
            ColumnWriter::ByteArrayColumnWriter(w) => w.write_batch(&ops, Some(&levels), None),
            ColumnWriter::Int64ColumnWriter(w) => w.write_batch(&[4096, 0], None, None),
            ColumnWriter::DoubleColumnWriter(w) => w.write_batch(&[4096.0, 0.0], None, None),
            ColumnWriter::Int32ColumnWriter(w) => w.write_batch(&[512, 8192], Some(&levels), None),
            _ => panic!("no such column"),
        }
        .expect("written");
        column.close().expect("closed");
    }
    group.close().expect("closed");
    file.close().expect("closed");
}

#[test]
fn parquet_of_data_frames_is_read() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("t.parquet");
    for packed in [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::GZIP(GzipLevel::default()),
        Compression::ZSTD(ZstdLevel::default()),
    ] {
        parquet_file(&path, packed, "INT64");
        let reader = open(&path, &Options::default()).expect("a trace");
        let found: Vec<Record> = reader.map(|r| r.expect("a record")).collect();
        let found: Vec<_> = found.iter().map(|r| (r.op, r.offset, r.len)).collect();
        assert_eq!(
            found,
            [(Op::Read, 4096, 512), (Op::Write, 0, 8192)],
            "{packed}"
        );
    }
    parquet_file(&path, Compression::SNAPPY, "DOUBLE");
    let failed = open(&path, &Options::default()).expect_err("no whole numbers");
    let failed = failed.to_string();
    assert!(
        failed.contains("column \"offset\" is of the type DOUBLE: it must hold whole numbers"),
        "{failed}"
    );
}
