//! A disk that holds data is adopted, and the power fails at each step.

use super::caches::cache;
use super::stage::{EXTENT, Stage, everything, nothing};
use crate::disk::{Disk, Disks};
use isotherm_core::MemberId;
use isotherm_core::engine::Mutant;
use isotherm_core::store::mark;
use isotherm_core::store::open::{Mode, format_kept};
use isotherm_core::store::{BLOCK, Superblock, release};

const DISK: MemberId = MemberId(1);

/// The disk is covered, is given back, or was not touched: in each case its data is there, byte for byte.
pub(super) fn cut(mutant: Option<Mutant>) -> Result<(), String> {
    let s = cache(mutant)?;
    let data = data_of(&s.sb);
    let (mut covered, mut given_back) = (0, 0);
    for fuse in 0..400 {
        for keep in [nothing, everything, even_sectors, odd_sectors] {
            let mut t = blank(&s, &data);
            let whole = {
                let disks = &mut t.disks;
                let fuse = Some(fuse);
                format_kept(
                    &mut Disks {
                        disks,
                        fuse,
                        mutant,
                    },
                    &t.sb,
                )
                .is_ok()
            };
            t.lose_power(keep);
            match after(&mut t, &data).map_err(|e| format!("cut at {fuse}: {e}"))? {
                End::Covered => covered += 1,
                End::GivenBack => given_back += 1,
                End::Untouched if whole => return Err(String::from("nothing was adopted")),
                End::Untouched => {}
            }
            if whole {
                if covered == 0 || given_back < 10 {
                    return Err(format!("covered {covered}, given back {given_back}"));
                }
                return Ok(());
            }
        }
    }
    Err(String::from("an adoption does not end"))
}

fn even_sectors(_: MemberId, at: u64) -> bool {
    (at / 512).is_multiple_of(2)
}
fn odd_sectors(_: MemberId, at: u64) -> bool {
    at / 512 % 2 == 1
}

/// What happens to a disk on which an adoption was interrupted.
enum End {
    Covered,
    GivenBack,
    Untouched,
}

fn after(t: &mut Stage, data: &[u8]) -> Result<End, String> {
    let len = t.disks[1].len();
    let last = (len / BLOCK - 1) as u64 * BLOCK as u64;
    let second = Superblock::decode(t.disks[1].get(last, BLOCK).unwrap_or(&[])).ok();
    let second = second.filter(|sb| sb.uuid == t.sb.uuid);
    let mutant = t.mutant;
    let mut all = Disks {
        disks: &mut t.disks,
        fuse: None,
        mutant,
    };
    let stated = second
        .as_ref()
        .and_then(|sb| mark::read(&mut all, sb, DISK).newest);
    if let Some((sb, k)) = second.as_ref().zip(stated)
        && k.cover.is_releasing()
    {
        release::uncover(&mut all, sb, DISK).map_err(|e| format!("not given back: {e}"))?;
        return equal(&t.disks[1], data).map(|()| End::GivenBack);
    }
    if t.found()[1].is_none() {
        return equal(&t.disks[1], data).map(|()| End::Untouched);
    }
    t.try_open(|epoch| Mode::ReadWrite { epoch }, None)
        .map_err(|e| format!("it cannot be opened: {e}"))?;
    let shown: Vec<u8> = t
        .contents()?
        .into_iter()
        .flat_map(Result::unwrap_or_default)
        .collect();
    if shown != data[..shown.len()] || shown.len() < data.len() - 2 * EXTENT as usize {
        return Err(String::from("the volume shows other data"));
    }
    Ok(End::Covered)
}

fn equal(disk: &Disk, data: &[u8]) -> Result<(), String> {
    match (0..data.len()).find(|&i| disk.read(i as u64, 1)[0] != data[i]) {
        None => Ok(()),
        Some(at) => Err(format!("byte {at} of the disk is another one")),
    }
}

/// The data of the disk: all that the volume will show.
fn data_of(sb: &Superblock) -> Vec<u8> {
    let n = usize::try_from(u64::from(sb.members[1].slots) * EXTENT).unwrap_or(0);
    (0..n).map(|i| (i * 7 + i / 251) as u8).collect()
}

/// The stage with new disks, of which the second holds `data`.
fn blank(s: &Stage, data: &[u8]) -> Stage {
    let mut t = s.fork();
    t.engine = None;
    t.world = None;
    let sizes = [s.sb.members[0].bytes, s.sb.members[1].bytes];
    t.disks = sizes.map(|n| Disk::new(n as usize)).into();
    t.disks[1].write_through(0, data);
    t
}
