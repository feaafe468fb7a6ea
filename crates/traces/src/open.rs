//! Opens traces: determines the format, resolves the properties that the format leaves open, and chooses the decoder.

use std::path::{Path, PathBuf};

use crate::decode::{Decode, Fixed, Lines, Run};
use crate::error::TraceError;
use crate::foreign::{OCTF_BINARY, foreign, is_octf, is_octf_name};
use crate::format::Format;
use crate::formats::blktrace::Event;
use crate::formats::column_map::ColumnMap;
use crate::formats::{
    blkparse, blkreplay, blktrace, blocklist, cloud, custom, disksim, etw, events, fio, fiu, hint,
    msr, oracle, parquet, presets, spc, tables, vscsi,
};
use crate::input::Input;
use crate::merge::{FromZero, Merge};
use crate::notes::Notes;
use crate::reader::{Options, Reader};
use crate::sniff::{Guess, SNIFF_BYTES, guess};
use crate::sort::{Sorted, WINDOW, is_unsorted};
use crate::source::Source;
use crate::stats::Sure;
use crate::time_unit::TimeUnit;

/// Block size where a format counts blocks of unknown size.
const BLOCK_BYTES: u32 = 4096;

/// Opens the trace at `path` (plain or compressed by zstd, gzip, bzip2 or xz, told apart by content), the blktrace files of
/// the folder `path`, or the generator that it names ([`Source`]).
///
/// # Errors
/// The file cannot be opened; its format is neither given nor clear; the generator does not exist; or it does not have these parameters.
pub fn open(path: impl AsRef<Path>, options: &Options) -> Result<Reader, TraceError> {
    Source::of(path)?.open(options)
}

/// Says that a file is named like one processor's part of a trace, and how many other parts lie beside it.
fn note_one_processor(path: &Path, run: &mut Run) {
    let (sure, beside) = match blktrace::of_other_processors(path) {
        None => return,
        Some(0) => (
            Sure::Likely,
            "the name is that of one processor's events: no file of another lies beside it."
                .to_owned(),
        ),
        Some(1) => (
            Sure::Guess,
            "1 more file of the same trace lies beside it: name the folder to read both."
                .to_owned(),
        ),
        Some(n) => (
            Sure::Guess,
            format!(
                "{n} more files of the same trace lie beside it, one for each processor: name the folder to read all."
            ),
        ),
    };
    run.sure = sure;
    run.assumed
        .push(format!("Read as the whole trace, though {beside}"));
}

/// Says that files of some processors are missing.
fn note_missing(files: &[PathBuf], run: &mut Run) {
    let missing = blktrace::missing_processors(files);
    let [first, rest @ ..] = &missing[..] else {
        return;
    };
    let more = if rest.is_empty() {
        String::new()
    } else {
        format!(" and {} more", rest.len())
    };
    run.doubt(format!(
        "There is no file of processor {first}{more}: its requests are missing, unless it had none."
    ));
}

/// Opens several files of one trace, such as blktrace's one per processor, and merges their requests by time.
///
/// Devices that have the same name in several files are the same device. [`Reader::path`] is the first file.
///
/// # Errors
/// As [`open`]; also if `paths` is empty, or the files differ in format or hold no time to merge by.
pub fn open_merged<P: AsRef<Path>>(paths: &[P], options: &Options) -> Result<Reader, TraceError> {
    let named: Vec<PathBuf> = in_folders(paths)?;
    let mut paths: Vec<&Path> = named.iter().map(PathBuf::as_path).collect();
    if paths.len() > 1 {
        // A processor without work leaves an empty file. If all files are empty, the first one is reported below.
        let mut kept = Vec::new();
        for path in &paths {
            let mut input = Input::open(path)?;
            input.fill(1)?;
            if !input.unread().is_empty() {
                kept.push(*path);
            }
        }
        if !kept.is_empty() {
            paths = kept;
        }
    }
    let Some((&path, others)) = paths.split_first() else {
        return Err(TraceError::unsupported(Path::new(""), "no file was named"));
    };
    let (found, first) = open_input(path, options)?;
    let format = found.format;
    let mut run = Run {
        skip_bad: options.skip_bad,
        sure: found.sure,
        assumed: found.assumed.into_iter().collect(),
        ..Run::default()
    };
    if let Some(doubt) = found.doubt {
        run.doubt(doubt);
    }
    // Parquet holds them elsewhere.
    let notes = Notes::read(first.unread()).filter(|_| format != Format::Parquet);
    if let Some(notes) = notes {
        notes.note(&mut run);
    }
    if let (Format::Blktrace, []) = (format, others) {
        note_one_processor(path, &mut run);
    } else if format == Format::Blktrace {
        note_missing(&named, &mut run);
    }
    let first_settings = settings(format, options, &paths, &mut run)?;
    let mut decoders = vec![first_settings.clone().decoder(first, &mut run)?];
    for &other in others {
        let (found, input) = open_input(other, options)?;
        let its = found.format;
        if its != format || matches!(format, Format::Parquet | Format::Events) {
            let what = format!(
                "is {its}, {} is {format}: only files of one stream format merge by their clock; `trace merge --from-zero` merges others",
                path.display()
            );
            return Err(TraceError::unsupported(other, what));
        }
        decoders.push(first_settings.clone().decoder(input, &mut run)?);
    }
    let decoder: Box<dyn Decode> = if decoders.len() > 1 {
        if !decoders.iter().all(|d| d.timed()) {
            return Err(TraceError::unsupported(
                path,
                format!("{format} without time cannot be merged"),
            ));
        }
        Box::new(Merge::new(decoders))
    } else {
        decoders.remove(0)
    };
    let decoder = sorted(decoder, options, &first_settings);
    Ok(Reader::new(path, format, decoder, run, options.limit))
}

/// Opens several traces as the devices of one, each from its own time zero, and merges their requests by time. Their formats may differ.
/// [`Reader::path`] is the first trace, and its header is that of the merged trace; the format is that of the first.
///
/// # Errors
/// As [`open`]; also if `paths` is empty, or one of the traces has no times.
pub fn open_from_zero<P: AsRef<Path>>(
    paths: &[P],
    options: &Options,
) -> Result<Reader, TraceError> {
    let (mut run, mut sources) = (Run::default(), Vec::new());
    let whole = Options {
        limit: None,
        ..options.clone()
    };
    for (i, path) in paths.iter().enumerate() {
        let path = path.as_ref();
        let reader = open(path, &whole)?;
        if !reader.timed() {
            let what = format!("{} without time cannot be merged", reader.format());
            return Err(TraceError::unsupported(path, what));
        }
        run.sure = run.sure.min(reader.sure());
        let of = |what: &String| format!("{}: {what}", path.display());
        run.assumed.extend(reader.assumed().iter().map(of));
        run.doubts.extend(reader.doubts().iter().map(of));
        let name = path
            .file_name()
            .unwrap_or(path.as_os_str())
            .to_string_lossy();
        sources.push((
            reader.format(),
            FromZero::boxed(reader, format!("{i}:{name}")),
        ));
    }
    let (Some(path), Some(&(format, _))) = (paths.first(), sources.first()) else {
        return Err(TraceError::unsupported(Path::new(""), "no file was named"));
    };
    let merge = Merge::new(sources.into_iter().map(|(_, source)| source).collect());
    Ok(Reader::new(
        path.as_ref(),
        format,
        Box::new(merge),
        run,
        options.limit,
    ))
}

/// The decoder, with its records sorted by time if the user or the format demands that.
fn sorted(decoder: Box<dyn Decode>, options: &Options, settings: &Settings) -> Box<dyn Decode> {
    let by_completion = settings
        .columns
        .as_ref()
        .is_some_and(ColumnMap::by_completion);
    let always = (is_unsorted(settings.format) || by_completion).then_some(WINDOW);
    match options.sort_window.or(always).filter(|_| decoder.timed()) {
        Some(window) => Sorted::boxed(decoder, window),
        None => decoder,
    }
}

/// The list of files, with each folder replaced by its blktrace files.
fn in_folders<P: AsRef<Path>>(paths: &[P]) -> Result<Vec<PathBuf>, TraceError> {
    let mut files = Vec::new();
    for path in paths {
        let path = path.as_ref();
        if path.is_dir() {
            files.extend(blktrace::in_folder(path)?);
        } else {
            files.push(path.to_owned());
        }
    }
    Ok(files)
}

/// Opens a file and finds its format.
fn open_input(path: &Path, options: &Options) -> Result<(Guess, Input), TraceError> {
    let mut input = Input::open(path)?;
    input.fill(SNIFF_BYTES)?;
    let head = &input.unread()[..input.unread().len().min(SNIFF_BYTES)];
    let named = match (&options.columns, options.format) {
        (Some(_), Some(format)) => {
            return Err(TraceError::unsupported(
                path,
                format!("columns and the format {format} were named: name one of them"),
            ));
        }
        (Some(_), None) => Some(Format::Columns),
        (None, format) => format,
    };
    if let Some(format) = named {
        return Ok((Guess::certain(format), input));
    }
    if head.is_empty() {
        return Err(TraceError::unsupported(path, "the file is empty"));
    }
    if let Some(what) = foreign(head) {
        return Err(TraceError::unsupported(
            path,
            format!("is no trace: {what}"),
        ));
    }
    if is_octf_name(path) && memchr::memchr(0, head).is_some() || is_octf(head) {
        return Err(TraceError::unsupported(path, OCTF_BINARY));
    }
    let why = match guess(head) {
        Ok(guess) => return Ok((guess, input)),
        Err(Some(near)) => format!(
            "the content is of no known format; nearest is {}, but {}: expected {}, found {}",
            near.format, near.place, near.bad.expected, near.bad.found
        ),
        Err(None) => match hint::columns(head) {
            Some(columns) => {
                let open = columns.split(',').any(|c| matches!(c, "time" | "offset" | "length"));
                let units = if open {
                    "; units that it leaves out are inferred from the numbers, unless you add them, as in time_us"
                } else {
                    ""
                };
                format!(
                    "the content is of no known format, but it has columns: if they are these, use `--columns {columns}`{units}"
                )
            }
            None if memchr::memchr(0, head).is_some() => {
                "the content is binary and of no known format; a list of block numbers is read by `--format blocks-u32` or blocks-u64".to_owned()
            }
            None => "the content is of no known format".to_owned(),
        },
    };
    Err(TraceError::Unknown {
        path: path.to_owned(),
        why,
    })
}

/// The information that a decoder needs in addition to the bytes.
#[derive(Clone)]
struct Settings {
    format: Format,
    block_bytes: u32,
    unit: TimeUnit,
    event: Event,
    timed: bool,
    columns: Option<ColumnMap>,
}

/// Resolves what formats leave open by reading through all files until one decides. The assumptions are recorded in `run`.
fn settings(
    format: Format,
    options: &Options,
    paths: &[&Path],
    run: &mut Run,
) -> Result<Settings, TraceError> {
    let mut settings = Settings {
        format,
        block_bytes: options.block_bytes.unwrap_or(BLOCK_BYTES),
        unit: options.trace_unit.unwrap_or(TimeUnit::Nanoseconds),
        event: Event::Issued,
        timed: false,
        columns: options.columns.clone(),
    };
    let mut unit = None;
    for path in paths {
        let again = || Input::open(path);
        let decided = match format {
            Format::DiskSim | Format::Replay | Format::DiskSimPages
                if options.trace_unit.is_none() =>
            {
                let found = disksim::find_unit(again()?)?;
                settings.unit = found.unit;
                unit = Some(found);
                settings.unit != TimeUnit::Nanoseconds
            }
            Format::Blktrace => {
                settings.event = blktrace::find_event(again()?)?;
                settings.event == Event::Queued
            }
            Format::Blkparse => {
                settings.event = blkparse::find_event(again()?)?;
                settings.event == Event::Queued
            }
            Format::FioV2 => {
                settings.timed = fio::has_waits(again()?)?;
                settings.timed
            }
            Format::Oracle if options.block_bytes.is_none() => {
                settings.find_block(again()?, run)?;
                true
            }
            _ => {
                settings.find_columns(again, options.trace_unit, run)?;
                true
            }
        };
        if decided {
            break;
        }
    }
    if let Some(found) = unit {
        let what = format!(
            "Times are read as {}: {}; --time-unit says otherwise.",
            found.unit.name(),
            found.why
        );
        run.sure = run.sure.min(Sure::Likely);
        if found.open {
            run.doubt(format!(
                "Nothing shows the unit of time for certain. {what}"
            ));
        }
        run.assumed.push(what);
    }
    if settings.lacks_op() {
        run.assumed
            .push("Nothing says which requests write: all are taken as reads.".to_owned());
    }
    Ok(settings)
}

impl Settings {
    /// The unit of object numbers.
    fn find_block(&mut self, input: Input, run: &mut Run) -> Result<(), TraceError> {
        match oracle::find_block(input)? {
            Some((Some(bytes), what)) => {
                self.block_bytes = bytes;
                run.assumed.push(what);
            }
            Some((None, doubt)) => run.doubt(doubt),
            None => {}
        }
        Ok(())
    }

    /// The columns of a text whose columns have names, and the units that columns leave open.
    fn find_columns(
        &mut self,
        again: impl Fn() -> Result<Input, TraceError>,
        unit: Option<TimeUnit>,
        run: &mut Run,
    ) -> Result<(), TraceError> {
        if presets::has(self.format) {
            self.columns = Some(presets::columns(self.format, again()?)?);
        }
        if let Some(map) = self.columns.take() {
            let (map, said) = map.settle(again()?, unit)?;
            self.columns = Some(map);
            if !said.assumed.is_empty() {
                run.sure = run.sure.min(Sure::Likely);
            }
            run.assumed.extend(said.assumed);
            said.doubts.into_iter().for_each(|doubt| run.doubt(doubt));
        }
        Ok(())
    }

    /// Whether nothing in the content states the direction of requests.
    fn lacks_op(&self) -> bool {
        match &self.columns {
            Some(map) => map.lacks_op(),
            None => matches!(
                self.format,
                Format::Oracle | Format::BlockList | Format::Blocks32 | Format::Blocks64
            ),
        }
    }
}

impl Settings {
    /// The decoder of the format.
    fn decoder(self, input: Input, run: &mut Run) -> Result<Box<dyn Decode>, TraceError> {
        let Settings {
            format,
            block_bytes,
            unit,
            event,
            timed,
            columns,
            ..
        } = self;
        Ok(match format {
            Format::Blkreplay => Lines::boxed(input, blkreplay::Blkreplay::default()),
            Format::Spc => Lines::boxed(input, spc::Spc),
            Format::Fiu => Lines::boxed(input, fiu::Fiu),
            Format::Msr => Lines::boxed(input, msr::Msr::default()),
            Format::Vscsi1 => Fixed::boxed(input, vscsi::Vscsi1),
            Format::Vscsi2 => Fixed::boxed(input, vscsi::Vscsi2),
            Format::DiskSim | Format::Replay | Format::DiskSimPages => Lines::boxed(
                input,
                disksim::DiskSim {
                    unit,
                    units: disksim::units(format),
                },
            ),
            Format::Arc => Lines::boxed(input, blocklist::Arc),
            Format::Oracle => Fixed::boxed(input, oracle::Oracle { block_bytes }),
            Format::Blktrace => Box::new(blktrace::Blktrace { input, event }),
            Format::Blkparse => Lines::boxed(input, blkparse::Blkparse { event }),
            Format::FioV2 => Lines::boxed(input, fio::Fio::v2(timed)),
            Format::FioV3 => Lines::boxed(input, fio::Fio::v3()),
            Format::Alibaba => Lines::boxed(input, cloud::Alibaba),
            Format::Tencent => Lines::boxed(input, cloud::Tencent),
            Format::Systor => Lines::boxed(input, tables::Systor::default()),
            Format::Etw => Lines::boxed(input, etw::Etw::default()),
            Format::Hplajw => Lines::boxed(input, tables::Hplajw::default()),
            Format::Octf => Lines::boxed(input, tables::Octf::default()),
            Format::BlockList => Lines::boxed(input, blocklist::BlockList { block_bytes }),
            Format::Csv => Lines::boxed(input, tables::Csv::default()),
            Format::Parquet => Box::new(parquet::Columnar::open(&input.path, run)?),
            Format::Blocks32 => Fixed::boxed(input, blocklist::Numbers::<4> { block_bytes }),
            Format::Blocks64 => Fixed::boxed(input, blocklist::Numbers::<8> { block_bytes }),
            Format::Columns
            | Format::Wpa
            | Format::Biosnoop
            | Format::Iosnoop
            | Format::LibCacheSim => {
                let Some(map) = columns else {
                    let what = "is to be read by columns, but none are named";
                    return Err(TraceError::unsupported(&input.path, what));
                };
                Lines::boxed(input, custom::Custom::new(map))
            }
            Format::Generated => {
                let what = "is a file; a generator is named gen:NAME";
                return Err(TraceError::unsupported(&input.path, what));
            }
            Format::Events => Box::new(events::Events::open(&input.path, run)?),
        })
    }
}
