//! The places of bytes on the platters, and the time that the arm takes to reach them.

use super::HddSheet;
use isotherm_core::divide::Divisor;

/// Zones with an equal number of cylinders each. More zones would change nothing that a volume can observe.
const ZONES: u32 = 16;

/// Entries of the lookup table for zones. An entry is smaller than every zone, so it meets at most two.
const LOOKUP: usize = 256;

/// Entries of the table of shortest seeks, each for an equal range of distances.
const DISTANCES: u32 = 512;

/// The place of a byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    pub cylinder: u32,
    /// Counted over the whole drive.
    pub track: u64,
    /// Bytes from the start of the track.
    pub within: u64,
    /// Bytes on this track.
    pub track_bytes: u64,
    pub per_track: Divisor,
    /// The angle of the revolution at which the byte is under the head, 0 ≤ angle < `rev_ns`.
    pub angle: u64,
}

#[derive(Clone, Copy, Debug)]
struct Zone {
    first_byte: u64,
    first_track: u64,
    track_bytes: u64,
    per_track: Divisor,
}

/// Tracks fill cylinder by cylinder: all heads of one cylinder before the next. Each track starts `skew_ns` later than the previous one.
/// This is the time that a sequential run needs to change tracks without missing a revolution.
#[derive(Clone, Debug)]
pub(crate) struct Geometry {
    zones: Vec<Zone>,
    /// The zone of the first byte of each of `LOOKUP` equal pieces. A search of the zones would take most of the time.
    zone_of: [u8; LOOKUP],
    zone_shift: u32,
    heads: Divisor,
    cylinders: f64,
    revolution: Divisor,
    pub rev_ns: u64,
    pub skew_ns: u64,
    seek_a: f64,
    seek_b: f64,
    seek_c: f64,
    /// For each range of distances a lower bound of the time of a seek, and the width of a range as a shift.
    least_seek: Vec<u64>,
    distance_shift: u32,
}

impl Geometry {
    pub fn new(sheet: &HddSheet) -> Geometry {
        let rev_ns = (60e9 / sheet.rpm).round() as u64;
        let skew_ns = (sheet.skew_ms * 1e6) as u64;
        let heads = u64::from(sheet.heads);
        // The published sustained rate includes track changes, so the data on a track passes faster than that rate.
        let track_bytes = |zone: u32| {
            let f = f64::from(zone) / f64::from(ZONES - 1);
            let rate = sheet.outer_mb_s + f * (sheet.inner_mb_s - sheet.outer_mb_s);
            (rate * 1e-3 * (rev_ns + skew_ns) as f64) as u64 / 512 * 512
        };
        let one_cylinder_of_each: u64 = (0..ZONES).map(|z| heads * track_bytes(z)).sum();
        let per_zone = sheet.capacity.div_ceil(one_cylinder_of_each).max(1);
        let mut zones = Vec::with_capacity(ZONES as usize);
        let mut first_byte = 0;
        for z in 0..ZONES {
            let tb = track_bytes(z);
            zones.push(Zone {
                first_byte,
                first_track: u64::from(z) * per_zone * heads,
                track_bytes: tb,
                per_track: Divisor::new(tb),
            });
            first_byte += per_zone * heads * tb;
        }
        // t(x) = a + b√x + cx over the stroke x in 0…1. Uniform random seeks have density 2(1-x), so √x averages 8/15
        // and x 1/3; the three published figures fix a, b and c (the fit of Lee and Katz, SIGMETRICS 1993).
        let (min, avg, max) = (
            sheet.track_to_track_ms,
            sheet.average_seek_ms,
            sheet.full_stroke_ms,
        );
        let b = (15.0 * avg - 10.0 * min - 5.0 * max) / 3.0;
        let c = max - min - b;
        let zone_shift = (first_byte / LOOKUP as u64).max(1).ilog2() + 1;
        let zone_of = core::array::from_fn(|i| {
            let byte = (i as u64) << zone_shift;
            zones
                .iter()
                .rposition(|z: &Zone| z.first_byte <= byte)
                .unwrap_or(0) as u8
        });
        let mut new = Geometry {
            zones,
            zone_of,
            zone_shift,
            heads: Divisor::new(heads),
            revolution: Divisor::new(rev_ns),
            cylinders: (per_zone * u64::from(ZONES)) as f64,
            rev_ns,
            skew_ns,
            seek_a: min * 1e6,
            seek_b: b * 1e6,
            seek_c: c * 1e6,
            least_seek: Vec::new(),
            distance_shift: 0,
        };
        new.bound_seeks();
        new
    }

    /// Fills the table of shortest seeks. If `b` is not negative, the curve is concave, so that its minimum over a range is at one of the
    /// ends. The two nanoseconds allow for rounding.
    fn bound_seeks(&mut self) {
        let last = (self.cylinders as u32).max(1);
        self.distance_shift = (last / DISTANCES).max(1).ilog2() + 1;
        let shift = self.distance_shift;
        let bound = |i: u32| {
            let (first, end) = (i << shift, ((i + 1) << shift) - 1);
            if i == 0 || self.seek_b < 0.0 {
                return 0;
            }
            let both = self.curve_ns(first).min(self.curve_ns(end));
            both.saturating_sub(2)
        };
        self.least_seek = (0..=last >> shift).map(bound).collect();
    }

    /// A lower bound of [`Geometry::seek_ns`] between two cylinders, without divisions and roots.
    #[inline]
    pub fn least_seek_ns(&self, from: u32, to: u32) -> u64 {
        let range = from.abs_diff(to) >> self.distance_shift;
        self.least_seek.get(range as usize).copied().unwrap_or(0)
    }

    /// The seek curve at a distance of `d` cylinders, one or more.
    #[inline]
    fn curve_ns(&self, d: u32) -> u64 {
        let x = f64::from(d) / self.cylinders;
        (self.seek_a + self.seek_b * x.sqrt() + self.seek_c * x) as u64
    }

    #[inline]
    pub fn locate(&self, offset: u64) -> Place {
        let guess =
            self.zone_of[(offset >> self.zone_shift).min(LOOKUP as u64 - 1) as usize] as usize;
        let next = self.zones.get(guess + 1).map_or(u64::MAX, |z| z.first_byte);
        let zone = &self.zones[guess + usize::from(offset >= next)];
        let rel = offset - zone.first_byte;
        let (track_in_zone, within) = zone.per_track.div_rem(rel);
        let track = zone.first_track + track_in_zone;
        let turned = zone.per_track.div_rem(within * self.rev_ns).0 + track * self.skew_ns;
        Place {
            cylinder: self.heads.div_rem(track).0 as u32,
            track,
            within,
            track_bytes: zone.track_bytes,
            per_track: zone.per_track,
            angle: self.revolution.div_rem(turned).1,
        }
    }

    /// The place `len` bytes after `place`, whose first byte is `offset`. Its angle is not computed.
    #[inline]
    pub fn after(&self, place: &Place, offset: u64, len: u64, capacity: u64) -> Place {
        if place.within + len < place.track_bytes {
            return Place {
                within: place.within + len,
                ..*place
            };
        }
        self.locate((offset + len).min(capacity - 1))
    }

    /// Time of the arm movement from `from` to `to`; zero within a track.
    #[inline]
    pub fn seek_ns(&self, from: (u32, u64), to: &Place) -> u64 {
        let d = from.0.abs_diff(to.cylinder);
        if d == 0 {
            // Another head of the same cylinder: switching and a small correction, which the skew hides.
            return if from.1 == to.track {
                0
            } else {
                self.skew_ns / 2
            };
        }
        self.curve_ns(d)
    }

    /// The angle of the platter at `t`.
    #[inline]
    pub fn turned(&self, t: u64) -> u64 {
        self.revolution.div_rem(t).1
    }

    /// Time from `at` until `angle` is under the head.
    #[inline]
    pub fn rotation_ns(&self, at: u64, angle: u64) -> u64 {
        self.wait_ns(self.turned(at), angle)
    }

    /// The wait for `angle` that is left `later` nanoseconds after the platter was at `here`.
    #[inline]
    pub fn wait_after(&self, here: u64, later: u64, angle: u64) -> u64 {
        let sum = here + later;
        // Seeks take a few revolutions at most, and delays in the queue less: 32 bits are enough, and divide faster.
        let now = match (u32::try_from(sum), u32::try_from(self.rev_ns)) {
            (Ok(sum), Ok(rev)) => u64::from(sum % rev),
            _ => self.turned(sum),
        };
        self.wait_ns(now, angle)
    }

    /// Time from the platter at `here` until `angle` is under the head.
    #[inline]
    pub fn wait_ns(&self, here: u64, angle: u64) -> u64 {
        let wait = if angle >= here {
            angle - here
        } else {
            angle + self.rev_ns - here
        };
        // Angles are rounded down to a nanosecond. Without this tolerance a run could lose a revolution to rounding.
        if wait + 1_000 >= self.rev_ns { 0 } else { wait }
    }

    /// Media time of `len` bytes from `place` on, including track changes.
    #[inline]
    pub fn transfer_ns(&self, place: &Place, len: u64) -> u64 {
        let last = place.within + len.max(1) - 1;
        let crossings = if last < place.track_bytes {
            0
        } else {
            place.per_track.div_rem(last).0
        };
        place.per_track.div_rem(len * self.rev_ns).0 + crossings * self.skew_ns
    }

    /// The number of bytes from `place` on that pass the head in `ns`.
    pub fn bytes_passed(&self, place: &Place, ns: u64) -> u64 {
        (ns as f64 * place.track_bytes as f64 / (self.rev_ns + self.skew_ns) as f64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bound holds at every distance and is close to the seek, for all disks in the tree.
    #[test]
    fn no_seek_is_shorter_than_its_bound() {
        let mut disks = 0;
        for sheet in crate::presets()
            .unwrap()
            .iter()
            .filter_map(|s| s.hdd.as_ref())
        {
            let g = Geometry::new(sheet);
            disks += 1;
            let last = g.cylinders as u32;
            let mut far = 0;
            for d in 1..last {
                let to = Place {
                    cylinder: d,
                    ..Place::default()
                };
                let (seek, bound) = (g.seek_ns((0, 0), &to), g.least_seek_ns(0, d));
                assert!(bound <= seek, "{d} cylinders: {seek} ns, at least {bound}");
                far += u32::from(bound * 10 < seek * 9);
            }
            assert!(far < last / 20, "{far} of {last} bounds are far below");
        }
        assert!(disks > 3);
    }
}
