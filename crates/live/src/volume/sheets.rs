//! What is known of the members from their data sheets.

use super::config_error;
use crate::config::{MemberConfig, VolumeConfig};
use crate::error::Error;
use crate::paced::Pacer;
use isotherm_core::load::Cost;
use isotherm_core::store::Opened;
use isotherm_core::store::superblock::MemberEntry;
use std::path::Path;

/// The model of each paced member.
pub(crate) fn pacers(
    config: &VolumeConfig,
    opened: &Opened,
    file: &Path,
) -> Result<Vec<Option<Pacer>>, Error> {
    let members = config.members.iter().zip(&opened.superblock.members);
    let model = |(i, (m, entry)): (usize, (&MemberConfig, &MemberEntry))| {
        let model = m.model(entry.bytes);
        let model = model.map_err(|e| config_error(file, format!("member {i}: {e}")))?;
        Ok(model.map(Pacer::new))
    };
    members.enumerate().map(model).collect()
}

/// The costs of the tiers up to the last one that has a data sheet, each by the first of its members with a sheet. A sheet that cannot be read
/// is no reason to refuse the volume, unless its model paces the member.
pub(crate) fn costs(
    config: &VolumeConfig,
    opened: &Opened,
    notes: &mut Vec<String>,
) -> Result<Vec<Cost>, String> {
    let tiers = opened.space.geo.tiers();
    let mut by_tier = vec![None; usize::from(tiers)];
    let members = config.members.iter().zip(&opened.superblock.members);
    for (i, (m, entry)) in members.enumerate() {
        let cost = m.cost(entry.bytes).or_else(|e| match &m.sheet {
            Some(_) => {
                notes.push(format!("member {i}: {e}: served without this data sheet"));
                Ok(None)
            }
            None => Err(format!("member {i}: {e}")),
        })?;
        if let Some(of_tier) = by_tier.get_mut(usize::from(m.tier)) {
            *of_tier = of_tier.or(cost);
        }
    }
    let has_power = |c: &Option<Cost>| c.is_some_and(|c| c.idle_uw > 0);
    if config.io.power_limit_w.is_some() && !by_tier.iter().all(has_power) {
        notes.push(
            "power_limit_w: has no effect, because a tier has no data sheet that states its power"
                .into(),
        );
    }
    if config.io.wear_years.is_some() && config.io.wear_tbw.is_none() && config.lacks_fast_sheet() {
        notes.push("wear_years: has no effect without the data sheet of the fastest tier".into());
    }
    let is_lost = config.members.iter().any(|m| m.data_sheet().is_err());
    if config.io.start_stop_years.is_some() && is_lost {
        notes.push(
            "start_stop_years: has no effect on a disk whose data sheet cannot be read".into(),
        );
    }
    let known = by_tier.iter().rposition(Option::is_some);
    let costs = by_tier
        .into_iter()
        .zip(0..)
        .take(known.map_or(0, |t| t + 1));
    Ok(costs
        .map(|(cost, t)| cost.unwrap_or_else(|| Cost::unknown(t, tiers)))
        .collect())
}
