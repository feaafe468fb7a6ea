//! The volume of a run: the slots of each member, and the engine over them.

use std::collections::HashMap;

use isotherm_core::engine::Params;
use isotherm_core::geometry::{Geometry, Kind, Member};
use isotherm_core::load::Cost;
use isotherm_core::policy::{Policy, Uses};
use isotherm_core::store::open::Mode;
use isotherm_core::store::superblock::{self, MemberEntry};
use isotherm_core::store::{BLOCK, Media, MediaError, MetaArea, Superblock, format, open};
use isotherm_core::{Engine, MemberId, Nanos, TierId};
use isotherm_models::{DeviceModel, FlashState, Options, Sheet};

use super::setup::{Device, Setup, check_setting};
use super::spread::Spread;
use super::touched::{Rows, Touched};
use crate::LabError;
use roaring::RoaringTreemap;

use crate::compact::Compact;

/// Most slots of a simulated volume. A run with more would take tens of gigabytes of memory.
pub const SLOTS_MAX: u32 = (1 << 29) - 1;
/// Most fast slots that are kept if the trace touches less than half as many extents.
const FAST_SLOTS_MAX: u64 = 1 << 26;
/// Most concurrent moves.
const MOVES_MAX: u32 = 256;
/// Data begins on the slowest tier at a multiple of this. A volume with a cache keeps more metadata than a disk alone; near saturation the
/// latency would differ if all data were some megabytes further on.
const DATA_FROM: u64 = 64 << 20;
/// The logical block of a simulated volume, as a power of two: the sector.
const BLOCK_SHIFT: u32 = 9;

/// The slots and members that follow from a trace and a setup.
#[derive(Clone, Debug)]
pub struct Shape {
    /// What the places of homes depend on.
    pub kind: Kind,
    /// Rows of the map.
    pub extents: u64,
    /// log2 of the extent size.
    pub shift: u32,
    /// Members by tier.
    pub members: Vec<Place>,
    /// Size of the fastest tier in bytes, as requested.
    pub fast_bytes: u64,
    /// The lowest touched extent, if rows are addresses.
    pub from: Option<u64>,
    /// The touched extents and the ones that separate them, if the policy needs them.
    pub padded: Option<RoaringTreemap>,
}

/// One member.
#[derive(Clone, Debug)]
pub struct Place {
    /// Its tier.
    pub tier: u8,
    /// Its number within the tier.
    pub index: usize,
    /// The name in reports: `fast` and `slow` in a pair, else `tier0`, `tier1.1`, …
    pub name: String,
    /// Its slots.
    pub slots: u32,
}

/// Bytes of a member that are not for slots: its head, and on a disk of a cache volume room for the mark behind the slots.
fn around(entry: &MemberEntry) -> u64 {
    entry.data_offset + u64::from(entry.behind_at > 0) * (DATA_FROM + (4 << 20))
}

impl Shape {
    /// The shape of `setup` on that trace, for a policy that uses the faster tiers in this way. With `gaps`, extents that are not neighbours get rows that are not neighbours, either
    /// ([`Policy::minds_gaps`]).
    ///
    /// # Errors
    /// The trace touches nothing, or too many extents.
    pub fn new(
        setup: &Setup,
        touched: &Touched,
        (uses, gaps): (Uses, bool),
        trace: &str,
    ) -> Result<Shape, LabError> {
        let refuse = |why: &str| LabError::setup(format!("{trace}: {why}"));
        let n = touched.extents.len();
        let (Some(lowest), Some(highest)) = (touched.extents.min(), touched.extents.max()) else {
            return Err(refuse("no request reads or writes anything"));
        };
        // `linear` places data by address. With a single tier there is no choice of place.
        let by_address =
            setup.tiers.len() > 1 && matches!(setup.policy.name.as_str(), "linear" | "mylinear");
        let padded = (gaps && !by_address).then(|| touched.padded());
        let extents = match &padded {
            _ if by_address => highest - lowest + 1,
            Some(p) => p.len(),
            None => n,
        };
        let last = setup.tiers.len() - 1;
        let (mut members, mut slots, mut fast_bytes) = (Vec::new(), 0u64, 0);
        for (t, tier) in setup.tiers.iter().enumerate() {
            let wanted = match tier.size.bytes() {
                Some(bytes) => bytes >> touched.shift,
                None => tier.size.of(n),
            }
            .max(1);
            if t == 0 {
                fast_bytes = wanted.saturating_mul(1 << touched.shift);
            }
            // Watermarks count free slots, so slots beyond the last extent matter. Only absurd sizes are reduced, to save memory.
            let all = if t == last {
                extents
            } else {
                wanted.min(FAST_SLOTS_MAX.max(2 * extents))
            };
            slots += all;
            if slots > u64::from(SLOTS_MAX) {
                return Err(refuse(&format!(
                    "{extents} extents of {} bytes are too many: choose a larger --extent",
                    setup.extent_bytes
                )));
            }
            let devices = tier.devices.len() as u64;
            for i in 0..devices {
                let share = all / devices + u64::from(i < all % devices);
                members.push(Place {
                    tier: t as u8,
                    index: i as usize,
                    name: member_name(setup, t, i as usize),
                    slots: share as u32,
                });
            }
        }
        let kind = if last == 0 {
            Kind::Tiering
        } else {
            uses.volume()
        };
        Ok(Shape {
            kind,
            extents,
            shift: touched.shift,
            members,
            fast_bytes,
            from: by_address.then_some(lowest),
            padded,
        })
    }

    /// The mapping from the extents of the trace to rows.
    pub fn rows(&self, touched: &Touched) -> Rows {
        if let Some(lowest) = self.from {
            return Rows::From {
                lowest,
                extents: self.extents,
            };
        }
        let extents = self.padded.as_ref().unwrap_or(&touched.extents);
        Rows::Compact(Compact::new(extents))
    }

    /// Geometry without metadata, for hit-only runs.
    ///
    /// # Errors
    /// The shape is impossible; the message says why.
    pub fn geometry(&self) -> Result<Geometry, LabError> {
        let member = |p: &Place| Member {
            tier: TierId(p.tier),
            first_slot: 0,
            slots: p.slots,
            data_offset: 0,
            stash: isotherm_core::geometry::Stash::default(),
        };
        Geometry::new(
            self.shift,
            BLOCK_SHIFT,
            self.extents as u32,
            self.members.iter().map(member).collect(),
        )
        .and_then(|g| g.of_kind(self.kind))
        .map_err(LabError::setup)
    }

    fn superblock(&self, policy: &str) -> Superblock {
        let blocks = 1 << (self.shift - BLOCK_SHIFT);
        let last = self.members.last().map_or(0, |m| m.tier);
        let copies = (self.members.iter())
            .filter(|m| m.tier != last)
            .fold(0, |n, m| n + m.slots);
        let extents = self.extents as u32;
        let recorded = self.kind.recorded(extents, copies);
        let area = MetaArea::of(self.kind, recorded, copies, blocks, self.fast_bytes);
        let extent = 1u64 << self.shift;
        let entry = |i: usize, p: &Place| MemberEntry {
            uuid: [i as u8 + 1; 16],
            tier: TierId(p.tier),
            slots: p.slots,
            hint: p.name.clone(),
            ..MemberEntry::default()
        };
        let members = self.members.iter().enumerate();
        let shape = superblock::Shape {
            kind: self.kind,
            extent_shift: self.shift,
            block_shift: BLOCK_SHIFT,
            extents,
            area,
        };
        let members = members.map(|(i, p)| entry(i, p)).collect();
        let sb = Superblock {
            policy: policy.to_owned(),
            name: "lab".to_owned(),
            ..Superblock::new([0xab; 16], 1, shape, members)
        };
        let mut sb = sb.placed(extent.max(1 << 20));
        for (i, m) in sb.members.iter_mut().enumerate() {
            if m.tier.0 == last && m.data_offset > 0 {
                let more = m.data_offset.next_multiple_of(DATA_FROM.max(extent)) - m.data_offset;
                debug_assert!(m.behind_at == 0, "member {i} is no disk of a cache volume");
                m.data_offset += more;
                m.bytes += more;
            }
        }
        sb
    }

    /// The places of the extents on a drive of the slowest tier that has `capacity` bytes.
    fn spread(
        &self,
        slots: core::ops::Range<u64>,
        addresses: &RoaringTreemap,
        capacity: u64,
        entry: &MemberEntry,
        head: u64,
    ) -> Spread {
        let room = capacity.saturating_sub(around(entry)) >> self.shift;
        let disk = Spread::new(slots, addresses, room, entry.data_offset, self.shift);
        disk.with_stash(entry.behind_at, head, DATA_FROM.max(1 << self.shift))
    }

    /// Makes a new volume of this shape: the engine that serves it, and the sheet and bytes of each member.
    ///
    /// # Errors
    /// A drive is too small, or the shape is impossible.
    pub fn build<'a>(
        &self,
        setup: &'a Setup,
        touched: &Touched,
        policy: Box<dyn Policy>,
    ) -> Result<(Engine, Vec<Drive<'a>>), LabError> {
        self.geometry()?;
        let addresses = self.padded.as_ref().unwrap_or(&touched.extents);
        let sb = self.superblock(&setup.policy.to_string());
        let mut drives = Vec::new();
        let last = self.members.last().map_or(0, |m| m.tier);
        // The homes of a cache volume are at their addresses, whether it is new or not.
        let new = setup.begin.new_volume && self.kind == Kind::Tiering;
        let mut first = 0;
        for (p, entry) in self.members.iter().zip(&sb.members) {
            let device = &setup.tiers[usize::from(p.tier)].devices[p.index];
            let sheet = device.sheet_for(entry.bytes)?;
            let given = new && p.tier == last;
            let spread = (p.tier == last && self.from.is_none() && !given).then(|| {
                let slots = first..first + u64::from(p.slots);
                first = slots.end;
                self.spread(slots, addresses, sheet.capacity(), entry, sb.head_bytes())
            });
            drives.push(Drive {
                sheet,
                device,
                tier: p.tier,
                bytes: entry.bytes,
                least: if given {
                    own_bytes(setup, addresses, self.shift)
                } else {
                    0
                },
                spread,
            });
        }
        let mut ram = Ram::default();
        let impossible = |why: String| LabError::setup(format!("the lab's volume: {why}"));
        format(&mut ram, &sb).map_err(|e| impossible(format!("{e:?}")))?;
        let found: Vec<_> = (0..sb.members.len())
            .map(|i| Superblock::decode(ram.block(i as u8, 0)).ok())
            .collect();
        let opened = open(&mut ram, &found, Mode::ReadWrite { epoch: 2 })
            .map_err(|e| impossible(e.to_string()))?;
        let usual = Params::default();
        // A policy may ask for more concurrent moves than a live volume has buffers for (GreenDM's MCML of 64). It gets them here, where no
        // buffer limits them. A policy that asks for fewer, or for nothing, gets the number of a live volume.
        let asked = policy.move_rules().limit.unwrap_or(0).min(MOVES_MAX) as u16;
        let params = Params {
            map_on_read: true,
            own_slots: self.from.is_none() && self.members.len() > 1 && !new,
            move_buffers: Params::buffers_for(1 << self.shift).max(asked),
            unread_metadata: true,
            counter_every: None,
            // In a trace there is no time of a front end between a reply and the next request that a flush could use.
            flush_ahead: 0,
            flush_gather: 0,
            learn_classes: true,
            costs: costs(&drives)?,
            standby_after: drives
                .iter()
                .map(|d| d.device.standby_after_s)
                .map(|s| s.map(|s| Nanos((s * 1e9) as u64)))
                .collect(),
            start_intervals: drives.iter().map(|d| d.sheet.start_interval()).collect(),
            ..usual
        };
        let mut engine = Engine::new(opened, policy, params);
        if setup.begin.full {
            engine.fill();
        }
        for (name, value) in &setup.settings {
            check_setting(name, *value).map_err(LabError::setup)?;
            let set = engine.set(name, *value);
            set.map_err(|e| impossible(format!("{name}: {e:?}")))?;
        }
        engine.promise(setup.qos.clone());
        Ok((engine, drives))
    }
}

/// Bytes of a member of a new volume's slowest tier: as given, or the range of addresses of the trace.
fn own_bytes(setup: &Setup, addresses: &RoaringTreemap, shift: u32) -> u64 {
    let Some(tier) = setup.tiers.last() else {
        return 0;
    };
    let ends = addresses.max().zip(addresses.min());
    let reach = ends.map_or(0, |(max, min)| (max - min + 1) << shift);
    tier.size.bytes().unwrap_or(reach) / tier.devices.len().max(1) as u64
}

/// The costs of the tiers, by the sheet of the first member of each.
fn costs(drives: &[Drive<'_>]) -> Result<Vec<Cost>, LabError> {
    let mut costs = Vec::new();
    for d in drives {
        if usize::from(d.tier) == costs.len() {
            costs.push(d.sheet.cost(&d.options())?);
        }
    }
    Ok(costs)
}

/// The device of a member.
#[derive(Clone, Debug)]
pub struct Drive<'a> {
    /// Its data sheet.
    pub sheet: &'a Sheet,
    /// Its settings.
    pub device: &'a Device,
    /// Its tier.
    pub tier: u8,
    /// Bytes that the volume uses of it.
    pub bytes: u64,
    /// Its size in bytes at least, even if the volume uses less.
    least: u64,
    /// The places of its slots, on the slowest tier.
    pub(super) spread: Option<Spread>,
}

impl<'a> Drive<'a> {
    /// The first `bytes` of a device.
    pub fn new(device: &'a Device, sheet: &'a Sheet, bytes: u64) -> Drive<'a> {
        Drive {
            sheet,
            device,
            tier: 0,
            bytes,
            least: 0,
            spread: None,
        }
    }

    /// As [`Drive::new`], on a tier of a volume.
    pub(super) fn on_tier(device: &'a Device, sheet: &'a Sheet, bytes: u64, tier: u8) -> Drive<'a> {
        Drive {
            tier,
            ..Drive::new(device, sheet, bytes)
        }
    }

    fn options(&self) -> Options {
        Options {
            size: self.reach().max(self.least),
            ..self.device.options
        }
    }
    /// The initial state of its flash: as requested, or ideal if the sheet has no flash layer.
    pub fn flash_state(&self) -> FlashState {
        let ftl = self.sheet.ssd.as_ref().and_then(|s| s.ftl.as_ref());
        ftl.map_or(FlashState::Ideal, |_| self.device.options.flash)
    }
    /// Bytes up to the last one in use.
    pub fn reach(&self) -> u64 {
        self.spread.as_ref().map_or(self.bytes, Spread::end)
    }
    /// Makes its model.
    ///
    /// # Errors
    /// An option does not fit the sheet.
    pub fn model(&self) -> Result<Box<dyn DeviceModel>, LabError> {
        Ok(self.sheet.model(&self.options())?)
    }
}

pub(super) fn member_name(setup: &Setup, tier: usize, index: usize) -> String {
    let alone = setup.tiers[tier].devices.len() == 1;
    match (setup.tiers.len(), tier, alone) {
        (1, _, true) => "only".to_owned(),
        (2, 0, true) => "fast".to_owned(),
        (2, 1, true) => "slow".to_owned(),
        (_, t, true) => format!("tier{t}"),
        (_, t, false) => format!("tier{t}.{index}"),
    }
}

/// Metadata blocks while a volume is created and opened. The models compute the time of later writes of the engine, and their bytes are
/// dropped, because nothing reads the journal of a run.
#[derive(Default)]
struct Ram {
    blocks: HashMap<(u8, u64), Vec<u8>>,
}

const ZEROS: [u8; BLOCK] = [0; BLOCK];

impl Ram {
    fn block(&self, m: u8, offset: u64) -> &[u8] {
        self.blocks.get(&(m, offset)).map_or(&ZEROS, Vec::as_slice)
    }
}

impl Media for Ram {
    fn read(&mut self, m: MemberId, offset: u64, buf: &mut [u8]) -> Result<(), MediaError> {
        for (i, b) in buf.chunks_mut(BLOCK).enumerate() {
            b.copy_from_slice(self.block(m.0, offset + (i * BLOCK) as u64));
        }
        Ok(())
    }
    fn write(&mut self, m: MemberId, offset: u64, buf: &[u8]) -> Result<(), MediaError> {
        for (i, b) in buf.chunks(BLOCK).enumerate() {
            self.blocks
                .insert((m.0, offset + (i * BLOCK) as u64), b.to_vec());
        }
        Ok(())
    }
    fn flush(&mut self, _m: MemberId) -> Result<(), MediaError> {
        Ok(())
    }
}
