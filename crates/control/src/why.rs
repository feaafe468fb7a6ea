//! Where a byte of a served volume is, and why: the answer of `why`.

use isotherm_answers::{Copy, Why};
use isotherm_core::{ExtentId, MemberId, Nanos};
use isotherm_live::VolumeConfig;
use isotherm_live::recorder::Driver;

/// The place of the extent at `offset`, and the reason.
///
/// # Errors
/// `offset` is beyond the volume.
pub fn why(
    engine: &mut Driver,
    now: Nanos,
    config: &VolumeConfig,
    offset: u64,
) -> Result<Why, String> {
    let geo = &engine.space().geo;
    let (bytes, extent_bytes) = (geo.volume_bytes(), geo.extent_bytes());
    if offset >= bytes {
        return Err(format!(
            "byte {offset} lies beyond the volume, which has {bytes} bytes"
        ));
    }
    let extent = geo.extent_at(offset);
    let blocks = geo.blocks_per_extent();
    let e = engine.explain(now, ExtentId(extent.0));
    let member = |m: MemberId| {
        let member = config.members.get(usize::from(m.0));
        member.map(|m| m.path.to_string_lossy().into_owned())
    };
    let copy = e.copy.map(|(slot, tier, at, member_offset)| Copy {
        tier: tier.0,
        slot: slot.0,
        member: member(at),
        member_offset,
        blocks: e.copied_blocks,
        dirty_blocks: e.dirty_blocks,
    });
    Ok(Why {
        offset,
        extent: u64::from(extent.0),
        extent_bytes,
        mapped: e.slot.is_some(),
        tier: e.tier.map(|t| t.0),
        slot: e.slot.map(|s| s.0),
        member: e.place.and_then(|(m, _)| member(m)),
        member_offset: e.place.map(|(_, at)| at),
        copy,
        valid_blocks: e.valid_blocks,
        blocks,
        in_flight: e.in_flight,
        moving: e.moving,
        last_access_age_s: e.slot.map(|_| now.since(e.last).as_secs_f64()),
        policy: engine.policy_name().to_owned(),
        why: e.why,
    })
}
