//! The front ends that are requested. The active ones are in `isotherm_control::fronts`.

use std::path::PathBuf;

use isotherm_live::front_end::FrontEndSettings;
use isotherm_live::iscsi::chap::Secrets;
use isotherm_live::nbd::server::{Address, Config};
use isotherm_live::nbd::tls::Tls;
use isotherm_live::{VolumeConfig, block_file, iscsi, nbd, ublk, vhost_user};

use super::device;
use crate::Failure;
use crate::args::ServeArgs;
use crate::control::beside;

/// The arguments with `--device` replaced by the front end that this kernel can: ublk, else a loop device, and then the reason.
pub(super) fn chosen(args: &ServeArgs) -> (ServeArgs, Option<String>) {
    let mut args = args.clone();
    let mut words = None;
    if args.device {
        match ublk::usable() {
            Ok(()) => args.ublk = true,
            Err(e) => {
                words = Some(format!("--device: a loop device is used, not ublk: {e}"));
                args.loop_device = true;
            }
        }
    }
    (args, words)
}

/// Checks everything that can be checked before a volume is opened.
///
/// # Errors
/// An address is invalid, or this kernel has no ublk.
pub(super) fn check(args: &ServeArgs) -> Result<(), Failure> {
    addresses(args)?;
    secrets(args)?;
    tls(args)?;
    match ublk::missing().filter(|_| args.ublk) {
        Some(why) => Err(Failure::failed(format!(
            "{why}, or use --device, or --block-file DIR and a loop device"
        ))),
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

/// The paths of the unix sockets at which front ends and metrics will listen.
///
/// # Errors
/// An address is invalid.
pub(super) fn sockets(args: &ServeArgs) -> Result<Vec<PathBuf>, Failure> {
    let nbd = addresses(args)?.into_iter().filter_map(|a| match a {
        Address::Unix(path) => Some(path),
        Address::Tcp(_) => None,
    });
    let metrics = args.metrics.iter().filter_map(|a| match a {
        isotherm_web::Address::Unix(path) => Some(path.clone()),
        isotherm_web::Address::Tcp(_) => None,
    });
    Ok(nbd.chain(metrics).chain(args.vhost_user.clone()).collect())
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

/// The front ends to start, in this order.
///
/// # Errors
/// As [`check`].
pub(super) fn kinds(
    args: &ServeArgs,
    config: &VolumeConfig,
    device: &device::DeviceStatus,
) -> Result<Vec<Box<dyn FrontEndSettings>>, Failure> {
    let mut kinds: Vec<Box<dyn FrontEndSettings>> = Vec::new();
    device::clear_of_killed(config);
    if let Some((dir, own)) = device::block_dir(args, &config.name)? {
        let options = block_file::Options {
            preferred_bytes: config.extent.0 as u32,
            ring: config.io.fuse_ring,
            ..block_file::Options::default()
        };
        kinds.push(if args.loop_device {
            Box::new(device::Settings {
                dir,
                own,
                options,
                told: device.clone(),
            })
        } else {
            Box::new(block_file::front::Settings { dir, options })
        });
    }
    if !args.nbd.is_empty() {
        kinds.push(Box::new(nbd::front::Settings {
            addresses: addresses(args)?,
            config: Config {
                allow_remote: args.nbd_allow_remote,
                tls: tls(args)?,
                ..Config::new(&config.name)
            },
        }));
    }
    if !args.iscsi.is_empty() {
        kinds.push(Box::new(iscsi::front::Settings {
            addresses: args.iscsi.clone(),
            target: args.iscsi_name.clone(),
            secrets: secrets(args)?,
            allow_remote: args.iscsi_allow_remote,
            reservations: beside(&args.volume, ".reservations"),
        }));
    }
    if let Some(path) = args.vhost_user.clone() {
        kinds.push(Box::new(vhost_user::front::Settings { path }));
    }
    if args.ublk {
        kinds.push(Box::new(device::Ublk {
            wanted: ublk::front::Settings {
                queues: args.ublk_queues,
                recover: !args.ublk_no_recovery,
                zero_copy: args.ublk_zero_copy,
                links: crate::place::device_dir(),
                ..ublk::front::Settings::default()
            },
            told: device.clone(),
        }));
    }
    Ok(kinds)
}
