//! Series over time, and accesses by time and address. Only sums are kept, so that neighbouring bins can be merged when a run turns out to
//! be longer than expected.

use isotherm_core::geometry::TIERS_MAX;
use isotherm_core::stats::Counters as EngineCounters;
use isotherm_models::{Counters, DeviceModel};
use serde::Serialize;

use super::setup::Observe;

/// Initial length of a bin in nanoseconds.
const FIRST_BIN: u64 = 1_000_000;
/// Number of size bins. Sizes are counted by powers of two, from 512 B (including everything smaller) to 32 MiB (including everything
/// larger).
pub const SIZE_BINS: usize = 17;

/// Figures besides the totals. All vectors over time have one entry per bin.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Series {
    /// Length of a bin in seconds.
    pub bin_s: f64,
    /// Requests that were answered.
    pub requests: Vec<u64>,
    /// Bytes of these requests.
    pub bytes: Vec<u64>,
    /// Mean latency of these requests in seconds.
    pub latency_mean_s: Vec<f64>,
    /// Requests by the bin in which they arrived: by the trace's clock these are the same requests in every run.
    pub arrivals: Vec<u64>,
    /// Mean latency of these in seconds.
    pub arrivals_latency_mean_s: Vec<f64>,
    /// Extent accesses.
    pub accesses: Vec<u64>,
    /// Extent accesses that were hits on tier 0.
    pub fast_hits: Vec<u64>,
    /// Promotions that ended.
    pub promotions: Vec<u64>,
    /// Demotions that ended.
    pub demotions: Vec<u64>,
    /// Bytes that were moved.
    pub migrated_bytes: Vec<u64>,
    /// Series of each member.
    pub members: Vec<MemberSeries>,
    /// Accesses by time and address; a row is a time bin, a column an address bin.
    pub heat: Option<Heat>,
    /// Sizes of the trace's reads and writes, before they were split at extents, by power of two from 512 B.
    pub request_sizes: Vec<u64>,
    /// Sizes of the resulting device operations per tier, with neighbours on a device merged.
    pub operation_sizes: Vec<Vec<u64>>,
}

/// One member over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MemberSeries {
    /// Its name.
    pub name: String,
    /// Its tier.
    pub tier: u8,
    /// Mean power per bin in watts.
    pub power_w: Vec<f64>,
    /// Arm movements.
    pub seeks: Vec<u64>,
    /// Mean seek distance in cylinders.
    pub seek_distance: Vec<f64>,
    /// Bytes that were read and written.
    pub bytes: Vec<u64>,
}

/// Accesses by time and address.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Heat {
    /// Size of an address bin in bytes.
    pub bin_bytes: u64,
    /// Foreground device operations by time bin and address bin.
    pub operations: Vec<Vec<u64>>,
    /// The share of these operations that each tier served, by tier, time bin and address bin.
    pub share: Vec<Vec<Vec<f32>>>,
    /// Operations by tier and address bin over the whole run (GreenDM 6.4).
    pub by_tier: Vec<Vec<u64>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Bin {
    requests: u64,
    bytes: u64,
    latency: u64,
    arrivals: u64,
    arrivals_latency: u64,
    accesses: u64,
    hits: u64,
    up: u64,
    down: u64,
    migrated: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct DeviceBin {
    energy_j: f64,
    seeks: u64,
    distance: u64,
    bytes: u64,
}

/// Counters of the engine that only grow, read at the end of a bin.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub accesses: u64,
    pub hits: u64,
    pub up: u64,
    pub down: u64,
    pub migrated: u64,
}

impl Totals {
    /// Taken from the engine's counters.
    pub fn of(c: &EngineCounters) -> Totals {
        Totals {
            accesses: c.accesses,
            hits: c.tier_hits[0],
            up: c.promotions.done,
            down: c.demotions.done,
            migrated: c.migrated_bytes,
        }
    }
}

/// Collects a [`Series`].
#[derive(Debug)]
pub(crate) struct Observer {
    start: u64,
    bin: u64,
    bins_max: usize,
    columns: usize,
    column_shift: u32,
    tiers: usize,
    bins: Vec<Bin>,
    devices: Vec<Vec<DeviceBin>>,
    /// Time bin × address bin × tier.
    heat: Vec<u32>,
    request_sizes: [u64; SIZE_BINS],
    operation_sizes: Vec<[u64; SIZE_BINS]>,
    before: Totals,
    before_devices: Vec<DeviceBin>,
}

fn size_bin(bytes: u32) -> usize {
    (bytes.max(512).ilog2() as usize - 9).min(SIZE_BINS - 1)
}

fn device_bin(c: &Counters) -> DeviceBin {
    DeviceBin {
        energy_j: c.energy_j(),
        seeks: c.seeks,
        distance: c.seek_distance,
        bytes: c.bytes_read + c.bytes_written,
    }
}

impl Observer {
    pub fn new(of: Observe, volume_bytes: u64, tiers: usize, members: usize) -> Observer {
        let columns = of.address_bins as usize;
        // The size of an address bin is a power of two, so that a shift finds the bin of an address.
        let column_shift = volume_bytes
            .div_ceil(u64::from(of.address_bins.max(1)))
            .max(512)
            .next_power_of_two()
            .ilog2();
        Observer {
            start: 0,
            bin: FIRST_BIN,
            bins_max: 2 * of.time_bins.max(1) as usize,
            columns,
            column_shift,
            tiers: tiers.min(TIERS_MAX),
            bins: vec![Bin::default()],
            devices: vec![vec![DeviceBin::default()]; members],
            heat: vec![0; columns * tiers.min(TIERS_MAX)],
            request_sizes: [0; SIZE_BINS],
            operation_sizes: vec![[0; SIZE_BINS]; tiers],
            before: Totals::default(),
            before_devices: vec![DeviceBin::default(); members],
        }
    }

    /// Starts counting at this time.
    pub fn begin(&mut self, now: u64, totals: Totals, devices: &[Counters]) {
        self.start = now;
        self.before = totals;
        self.before_devices = devices.iter().map(device_bin).collect();
        self.bins = vec![Bin::default()];
        for d in &mut self.devices {
            *d = vec![DeviceBin::default()];
        }
        self.heat.truncate(self.columns * self.tiers);
        self.heat.fill(0);
        self.request_sizes = [0; SIZE_BINS];
        self.operation_sizes.fill([0; SIZE_BINS]);
    }

    /// The end of the current bin.
    pub fn boundary(&self) -> u64 {
        self.start + self.bins.len() as u64 * self.bin
    }

    /// Closes the current bin, which ended at `at` (its boundary, or the end of the run).
    pub fn close_bin(&mut self, totals: Totals, devices: &[Counters]) {
        self.sample(totals, devices);
        self.bins.push(Bin::default());
        for d in &mut self.devices {
            d.push(DeviceBin::default());
        }
        self.heat
            .resize(self.bins.len() * self.columns * self.tiers, 0);
        if self.bins.len() > self.bins_max {
            self.fold();
        }
    }

    fn sample(&mut self, t: Totals, devices: &[Counters]) {
        let b = self.before;
        if let Some(bin) = self.bins.last_mut() {
            bin.accesses += t.accesses - b.accesses;
            bin.hits += t.hits - b.hits;
            bin.up += t.up - b.up;
            bin.down += t.down - b.down;
            bin.migrated += t.migrated - b.migrated;
        }
        self.before = t;
        for ((series, before), now) in self
            .devices
            .iter_mut()
            .zip(&mut self.before_devices)
            .zip(devices.iter().map(device_bin))
        {
            if let Some(d) = series.last_mut() {
                d.energy_j += now.energy_j - before.energy_j;
                d.seeks += now.seeks - before.seeks;
                d.distance += now.distance - before.distance;
                d.bytes += now.bytes - before.bytes;
            }
            *before = now;
        }
    }

    /// Merges neighbouring bins. The current bin becomes the second half of a bin, or the first half of a new one.
    fn fold(&mut self) {
        self.bin *= 2;
        let n = self.bins.len().div_ceil(2);
        for i in 0..n {
            let b = self.bins.get(2 * i + 1).copied().unwrap_or_default();
            let a = self.bins[2 * i];
            self.bins[i] = Bin {
                requests: a.requests + b.requests,
                bytes: a.bytes + b.bytes,
                latency: a.latency + b.latency,
                arrivals: a.arrivals + b.arrivals,
                arrivals_latency: a.arrivals_latency + b.arrivals_latency,
                accesses: a.accesses + b.accesses,
                hits: a.hits + b.hits,
                up: a.up + b.up,
                down: a.down + b.down,
                migrated: a.migrated + b.migrated,
            };
            for d in &mut self.devices {
                let b = d.get(2 * i + 1).copied().unwrap_or_default();
                let a = d[2 * i];
                d[i] = DeviceBin {
                    energy_j: a.energy_j + b.energy_j,
                    seeks: a.seeks + b.seeks,
                    distance: a.distance + b.distance,
                    bytes: a.bytes + b.bytes,
                };
            }
            let row = self.columns * self.tiers;
            for c in 0..row {
                let b = self.heat.get((2 * i + 1) * row + c).copied().unwrap_or(0);
                self.heat[i * row + c] = self.heat[2 * i * row + c].saturating_add(b);
            }
        }
        self.bins.truncate(n);
        for d in &mut self.devices {
            d.truncate(n);
        }
        self.heat.truncate(n * self.columns * self.tiers);
    }

    pub fn request(&mut self, len: u32) {
        self.request_sizes[size_bin(len)] += 1;
    }

    pub fn operation(&mut self, tier: u8, volume_offset: u64, len: u32) {
        let tier = usize::from(tier);
        self.operation_sizes[tier][size_bin(len)] += 1;
        if self.columns > 0 {
            let column = ((volume_offset >> self.column_shift) as usize).min(self.columns - 1);
            let row = (self.bins.len() - 1) * self.columns;
            let cell = &mut self.heat[(row + column) * self.tiers + tier];
            *cell = cell.saturating_add(1);
        }
    }

    /// A request of `bytes` bytes that arrived at `arrived` is answered after `latency` nanoseconds.
    pub fn reply(&mut self, arrived: u64, latency: u64, bytes: u32) {
        if let Some(b) = self.bins.last_mut() {
            b.requests += 1;
            b.bytes += u64::from(bytes);
            b.latency += latency;
        }
        let bin = (arrived.saturating_sub(self.start) / self.bin) as usize;
        if let Some(b) = self.bins.get_mut(bin) {
            b.arrivals += 1;
            b.arrivals_latency += latency;
        }
    }

    /// Finishes the series of a run that ended at `now`.
    pub fn finish(
        mut self,
        now: u64,
        totals: Totals,
        devices: &[Counters],
        members: &[(String, u8)],
    ) -> Series {
        self.sample(totals, devices);
        let bin_s = self.bin as f64 / 1e9;
        let last = self.bins.len() - 1;
        let last_s = (now.saturating_sub(self.start + last as u64 * self.bin)).max(1) as f64 / 1e9;
        let each = |f: fn(&Bin) -> u64| self.bins.iter().map(f).collect::<Vec<_>>();
        let mean = |sum: f64, n: u64| if n == 0 { 0.0 } else { sum / n as f64 };
        Series {
            bin_s,
            requests: each(|b| b.requests),
            bytes: each(|b| b.bytes),
            latency_mean_s: self
                .bins
                .iter()
                .map(|b| mean(b.latency as f64 / 1e9, b.requests))
                .collect(),
            arrivals: each(|b| b.arrivals),
            arrivals_latency_mean_s: self
                .bins
                .iter()
                .map(|b| mean(b.arrivals_latency as f64 / 1e9, b.arrivals))
                .collect(),
            accesses: each(|b| b.accesses),
            fast_hits: each(|b| b.hits),
            promotions: each(|b| b.up),
            demotions: each(|b| b.down),
            migrated_bytes: each(|b| b.migrated),
            members: self
                .devices
                .iter()
                .zip(members)
                .map(|(d, (name, tier))| MemberSeries {
                    name: name.clone(),
                    tier: *tier,
                    power_w: d
                        .iter()
                        .enumerate()
                        .map(|(i, x)| x.energy_j / if i == last { last_s } else { bin_s })
                        .collect(),
                    seeks: d.iter().map(|x| x.seeks).collect(),
                    seek_distance: d.iter().map(|x| mean(x.distance as f64, x.seeks)).collect(),
                    bytes: d.iter().map(|x| x.bytes).collect(),
                })
                .collect(),
            heat: (self.columns > 0).then(|| self.heat()),
            request_sizes: self.request_sizes.to_vec(),
            operation_sizes: self.operation_sizes.iter().map(|s| s.to_vec()).collect(),
        }
    }

    fn heat(&self) -> Heat {
        let cell = |t: usize, c: usize, tier: usize| {
            u64::from(self.heat[(t * self.columns + c) * self.tiers + tier])
        };
        let (times, columns, tiers) = (0..self.bins.len(), 0..self.columns, 0..self.tiers);
        let all = |t, c| tiers.clone().map(|i| cell(t, c, i)).sum::<u64>();
        Heat {
            bin_bytes: 1 << self.column_shift,
            operations: times
                .clone()
                .map(|t| columns.clone().map(|c| all(t, c)).collect())
                .collect(),
            share: tiers
                .clone()
                .map(|i| {
                    let row = |t| {
                        let share = |c| cell(t, c, i) as f32 / all(t, c).max(1) as f32;
                        columns.clone().map(share).collect()
                    };
                    times.clone().map(row).collect()
                })
                .collect(),
            by_tier: tiers
                .clone()
                .map(|i| {
                    let sum = |c| times.clone().map(|t| cell(t, c, i)).sum();
                    columns.clone().map(sum).collect()
                })
                .collect(),
        }
    }
}

/// The counters of the devices at `now`.
pub(crate) fn device_counters<'a>(
    models: impl Iterator<Item = &'a dyn DeviceModel>,
    now: isotherm_core::Nanos,
) -> Vec<Counters> {
    models.map(|m| m.counters(now)).collect()
}
