//! `cost`: the model of total cost alone, and the paper's tables about it.

pub(super) mod answer;

use std::path::Path;

use isotherm_models::cost::{
    DevicePrices, MemberPrice, MemberUsage, Prices, Rounding, Tariff, Tco, Usage, capacity_cost,
    greendm_7_2,
};
use isotherm_models::enclosure::{Catalogue, Rest, System};
use isotherm_models::{Sheet, SheetError};

use self::answer::{Answer, CapacityRow, Cost, ShelfAnswer, ShelfController, ShelfSystem};
use crate::Failure;
use crate::lab::args::{Amount, CapacityArgs, CostArgs, CostCommand, Device, Example, ShelvesArgs};
use crate::table::table;

/// `isotherm cost`.
///
/// # Errors
/// See [`Failure`].
pub fn run(args: &CostArgs) -> Result<(), Failure> {
    match &args.command {
        Some(CostCommand::Shelves(s)) => return shelves(s),
        Some(CostCommand::Capacity(c)) => return capacity(c),
        None => {}
    }
    let (prices, usage, factors) = match args.example {
        Some(Example::Greendm72) => {
            let (prices, usage) = greendm_7_2().map_err(|e| failed(&e))?;
            // The paper's time factors, unless others are given.
            let factors = if args.time_factor == [1] {
                vec![1, 100]
            } else {
                args.time_factor.clone()
            };
            (prices, usage, factors)
        }
        None => {
            let (prices, usage) = given(args)?;
            (prices, usage, args.time_factor.clone())
        }
    };
    let costs: Vec<Tco> = factors.iter().map(|&f| prices.tco(&usage, f)).collect();
    let answer = Answer {
        tariff: &prices.tariff.name,
        elapsed_s: usage.elapsed_s,
        energy_j: usage.energy_j(),
        mean_power_w: usage.mean_power_w(),
        costs: costs.iter().map(Cost::new).collect(),
    };
    args.json.print(&answer, || {
        let mut text = format!(
            "{}, {}: {:.4} kWh at {:.1} W on average, {:.2} h\n\n",
            prices.tariff.name,
            prices.tariff.description,
            usage.energy_j() / 3.6e6,
            usage.mean_power_w(),
            usage.elapsed_s / 3600.0
        );
        text += &as_text(&costs);
        if args.example.is_some() {
            text += "\nThe paper prints $122.4219 and $710.67: it prices 5 kWh off peak and between, where its own split of 8 kWh gives 6.\n";
        }
        text
    })
}

fn failed(error: &SheetError) -> Failure {
    Failure::failed(error.to_string())
}

/// All devices that other options name must exist.
fn check_names(args: &CostArgs) -> Result<(), Failure> {
    for list in [
        &args.price,
        &args.used_gb,
        &args.written_gb,
        &args.start_stops,
        &args.wear_eu,
    ] {
        if let Some(a) = list
            .iter()
            .find(|a| args.devices.iter().all(|d| d.name != a.name))
        {
            return Err(Failure::usage(format!(
                "no --device is called `{}`; there is {}",
                a.name,
                names(args)
            )));
        }
    }
    Ok(())
}

/// The price of one device: that of its sheet, with the corrections of the command line.
fn price_of(args: &CostArgs, d: &Device, sheet: &Sheet) -> Result<MemberPrice, Failure> {
    let mut price = MemberPrice::of_sheet(sheet, sheet.capacity()).unwrap_or(MemberPrice {
        name: String::new(),
        device_usd: f64::NAN,
        device_gb: sheet.capacity() as f64 / 1e9,
        used_gb: sheet.capacity() as f64 / 1e9,
        usd_per_gb_month: 0.0,
    });
    if let Some(usd) = of(&args.price, &d.name) {
        price.device_usd = usd;
    } else if price.device_usd.is_nan() {
        return Err(Failure::usage(format!(
            "preset `{}` has no price: give --price {}=USD",
            d.preset, d.name
        )));
    }
    if let Some(gb) = of(&args.used_gb, &d.name) {
        if gb > price.device_gb {
            return Err(Failure::usage(format!(
                "--used-gb {}={gb}: the device has only {:.1} GB",
                d.name, price.device_gb
            )));
        }
        price.used_gb = gb;
    } else if sheet.remote.is_some() {
        // A remote store has no size of its own that could be rented.
        return Err(Failure::usage(format!(
            "`{}` is a remote store: give --used-gb {}=GB",
            d.name, d.name
        )));
    }
    Ok(price)
}

/// Prices and usage from the command line.
fn given(args: &CostArgs) -> Result<(Prices, Usage), Failure> {
    if args.devices.is_empty() {
        return Err(Failure::usage(
            "nothing to price: give --device NAME=PRESET, or --example greendm-7.2; see `isotherm cost --help`",
        ));
    }
    check_names(args)?;
    let (energy_j, elapsed_s) = run_of(args)?;
    let (mut members, mut used) = (Vec::new(), Vec::new());
    for d in &args.devices {
        let sheet = isotherm_models::sheet(&d.preset).map_err(|e| Failure::usage(e.to_string()))?;
        let price = price_of(args, d, &sheet)?;
        let wear_eu = wear(args, &sheet, &d.name)?;
        for i in 1..=d.count {
            let mut one = price.clone();
            one.name = if d.count == 1 {
                d.name.clone()
            } else {
                format!("{}{i}", d.name)
            };
            members.push(one);
            used.push(MemberUsage {
                wear_eu,
                ..MemberUsage::default()
            });
        }
    }
    let prices = Prices {
        tariff: tariff(&args.tariff)?,
        members,
        service_usd: args.service,
        rounding: if args.cents {
            Rounding::Cents
        } else {
            Rounding::Exact
        },
    };
    let usage = Usage {
        elapsed_s,
        host_energy_j: energy_j,
        members: used,
    };
    Ok((prices, usage))
}

fn names(args: &CostArgs) -> String {
    let all: Vec<&str> = args.devices.iter().map(|d| d.name.as_str()).collect();
    all.join(", ")
}

/// The last one that was given applies, as with other options.
fn of(list: &[Amount], name: &str) -> Option<f64> {
    list.iter().rev().find(|a| a.name == name).map(|a| a.value)
}

/// Joules and seconds of a run.
fn run_of(args: &CostArgs) -> Result<(f64, f64), Failure> {
    let seconds = args.hours.map(|h| h * 3600.0);
    match (args.energy_j, args.power_w, seconds) {
        (Some(_), Some(_), Some(_)) => Err(Failure::usage(
            "--energy-j, --power-w and --hours: give two of them, the third follows",
        )),
        (Some(j), Some(w), None) if w > 0.0 => Ok((j, j / w)),
        (Some(_), Some(_), None) => Err(Failure::usage("--power-w: must be above 0")),
        (Some(j), None, Some(s)) => Ok((j, s)),
        (None, Some(w), Some(s)) => Ok((w * s, s)),
        _ => Err(Failure::usage(
            "what does a run use? give two of --energy-j, --power-w and --hours",
        )),
    }
}

/// Life used of a device, in eu.
fn wear(args: &CostArgs, sheet: &Sheet, name: &str) -> Result<f64, Failure> {
    let mut eu = of(&args.wear_eu, name).unwrap_or(0.0);
    let share = |option: &str, used: f64, limit: Option<f64>| match limit {
        Some(limit) if limit > 0.0 => Ok(used / limit * 1e6),
        _ => Err(Failure::usage(format!(
            "--{option}: preset `{}` has no such limit; give --wear-eu {name}=EU",
            sheet.name
        ))),
    };
    if let Some(gb) = of(&args.written_gb, name) {
        let limit = sheet.ssd.as_ref().map(|s| s.write_limit_gb);
        eu += share("written-gb", gb, limit)?;
    }
    if let Some(n) = of(&args.start_stops, name) {
        let limit = sheet.hdd.as_ref().map(|h| h.start_stop_limit);
        eu += share("start-stops", n, limit)?;
    }
    Ok(eu)
}

fn tariff(name: &str) -> Result<Tariff, Failure> {
    let path = Path::new(name);
    let is_file = name.contains('/')
        || path
            .extension()
            .is_some_and(|e| e.eq_ignore_ascii_case("toml"));
    if is_file {
        let text = std::fs::read_to_string(path).map_err(|e| Failure::file(path, "read", &e))?;
        return Tariff::parse(&text, name).map_err(|e| failed(&e));
    }
    Tariff::preset(name).map_err(|e| Failure::usage(e.to_string()))
}

/// One column per time factor and one row per part; recurring parts are multiplied by the factor.
fn as_text(costs: &[Tco]) -> String {
    let usd = |x: f64| format!("{x:.4}");
    let row = |name: &str, part: &dyn Fn(&Tco) -> f64| {
        let cells = costs.iter().map(|t| usd(part(t)));
        std::iter::once(name.to_owned()).chain(cells).collect()
    };
    let times = |t: &Tco, x: f64| x * t.time_factor as f64;
    let mut rows: Vec<Vec<String>> = vec![row("purchase", &|t| t.purchase_usd)];
    let count = costs.first().map_or(0, |t| t.members.len());
    let name = |i: usize| costs[0].members[i].name.as_str();
    for i in 0..count {
        rows.push(row(&format!("  {}", name(i)), &|t| {
            t.members[i].purchase_usd
        }));
    }
    rows.push(row("energy", &|t| times(t, t.energy_usd)));
    rows.push(row("power", &|t| times(t, t.power_usd)));
    rows.push(row("wear", &|t| times(t, t.wear_usd)));
    for i in 0..count {
        rows.push(row(&format!("  {}", name(i)), &|t| {
            times(t, t.members[i].wear_usd)
        }));
    }
    if costs.iter().any(|t| t.requests_usd > 0.0) {
        rows.push(row("requests and rent", &|t| times(t, t.requests_usd)));
    }
    rows.push(row("service", &|t| t.service_usd));
    rows.push(row("total", &Tco::total_usd));
    let heads: Vec<String> = costs
        .iter()
        .map(|t| format!("x {}", t.time_factor))
        .collect();
    let head: Vec<&str> = std::iter::once("US$, time factor")
        .chain(heads.iter().map(String::as_str))
        .collect();
    table(&head, &rows)
}

/// `isotherm cost shelves`.
fn shelves(args: &ShelvesArgs) -> Result<(), Failure> {
    let all = Catalogue::greendm().map_err(|e| failed(&e))?;
    let asked = args.saving / 100.0;
    let most = |s: &System<'_>, rest| s.saved(s.shelves, rest);
    let system = |s: System<'_>| ShelfSystem {
        controller: s.controller.name.clone(),
        shelf: s.shelf.name.clone(),
        idle_w: s.idle_w(),
        shelves_spun_down: s.shelves_for(asked, Rest::SpunDown),
        shelves_powered_down: s.shelves_for(asked, Rest::PoweredDown),
        most_saved_spun_down: most(&s, Rest::SpunDown),
        most_saved_powered_down: most(&s, Rest::PoweredDown),
    };
    let controllers = all.controllers.iter().map(|c| ShelfController {
        name: c.name.clone(),
        idle_w: c.idle_w,
        max_tb: c.max_tb,
        idle_w_per_tb: c.idle_w_per_tb(),
    });
    let answer = ShelfAnswer {
        shelves: args.shelves,
        saving: asked,
        systems: all.systems(args.shelves).map(system).collect(),
        controllers: controllers.collect(),
    };
    args.json.print(&answer, || {
        let count = |n: Option<u32>| n.map_or_else(|| "-".to_owned(), |n| n.to_string());
        let percent = |x: f64| format!("{:.1} %", x * 100.0);
        let rows: Vec<Vec<String>> = (answer.systems.iter())
            .map(|s| {
                vec![
                    format!("{}+{}", s.controller, s.shelf),
                    format!("{:.0}", s.idle_w),
                    count(s.shelves_spun_down),
                    count(s.shelves_powered_down),
                    percent(s.most_saved_spun_down),
                    percent(s.most_saved_powered_down),
                ]
            })
            .collect();
        let head = [
            "system",
            "idle W",
            "spun down",
            "powered down",
            "most, spun down",
            "most, powered down",
        ];
        let idle: Vec<Vec<String>> = (answer.controllers.iter())
            .map(|c| {
                vec![
                    c.name.clone(),
                    format!("{:.0}", c.idle_w),
                    format!("{:.0}", c.max_tb),
                    format!("{:.3}", c.idle_w_per_tb),
                ]
            })
            .collect();
        format!(
            "Shelves of {} whose disks must rest to save {} % of an idle system's power, and what all of them save:\n\n{}\n{}",
            args.shelves,
            args.saving,
            table(&head, &rows),
            table(&["controller", "idle W", "TB", "W per TB"], &idle)
        )
    })
}

/// `isotherm cost capacity`.
fn capacity(args: &CapacityArgs) -> Result<(), Failure> {
    let prices = DevicePrices {
        ssd_usd_per_gb: args.ssd_usd_per_gb,
        hdd_usd_per_gb: args.hdd_usd_per_gb,
    };
    let rows: Vec<_> = args
        .ratio
        .iter()
        .map(|&r| (r, capacity_cost(&prices, r)))
        .collect();
    let list: Vec<CapacityRow> = rows
        .iter()
        .map(|(r, c)| CapacityRow {
            ratio: *r,
            tiering_usd_per_tb: c.tiering_usd_per_tb,
            caching_usd_per_tb: c.caching_usd_per_tb,
            difference_usd_per_tb: c.difference(),
        })
        .collect();
    args.json.print(&list, || {
        let cells: Vec<Vec<String>> = rows
            .iter()
            .map(|(r, c)| {
                vec![
                    format!("{r}"),
                    format!("{:.1}", c.tiering_usd_per_tb),
                    format!("{:.1}", c.caching_usd_per_tb),
                    format!("{:.1}", c.difference()),
                    format!("{:.1} %", c.difference() / c.caching_usd_per_tb * 100.0),
                ]
            })
            .collect();
        table(
            &[
                "total/flash",
                "tiering $/TB",
                "caching $/TB",
                "difference",
                "of caching",
            ],
            &cells,
        )
    })
}
