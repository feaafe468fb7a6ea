//! Arguments of `cost`.

use clap::{Args, Subcommand, ValueEnum};

use crate::json::JsonArg;

/// `isotherm cost`.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Of energy, power and hours give two; the third follows.\n\nExamples:\n  \
    isotherm cost --device ssd=intel-320-300:1 --device hdd=st32000641as:4 --power-w 60 --hours 720 --time-factor 1,12,60\n  \
    isotherm cost --device ssd=nvme-tlc --written-gb ssd=900 --energy-j 3.6e6 --hours 10 --service 50\n  \
    isotherm cost --example greendm-7.2\n  isotherm cost shelves"
)]
pub struct CostArgs {
    /// Further tables.
    #[command(subcommand)]
    pub command: Option<CostCommand>,
    /// A device of the system (see `isotherm devices`)
    #[arg(long = "device", value_name = "NAME=PRESET[:COUNT]")]
    pub devices: Vec<Device>,
    /// Price of one device instead of its preset's, US dollars
    #[arg(long, value_name = "NAME=USD")]
    pub price: Vec<Amount>,
    /// GB (10⁹ bytes) of each device that are used and paid for [default: the whole device]
    #[arg(long, value_name = "NAME=GB")]
    pub used_gb: Vec<Amount>,
    /// GB (10⁹ bytes) written to each device in a run
    #[arg(long, value_name = "NAME=GB")]
    pub written_gb: Vec<Amount>,
    /// Start-stop cycles of each device in a run
    #[arg(long, value_name = "NAME=N")]
    pub start_stops: Vec<Amount>,
    /// Further life of each device that a run uses, in eu (millionths of a life)
    #[arg(long, value_name = "NAME=EU")]
    pub wear_eu: Vec<Amount>,
    /// Energy of a run, of devices and host together
    #[arg(long, value_name = "J", value_parser = amount)]
    pub energy_j: Option<f64>,
    /// Mean power of a run
    #[arg(long, value_name = "W", value_parser = amount)]
    pub power_w: Option<f64>,
    /// Duration of a run
    #[arg(long, value_name = "H", value_parser = amount)]
    pub hours: Option<f64>,
    /// Service (space, work), paid once
    #[arg(long, value_name = "USD", default_value = "0", value_parser = amount)]
    pub service: f64,
    /// Number of repetitions of the run; one column each
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1", value_parser = clap::value_parser!(u64).range(1..))]
    pub time_factor: Vec<u64>,
    /// Prices of energy and power: a preset or a TOML file
    #[arg(long, value_name = "NAME|FILE", default_value = "lipa-2013")]
    pub tariff: String,
    /// Round the price of a GB and the wear of each device to cents in between, as GreenDM does
    #[arg(long)]
    pub cents: bool,
    /// Show a worked example instead
    #[arg(long, value_enum, conflicts_with_all = ["devices", "price", "used_gb", "written_gb", "start_stops",
        "wear_eu", "energy_j", "power_w", "hours", "service", "tariff", "cents"])]
    pub example: Option<Example>,
    /// Where the figures go.
    #[command(flatten)]
    pub json: JsonArg,
}

/// Worked examples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Example {
    /// GreenDM, section 7.2.
    #[value(name = "greendm-7.2")]
    Greendm72,
}

/// Further tables of cost.
#[derive(Debug, Subcommand)]
pub enum CostCommand {
    /// Power saved, compared with disk shelves at rest (GreenDM, figure 4.4)
    Shelves(ShelvesArgs),
    /// Price of capacity, tiering compared with caching (GreenDM, figure 2.1)
    Capacity(CapacityArgs),
}

/// `isotherm cost shelves`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  isotherm cost shelves\n  isotherm cost shelves --shelves 48 --saving 30 --json"
)]
pub struct ShelvesArgs {
    /// Shelves behind each controller
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub shelves: u32,
    /// Desired saving, in percent of the system's power
    #[arg(long, value_name = "PERCENT", default_value = "20", value_parser = amount)]
    pub saving: f64,
    /// Where the figures go.
    #[command(flatten)]
    pub json: JsonArg,
}

/// `isotherm cost capacity`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  isotherm cost capacity\n  isotherm cost capacity --ssd-usd-per-gb 0.08 --hdd-usd-per-gb 0.018"
)]
pub struct CapacityArgs {
    /// Price of flash
    #[arg(long, value_name = "USD", default_value = "1.76", value_parser = amount)]
    pub ssd_usd_per_gb: f64,
    /// Price of disk
    #[arg(long, value_name = "USD", default_value = "0.10", value_parser = amount)]
    pub hdd_usd_per_gb: f64,
    /// Total capacity ÷ flash capacity; one row each
    #[arg(long, value_name = "R,...", value_delimiter = ',', default_value = "2,3,4,5,6,7,8,9,10", value_parser = ratio)]
    pub ratio: Vec<f64>,
    /// Where the figures go.
    #[command(flatten)]
    pub json: JsonArg,
}

/// `NAME=PRESET[:COUNT]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its name in this command.
    pub name: String,
    /// The model.
    pub preset: String,
    /// The number of devices.
    pub count: u32,
}

impl std::str::FromStr for Device {
    type Err = String;

    fn from_str(text: &str) -> Result<Device, String> {
        let bad = || format!("`{text}` is no device: write NAME=PRESET or NAME=PRESET:COUNT");
        let (name, what) = text.split_once('=').ok_or_else(bad)?;
        let (preset, count) = what.split_once(':').unwrap_or((what, "1"));
        let count = count.parse().map_err(|_| bad())?;
        if name.is_empty() || preset.is_empty() || count == 0 {
            return Err(bad());
        }
        Ok(Device {
            name: name.to_owned(),
            preset: preset.to_owned(),
            count,
        })
    }
}

/// `NAME=NUMBER`.
#[derive(Clone, Debug, PartialEq)]
pub struct Amount {
    /// The device.
    pub name: String,
    /// The number.
    pub value: f64,
}

impl std::str::FromStr for Amount {
    type Err = String;

    fn from_str(text: &str) -> Result<Amount, String> {
        let (name, number) = text
            .split_once('=')
            .filter(|(name, _)| !name.is_empty())
            .ok_or_else(|| format!("`{text}` names no device: write NAME=NUMBER"))?;
        Ok(Amount {
            name: name.to_owned(),
            value: amount(number)?,
        })
    }
}

/// A number that is finite and not negative.
fn amount(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(n) if n.is_finite() && n >= 0.0 => Ok(n),
        _ => Err(format!("`{text}` is no amount: write a number from 0 on")),
    }
}

fn ratio(text: &str) -> Result<f64, String> {
    amount(text)
        .ok()
        .filter(|r| *r >= 1.0)
        .ok_or_else(|| format!("`{text}` is no ratio of total to flash: write a number from 1 on"))
}
