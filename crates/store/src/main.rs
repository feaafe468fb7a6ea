//! The program `isotherm-store`: an object store as one disk, which is a file in a small mount.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::{Parser, Subcommand};
use isotherm_live::block_file::{self, Options};
use isotherm_live::config::{Size, StoreConfig};
use isotherm_live::nbd::server::{Address, Config, Server};
use isotherm_store::disk::{Disk, Settings};
use isotherm_store::port::DiskPort;
use isotherm_store::remote::Remote;
use isotherm_store::{head, readout, status};
use isotherm_words::size;

/// Largest payload of an object, unless another is asked for.
const OBJECT_BYTES: u64 = 4 << 20;

/// An object store as the slowest disk of a volume.
#[derive(Parser)]
#[command(name = "isotherm-store", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Makes a disk at an empty prefix: s3://BUCKET/PREFIX, gs://…, az://CONTAINER/PREFIX or file:///DIRECTORY
    Create {
        /// Where the objects lie
        url: String,
        /// Size of the disk, for example 100T
        size: String,
        /// Largest payload of an object, 1M to 32M
        #[arg(long, default_value_t = Size(OBJECT_BYTES).to_string())]
        object_size: String,
    },
    /// Serves the disk as the file DIR/disk until it is stopped
    Serve(Serve),
    /// Shows what a serving process says of itself, as JSON
    Status {
        /// The folder of the spool
        spool: PathBuf,
    },
    /// Makes the store that a description of `isotherm create` names; if it is made already, changes nothing
    Make {
        /// The description, VOLUME.store
        description: PathBuf,
    },
    /// Serves the disk that a description of `isotherm create` names, as `serve` does
    Run {
        /// The description, VOLUME.store
        description: PathBuf,
        /// As for `serve`
        #[arg(long)]
        new_spool: bool,
        /// As for `serve`
        #[arg(long)]
        discard_spool: bool,
    },
    /// Shows what a store is and who has written to it last, as JSON
    Describe {
        /// Where the objects lie
        url: String,
    },
    /// Writes the newest state of a disk to a new sparse file
    ReadOut {
        /// Where the objects lie
        url: String,
        /// The file to make
        image: PathBuf,
    },
}

#[derive(clap::Args)]
struct Serve {
    /// Where the objects lie
    url: String,
    /// An empty directory, in which the file `disk` appears
    dir: PathBuf,
    /// A folder on local flash for what is not yet in the store
    #[arg(long)]
    spool: PathBuf,
    /// Largest size of the spool; then writers wait
    #[arg(long, default_value = "4G")]
    spool_size: String,
    /// Seconds after which a FLUSH ends an epoch
    #[arg(long, default_value_t = 30)]
    order_s: u64,
    /// Dirty bytes at which a FLUSH ends an epoch
    #[arg(long, default_value = "256M")]
    epoch_size: String,
    /// Seconds for which a read waits for a store that is away
    #[arg(long, default_value_t = 60)]
    remote_wait: u64,
    /// Memory for blocks of the store
    #[arg(long, default_value = "256M")]
    cache: String,
    /// Seconds for which objects stay that are not needed any more
    #[arg(long, default_value_t = 3600)]
    grace: u64,
    /// Also serve the disk over NBD: unix:PATH
    #[arg(long)]
    nbd: Option<String>,
    /// Let other users reach the mount
    #[arg(long)]
    allow_other: bool,
    /// Forget what the spool holds, and start with the state of the store
    #[arg(long)]
    discard_spool: bool,
    /// Start although the spool that wrote last is not here: what it holds and the store does not is missing
    #[arg(long)]
    new_spool: bool,
}

fn bytes(option: &str, text: &str) -> Result<u64, String> {
    size::bytes(text).map_err(|e| format!("{option}: {e}"))
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Create {
            url,
            size,
            object_size,
        } => create(&url, &size, &object_size),
        Command::Serve(args) => serve(&args, None),
        Command::Make { description } => make(&description),
        Command::Run {
            description,
            new_spool,
            discard_spool,
        } => run(&description, (new_spool, discard_spool)),
        Command::Describe { url } => describe(&url),
        Command::Status { spool } => show(&spool),
        Command::ReadOut { url, image } => read_out(&url, &image),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("isotherm-store: {why}");
            ExitCode::FAILURE
        }
    }
}

fn create(url: &str, size: &str, object_size: &str) -> Result<(), String> {
    let (size, object) = (bytes("SIZE", size)?, bytes("--object-size", object_size)?);
    let made = head::create(&Remote::open(url)?, size, object)?;
    println!("{url}: a disk of {} ({})", size::exact(made.bytes), made.id);
    Ok(())
}

fn described(file: &Path) -> Result<StoreConfig, String> {
    let read = StoreConfig::load(file).map_err(|e| e.to_string())?;
    read.ok_or_else(|| format!("{}: does not exist", file.display()))
}

fn make(file: &Path) -> Result<(), String> {
    let wanted = described(file)?;
    let object = wanted.object_size.map_or(OBJECT_BYTES, |s| s.0);
    head::create_as(
        &Remote::open(&wanted.url)?,
        &wanted.id,
        wanted.size.0,
        object,
    )
    .map(drop)
    .map_err(|e| format!("{}: {e}", wanted.url))
}

fn run(file: &Path, (new_spool, discard_spool): (bool, bool)) -> Result<(), String> {
    let wanted = described(file)?;
    let serve_words = [String::from("isotherm-store"), String::from("serve")];
    let words = serve_words.into_iter().chain(wanted.options());
    let cli = Cli::try_parse_from(words).map_err(|e| format!("{}: {e}", file.display()))?;
    let Command::Serve(mut args) = cli.command else {
        return Err("the words of `serve` are another command's".into());
    };
    (args.new_spool, args.discard_spool) = (new_spool, discard_spool);
    serve(&args, Some(&wanted.id)).map_err(|e| format!("{}: {e}", wanted.url))
}

fn describe(url: &str) -> Result<(), String> {
    let remote = Remote::open(url)?;
    let store = head::describe(&remote)?;
    let newest = head::newest(&remote, &store.id).map_err(|e| e.to_string())?;
    let all = serde_json::json!({
        "id": store.id,
        "bytes": store.bytes,
        "object_bytes": store.object_bytes,
        "written": newest.written,
        "spool": newest.spool,
    });
    println!("{all:#}");
    Ok(())
}

fn read_out(url: &str, image: &Path) -> Result<(), String> {
    let (all, data) = readout::read_out(&Remote::open(url)?, image)?;
    println!(
        "{}: {}, of which {} data",
        image.display(),
        size::exact(all),
        size::exact(data)
    );
    Ok(())
}

fn show(spool: &Path) -> Result<(), String> {
    let path = spool.join(status::FILE);
    let text = std::fs::read_to_string(&path).map_err(|e| {
        format!(
            "{}: {e}: is it the folder given with --spool?",
            path.display()
        )
    })?;
    print!("{text}");
    if Disk::is_served(spool) {
        Ok(())
    } else {
        Err("nothing serves it now; this is its last status".into())
    }
}

fn settings(args: &Serve) -> Result<Settings, String> {
    let settings = Settings {
        order: Duration::from_secs(args.order_s),
        epoch_bytes: bytes("--epoch-size", &args.epoch_size)?,
        spool_bytes: bytes("--spool-size", &args.spool_size)?,
        new_spool: args.new_spool,
        remote_wait: Duration::from_secs(args.remote_wait),
        grace: Duration::from_secs(args.grace),
        cache_bytes: bytes("--cache", &args.cache)?,
        ..Settings::default()
    };
    if settings.spool_bytes < 16 << 20 {
        return Err("--spool-size: at least 16M".into());
    }
    Ok(settings)
}

fn serve(args: &Serve, id: Option<&str>) -> Result<(), String> {
    let mut settings = settings(args)?;
    settings.id = id.map(str::to_owned);
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).map_err(|e| e.to_string())?;
    }
    let remote = Remote::open(&args.url)?;
    let disk = Arc::new(Disk::open(
        remote,
        &args.spool,
        settings,
        args.discard_spool,
    )?);
    let port = Arc::new(DiskPort::new(Arc::clone(&disk)).map_err(|e| e.to_string())?);
    let options = Options {
        allow_other: args.allow_other,
        preferred_bytes: 256 << 10,
        threads: 2,
        ring: false,
        lineage: Some(disk.lineage()),
        ..Options::default()
    };
    let mut mount =
        block_file::mount(port.clone(), &args.dir, "disk", &options).map_err(|e| e.to_string())?;
    let nbd = args.nbd.as_ref().map(|address| {
        let address: Address = address.parse().map_err(|e: std::io::Error| e.to_string())?;
        Server::start(port.clone(), &[address], Config::new("disk")).map_err(|e| e.to_string())
    });
    let nbd = nbd.transpose()?;
    let uploads = {
        let disk = Arc::clone(&disk);
        std::thread::spawn(move || {
            block_file::become_io_flusher();
            disk.run()
        })
    };
    println!("{}: {}", mount.file().display(), args.url);
    while !stop.load(Ordering::Relaxed) && !uploads.is_finished() && !mount.is_finished() {
        if let Err(error) = disk.write_report(&args.spool) {
            eprintln!("isotherm-store: {}: {error}", args.spool.display());
        }
        std::thread::sleep(Duration::from_millis(500));
    }
    while !uploads.is_finished() && mount.unmount().is_err() {
        eprintln!(
            "isotherm-store: {} is open: it ends when it is closed",
            mount.file().display()
        );
        std::thread::sleep(Duration::from_secs(2));
    }
    drop((mount, nbd));
    // Before the port, whose threads may wait for room in the spool.
    disk.close();
    drop(port);
    let ended = uploads
        .join()
        .map_err(|_| "the uploading thread panicked".to_owned())?;
    // The status is for people; the end does not depend on it.
    let _ = disk.write_report(&args.spool);
    ended
}
