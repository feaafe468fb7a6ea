//! Which front ends are wanted, and those that are at work.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use isotherm_live::front_end::{FrontEnd, Kind};
use isotherm_live::iscsi::chap::Secrets;
use isotherm_live::nbd::server::{Address, Config};
use isotherm_live::nbd::tls::Tls;
use isotherm_live::{VolumeConfig, block_file, iscsi, nbd, ublk};
use serde_json::{Value, json};

use super::device;
use crate::Failure;
use crate::args::ServeArgs;
use crate::control::beside;

/// What can be told to be wrong before a volume is opened.
///
/// # Errors
/// An address that is none, or no ublk in this kernel.
pub(super) fn check(args: &ServeArgs) -> Result<(), Failure> {
    addresses(args)?;
    secrets(args)?;
    tls(args)?;
    match ublk::missing().filter(|_| args.ublk) {
        Some(why) => Err(Failure::failed(why)),
        None => Ok(()),
    }
}

fn failed(e: &std::io::Error) -> Failure {
    Failure::failed(crate::failure::reason(e))
}

fn addresses(args: &ServeArgs) -> Result<Vec<Address>, Failure> {
    let parsed = args.nbd.iter().map(|a| a.parse::<Address>());
    let parsed: Result<Vec<_>, _> = parsed.collect();
    parsed.map_err(|e| Failure::usage(e.to_string()))
}

fn secrets(args: &ServeArgs) -> Result<Option<Secrets>, Failure> {
    let file = args.iscsi_chap.as_deref();
    file.map(Secrets::load).transpose().map_err(|e| failed(&e))
}

fn tls(args: &ServeArgs) -> Result<Option<Tls>, Failure> {
    match (&args.nbd_tls_cert, &args.nbd_tls_key, &args.nbd_tls_clients) {
        (Some(cert), Some(key), Some(clients)) => Tls::load(cert, key, clients)
            .map(Some)
            .map_err(|e| failed(&e)),
        _ => Ok(None),
    }
}

/// What is to be started, in this order.
///
/// # Errors
/// As [`check`].
pub(super) fn kinds(
    args: &ServeArgs,
    config: &VolumeConfig,
    device: &device::Told,
) -> Result<Vec<Box<dyn Kind>>, Failure> {
    let mut kinds: Vec<Box<dyn Kind>> = Vec::new();
    if let Some((dir, own)) = device::block_dir(args, &config.name)? {
        let options = block_file::Options {
            preferred_bytes: config.extent.0 as u32,
            ring: config.io.fuse_ring,
            ..block_file::Options::default()
        };
        kinds.push(if args.loop_device {
            Box::new(device::Wanted {
                dir,
                own,
                options,
                told: device.clone(),
            })
        } else {
            Box::new(block_file::front::Wanted { dir, options })
        });
    }
    if !args.nbd.is_empty() {
        kinds.push(Box::new(nbd::front::Wanted {
            addresses: addresses(args)?,
            config: Config {
                allow_remote: args.nbd_allow_remote,
                tls: tls(args)?,
                ..Config::new(&config.name)
            },
        }));
    }
    if !args.iscsi.is_empty() {
        kinds.push(Box::new(iscsi::front::Wanted {
            addresses: args.iscsi.clone(),
            target: args.iscsi_name.clone(),
            secrets: secrets(args)?,
            allow_remote: args.iscsi_allow_remote,
            reservations: beside(&args.volume, ".reservations"),
        }));
    }
    if args.ublk {
        kinds.push(Box::new(ublk::front::Wanted {
            queues: args.ublk_queues,
            recover: !args.ublk_no_recovery,
            ..ublk::front::Wanted::default()
        }));
    }
    Ok(kinds)
}

/// Front ends of a volume.
pub(super) struct Shown {
    /// What is wanted; once all have started, `all` says it better.
    wanted: Vec<String>,
    all: Vec<Box<dyn FrontEnd>>,
}

/// The same for whoever serves and whoever is asked.
#[derive(Clone)]
pub(super) struct Fronts(Arc<Mutex<Shown>>);

impl Fronts {
    /// None yet, of these.
    pub(super) fn new(wanted: Vec<String>) -> Fronts {
        let all = Vec::new();
        Fronts(Arc::new(Mutex::new(Shown { wanted, all })))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Shown> {
        // Lists of whole things.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// No request comes after this. Who is still there gets errors.
    pub(super) fn end(&self) {
        let all = std::mem::take(&mut self.lock().all);
        all.into_iter().for_each(FrontEnd::stop);
    }
}

/// See [`Fronts::ended_with`].
pub(super) struct Ended(Fronts);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Fronts {
    /// Ends them when it is dropped.
    pub(super) fn ended_with(&self) -> Ended {
        Ended(self.clone())
    }
}

impl Shown {
    pub(super) fn add(&mut self, front: Box<dyn FrontEnd>) {
        self.all.push(front);
    }

    pub(super) fn refuse_new(&mut self) {
        self.all.iter_mut().for_each(|f| f.refuse_new());
    }

    /// Who still uses the volume, in words; empty when nobody does.
    pub(super) fn users(&mut self) -> Vec<String> {
        self.all.iter_mut().filter_map(|f| f.users()).collect()
    }

    /// Those whose users would not hear of it if the server was killed.
    pub(super) fn outliving(&self) -> Vec<String> {
        let outliving = self.all.iter().filter(|f| f.outlives());
        outliving.flat_map(|f| f.names()).collect()
    }

    /// Takes away what can be without taking it from somebody.
    ///
    /// # Errors
    /// Who has it open; nothing more is taken away then.
    pub(super) fn leave(&mut self) -> Result<(), String> {
        self.all.iter_mut().try_for_each(|f| f.leave())
    }

    /// Their names.
    pub(super) fn names(&self) -> Vec<String> {
        let names: Vec<String> = self.all.iter().flat_map(|f| f.names()).collect();
        if names.len() < self.wanted.len() {
            return self.wanted.clone();
        }
        names
    }

    /// What each can, and its counts.
    pub(super) fn figures(&self) -> Value {
        let one = |f: &dyn FrontEnd| {
            let can = f.can();
            let counts: serde_json::Map<String, Value> = (f.figures().into_iter())
                .map(|(name, n)| (name.to_owned(), json!(n)))
                .collect();
            json!({
                "names": f.names(), "counts": counts,
                "can": {
                    "fua": can.fua, "discard": can.discard, "write_zeroes": can.write_zeroes,
                    "classes": can.classes, "resize": can.resize,
                },
            })
        };
        self.all.iter().map(|f| one(f.as_ref())).collect()
    }
}
