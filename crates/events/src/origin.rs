//! The state from which an engine started: metadata as it was read at opening, parameters, policy.

use crate::numbers::{Bad, Cursor, put, put_bytes};
use isotherm_core::load::Cost;
use isotherm_core::store::{BLOCK, Media, MediaError};
use isotherm_core::{MemberId, Nanos, Params};
use std::collections::BTreeMap;

/// Members at most.
const MEMBERS_MAX: u64 = 256;
/// Longest text.
const TEXT_MAX: usize = 1 << 16;
/// Size of a state block's payload at which a new block begins.
const STATE_BLOCK: usize = 256 << 10;

/// The start of an engine, except for [`Image`].
#[derive(Clone, Debug)]
pub struct Origin {
    /// Program and version that made the recording.
    pub program: String,
    /// Name of the volume.
    pub volume: String,
    /// `name,key=value…`.
    pub policy: String,
    /// Epoch of the session; `None` if opened to read only.
    pub epoch: Option<u64>,
    /// [`isotherm_core::store::Opened::time_base`] as the engine got it.
    pub time_base: Nanos,
    /// The engine's parameters.
    pub params: Params,
    /// The superblock by which each member was opened, encoded. `None` for a member that was absent.
    pub superblocks: Vec<Option<Vec<u8>>>,
}

/// Metadata blocks as they were read at opening. A block that is not listed reads as zeros.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    blocks: BTreeMap<(u8, u64), Box<[u8]>>,
    /// Reads that failed: member, offset, length.
    failed: Vec<(u8, u64, u32)>,
}

impl Image {
    /// A read at `offset` of `member` returned `bytes`. For each block only the first read is kept, because later reads may see what was
    /// written since.
    pub fn saw(&mut self, member: MemberId, offset: u64, bytes: &[u8]) {
        for (i, b) in bytes.chunks_exact(BLOCK).enumerate() {
            let at = (member.0, offset / BLOCK as u64 + i as u64);
            self.blocks.entry(at).or_insert_with(|| b.into());
        }
    }

    /// A read failed.
    pub fn failed(&mut self, member: MemberId, offset: u64, len: usize) {
        self.failed.push((member.0, offset, len as u32));
    }

    /// Drops blocks of zeros, because absent blocks read the same. To be called after the last read.
    pub fn tidy(&mut self) {
        self.blocks.retain(|_, b| b.iter().any(|x| *x != 0));
    }

    /// Blocks held.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Whether no block is held.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.failed.is_empty()
    }

    /// Encodes the image as payloads of state blocks.
    pub(super) fn encode(
        &self,
        mut block: impl FnMut(&[u8]) -> std::io::Result<()>,
    ) -> std::io::Result<()> {
        let mut out = Vec::new();
        for (member, offset, len) in &self.failed {
            out.extend_from_slice(&[2, *member]);
            put(&mut out, *offset);
            put(&mut out, u64::from(*len));
        }
        for ((member, at), bytes) in &self.blocks {
            // Primary and mirror have many equal blocks.
            let twin = (0..*member).find(|m| self.blocks.get(&(*m, *at)) == Some(bytes));
            out.extend_from_slice(&[u8::from(twin.is_some()), *member]);
            put(&mut out, *at);
            match twin {
                Some(m) => out.push(m),
                None => out.extend_from_slice(bytes),
            }
            if out.len() >= STATE_BLOCK {
                block(&out)?;
                out.clear();
            }
        }
        if out.is_empty() { Ok(()) } else { block(&out) }
    }

    /// Decodes one more state block.
    pub(super) fn decode(&mut self, payload: &[u8]) -> Result<(), Bad> {
        let mut c = Cursor::new(payload);
        while !c.is_empty() {
            let (kind, member) = (c.byte()?, c.byte()?);
            match kind {
                0 | 1 => {
                    let at = c.number()?;
                    let bytes: Box<[u8]> = if kind == 0 {
                        c.take(BLOCK)?.into()
                    } else {
                        let twin = c.byte()?;
                        self.blocks
                            .get(&(twin, at))
                            .ok_or("a block is equal to one that is not there")?
                            .clone()
                    };
                    self.blocks.insert((member, at), bytes);
                }
                2 => self.failed.push((member, c.number()?, c.narrow()?)),
                _ => return Err("an unknown piece of state"),
            }
        }
        Ok(())
    }
}

/// The devices as the opening of the engine saw them.
impl Media for Image {
    fn read(&mut self, member: MemberId, offset: u64, buf: &mut [u8]) -> Result<(), MediaError> {
        if self.failed.contains(&(member.0, offset, buf.len() as u32)) {
            return Err(MediaError { member, offset });
        }
        for (i, b) in buf.chunks_mut(BLOCK).enumerate() {
            match self
                .blocks
                .get(&(member.0, offset / BLOCK as u64 + i as u64))
            {
                Some(block) => b.copy_from_slice(&block[..b.len()]),
                None => b.fill(0),
            }
        }
        Ok(())
    }

    fn write(&mut self, member: MemberId, offset: u64, buf: &[u8]) -> Result<(), MediaError> {
        for (i, b) in buf.chunks_exact(BLOCK).enumerate() {
            let at = (member.0, offset / BLOCK as u64 + i as u64);
            self.blocks.insert(at, b.into());
        }
        Ok(())
    }

    fn flush(&mut self, _member: MemberId) -> Result<(), MediaError> {
        Ok(())
    }
}

/// Writes `None` as 0 and a number as the number plus 1.
fn put_option(out: &mut Vec<u8>, n: Option<u64>) {
    out.push(u8::from(n.is_some()));
    if let Some(n) = n {
        put(out, n);
    }
}

fn option(c: &mut Cursor<'_>) -> Result<Option<u64>, Bad> {
    match c.byte()? {
        0 => Ok(None),
        1 => c.number().map(Some),
        _ => Err("neither there nor absent"),
    }
}

/// Whether writes are kept, and whether there is a keeper.
fn keeping(c: &mut Cursor<'_>) -> Result<(bool, bool), Bad> {
    match c.byte()? {
        how @ 0..=3 => Ok((how & 1 != 0, how & 2 != 0)),
        _ => Err("an unknown way to keep writes"),
    }
}

fn flag(c: &mut Cursor<'_>) -> Result<bool, Bad> {
    match c.byte()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err("neither yes nor no"),
    }
}

/// Parameters that were added to the format later. They are stored at the end, and only if one of them is set.
fn budgets(p: &Params) -> [Option<u64>; 7] {
    [
        p.moves_max.map(u64::from),
        p.wear_bytes_per_day,
        Some(p.wear_burst.0),
        p.sleep_hold.map(|t| t.0),
        p.sleep_hold_bytes,
        Some(p.join_bytes),
        Some(p.join_time.0),
    ]
}

/// The parameters of sleep that were added last: powers of the tiers, and budgets. Absent if nothing is known and nothing set.
#[derive(Default, PartialEq)]
struct Sleeping {
    /// By tier: idle power and power in standby, µW; time, ns, and energy, µJ, to standby.
    powers: Vec<[u64; 4]>,
    start_intervals: Vec<Option<u64>>,
    start_interval: Option<u64>,
    wait_share: Option<u64>,
}

impl Sleeping {
    fn of(p: &Params) -> Sleeping {
        let powers = |c: &Cost| [c.idle_uw, c.standby_uw, c.down.0, c.down_uj];
        let powers: Vec<_> = p.costs.iter().map(powers).collect();
        let none = powers.iter().flatten().all(|&n| n == 0);
        Sleeping {
            powers: if none { Vec::new() } else { powers },
            start_intervals: p.start_intervals.iter().map(|t| t.map(|t| t.0)).collect(),
            start_interval: p.sleep_start_interval.map(|t| t.0),
            wait_share: p.sleep_wait_share.map(u64::from),
        }
    }
    fn encode(&self, out: &mut Vec<u8>) {
        put(out, self.powers.len() as u64);
        for n in self.powers.iter().flatten() {
            put(out, *n);
        }
        put(out, self.start_intervals.len() as u64);
        for t in &self.start_intervals {
            put_option(out, *t);
        }
        put_option(out, self.start_interval);
        put_option(out, self.wait_share);
    }
    fn decode(c: &mut Cursor<'_>, p: &mut Params) -> Result<(), Bad> {
        for tier in 0..count(c)? {
            let [idle, standby, down, down_uj] =
                [c.number()?, c.number()?, c.number()?, c.number()?];
            let at = usize::try_from(tier).unwrap_or(usize::MAX);
            let cost = p
                .costs
                .get_mut(at)
                .ok_or("powers of a tier without costs")?;
            (cost.idle_uw, cost.standby_uw) = (idle, standby);
            (cost.down, cost.down_uj) = (Nanos(down), down_uj);
        }
        p.start_intervals = (0..count(c)?)
            .map(|_| Ok(option(c)?.map(Nanos)))
            .collect::<Result<_, Bad>>()?;
        p.sleep_start_interval = option(c)?.map(Nanos);
        p.sleep_wait_share = option(c)?
            .map(|n| u32::try_from(n).map_err(|_| "too large a share"))
            .transpose()?;
        Ok(())
    }
}

/// How many numbers a tier's cost consists of, without the powers of [`Sleeping`].
const COST: usize = 11;

fn cost(c: Cost) -> [u64; COST] {
    [
        c.read.0,
        c.write.0,
        c.sequential.0,
        c.read_byte_ps,
        c.write_byte_ps,
        c.read_nj,
        c.write_nj,
        c.byte_pj,
        c.wear_byte_fusd,
        c.wake.0,
        c.wake_uj,
    ]
}

fn cost_of(n: [u64; COST]) -> Cost {
    let [read, write, sequential, read_byte_ps, write_byte_ps, ..] = n;
    let [
        ..,
        read_nj,
        write_nj,
        byte_pj,
        wear_byte_fusd,
        wake,
        wake_uj,
    ] = n;
    Cost {
        read: Nanos(read),
        write: Nanos(write),
        sequential: Nanos(sequential),
        read_byte_ps,
        write_byte_ps,
        read_nj,
        write_nj,
        byte_pj,
        wear_byte_fusd,
        wake: Nanos(wake),
        wake_uj,
        ..Cost::SLOW
    }
}

impl Origin {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for text in [&self.program, &self.volume, &self.policy] {
            put_bytes(&mut out, &text.as_bytes()[..text.len().min(TEXT_MAX)]);
        }
        put_option(&mut out, self.epoch);
        put(&mut out, self.time_base.0);
        let p = &self.params;
        put(&mut out, u64::from(p.move_buffers));
        put(&mut out, p.commit_interval.0);
        put(&mut out, u64::from(p.stage_blocks));
        put(&mut out, u64::from(p.piece_blocks));
        for on in [p.map_on_read, p.read_only, p.pass_discards] {
            out.push(u8::from(on));
        }
        put_option(&mut out, p.move_bytes_per_s);
        put_option(&mut out, p.p99_limit.map(|l| l.0));
        put(&mut out, p.standby_after.len() as u64);
        for s in &p.standby_after {
            put_option(&mut out, s.map(|s| s.0));
        }
        put(&mut out, self.superblocks.len() as u64);
        for sb in &self.superblocks {
            put_bytes(&mut out, sb.as_deref().unwrap_or_default());
        }
        let sleeping = Sleeping::of(p);
        let dirty = p.dirty_age.is_some() || p.dirty_max.is_some();
        let powers = p.power_limit_uw.is_some() || dirty;
        let sleeps = sleeping != Sleeping::default() || powers;
        let gather = p.flush_gather != 0 || sleeps;
        let ahead = p.flush_ahead != 0 || gather;
        let more = ahead || p.kept_writes || p.keeper;
        if budgets(p) != budgets(&Params::default()) || !p.costs.is_empty() || more {
            for b in budgets(p) {
                put_option(&mut out, b);
            }
        }
        if !p.costs.is_empty() || more {
            put(&mut out, p.costs.len() as u64);
            for n in p.costs.iter().flat_map(|c| cost(*c)) {
                put(&mut out, n);
            }
        }
        if more {
            out.push(u8::from(p.kept_writes) | u8::from(p.keeper) << 1);
        }
        if ahead {
            put(&mut out, u64::from(p.flush_ahead));
        }
        if gather {
            put(&mut out, u64::from(p.flush_gather));
        }
        if sleeps {
            sleeping.encode(&mut out);
        }
        if powers {
            put_option(&mut out, p.power_limit_uw);
        }
        if dirty {
            put_option(&mut out, p.dirty_age.map(|t| t.0));
        }
        if p.dirty_max.is_some() {
            put_option(&mut out, p.dirty_max.map(u64::from));
        }
        out
    }

    #[expect(clippy::too_many_lines, reason = "fields in their order")]
    pub(super) fn decode(payload: &[u8]) -> Result<Origin, Bad> {
        let mut c = Cursor::new(payload);
        let mut text = || c.text(TEXT_MAX);
        let (program, volume, policy) = (text()?, text()?, text()?);
        let (epoch, time_base) = (option(&mut c)?, Nanos(c.number()?));
        // The core's `mutants` feature adds one field.
        #[allow(clippy::needless_update)]
        let mut params = Params {
            move_buffers: c.narrow()?,
            commit_interval: Nanos(c.number()?),
            stage_blocks: c.narrow()?,
            piece_blocks: c.narrow()?,
            map_on_read: flag(&mut c)?,
            read_only: flag(&mut c)?,
            pass_discards: flag(&mut c)?,
            move_bytes_per_s: option(&mut c)?,
            p99_limit: option(&mut c)?.map(Nanos),
            standby_after: (0..count(&mut c)?)
                .map(|_| Ok(option(&mut c)?.map(Nanos)))
                .collect::<Result<_, Bad>>()?,
            // A recording without these fields comes from an engine that did not have the parameters.
            flush_ahead: 0,
            flush_gather: 0,
            ..Params::default()
        };
        let superblocks = (0..count(&mut c)?)
            .map(|_| match c.bytes(BLOCK)? {
                [] => Ok(None),
                sb => Ok(Some(sb.to_vec())),
            })
            .collect::<Result<_, Bad>>()?;
        if !c.is_empty() {
            params.moves_max = option(&mut c)?
                .map(|n| u16::try_from(n).map_err(|_| "too many moves"))
                .transpose()?;
            params.wear_bytes_per_day = option(&mut c)?;
            params.wear_burst = Nanos(option(&mut c)?.ok_or("a budget without a burst")?);
            params.sleep_hold = option(&mut c)?.map(Nanos);
            params.sleep_hold_bytes = option(&mut c)?;
            params.join_bytes = option(&mut c)?.ok_or("joins without a length")?;
            params.join_time = Nanos(option(&mut c)?.ok_or("joins without a time")?);
        }
        if !c.is_empty() {
            params.costs = costs(&mut c)?;
        }
        if !c.is_empty() {
            (params.kept_writes, params.keeper) = keeping(&mut c)?;
        }
        if !c.is_empty() {
            params.flush_ahead = c.narrow()?;
        }
        if !c.is_empty() {
            params.flush_gather = c.narrow()?;
        }
        if !c.is_empty() {
            Sleeping::decode(&mut c, &mut params)?;
        }
        if !c.is_empty() {
            params.power_limit_uw = option(&mut c)?;
        }
        if !c.is_empty() {
            params.dirty_age = option(&mut c)?.map(Nanos);
        }
        if !c.is_empty() {
            params.dirty_max = option(&mut c)?
                .map(|n| u32::try_from(n).map_err(|_| "more dirty data than flash"))
                .transpose()?;
        }
        if !c.is_empty() {
            return Err("something stands behind the origin");
        }
        Ok(Origin {
            program,
            volume,
            policy,
            epoch,
            time_base,
            params,
            superblocks,
        })
    }
}

/// The number of items that follow.
fn count(c: &mut Cursor<'_>) -> Result<u64, Bad> {
    match c.number()? {
        n if n <= MEMBERS_MAX => Ok(n),
        _ => Err("too many members"),
    }
}

/// The costs of the tiers, fastest first.
fn costs(c: &mut Cursor<'_>) -> Result<Vec<Cost>, Bad> {
    (0..count(c)?)
        .map(|_| {
            let mut n = [0; COST];
            for n in &mut n {
                *n = c.number()?;
            }
            Ok(cost_of(n))
        })
        .collect()
}

#[cfg(test)]
mod tests;
