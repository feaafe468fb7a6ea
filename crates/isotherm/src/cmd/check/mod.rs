//! `isotherm check`: verifies all metadata of a volume that can be verified without serving it, and its data, also while it is served.

mod data;
mod served;
mod superblocks;
mod words;

use std::path::{Path, PathBuf};

use isotherm_answers::{Checked, CheckedArea, CheckedCheckpoint, CheckedData, CheckedMetadata};
use isotherm_core::ExtentId;
use isotherm_core::store::checkpoint::{self, Header};
use isotherm_core::store::superblock::{State, Superblock};
use isotherm_core::store::{
    self, BLOCK, Carrier, Layout, Media, OpenError, Opened, Part, Repair, journal,
    newest_superblock, open,
};
use isotherm_live::config::{format_uuid, parse_uuid};
use isotherm_live::device::{Device, OpenHow};
use isotherm_live::loss::Listed;
use isotherm_live::media::FileMedia;
use isotherm_live::members;
use isotherm_live::tail::open_member;
use isotherm_live::volume::{description, refuse_if_served};
use isotherm_live::{ErrorKind, VolumeConfig};

use crate::Failure;
use crate::args::CheckArgs;
use crate::control::client::connect;

/// Blocks that are read at a time.
const CHUNK: usize = 256;

/// A check in progress, and its findings.
struct Check<'a> {
    media: FileMedia<'a>,
    paths: Vec<PathBuf>,
    findings: Vec<String>,
    /// The number of the volume according to its description.
    uuid: Option<[u8; 16]>,
    /// A member, by its place in the description, that belongs to this other volume.
    other: Option<(usize, [u8; 16])>,
    /// Sizes of the members that are present.
    sizes: Vec<Option<u64>>,
    /// Which members were taken out of the volume.
    removed: Vec<bool>,
    /// Number of extents with a copy, and of those with a dirty copy.
    copied: Option<(u32, u32)>,
    /// The volume, opened to read only, if its map can be read.
    opened: Option<Opened>,
    /// Repairs that were made before the check.
    mended: Vec<String>,
}

/// Verifies a volume. While it is served, only its data can be verified.
///
/// # Errors
/// [`Failure::Bad`] if something is damaged, which is then printed; or the volume cannot be examined.
pub fn run(args: &CheckArgs) -> Result<(), Failure> {
    if args.data
        && let Some(client) = connect(&args.of.volume)?
    {
        return served::run(args, client);
    }
    let (repair, read_data) = (args.repair, args.data);
    let args = &args.of;
    let file = description(&args.volume);
    if connect(&args.volume)?.is_some() {
        let v = args.volume.display();
        return Err(Failure::failed(format!(
            "{v}: is being served: stop it first (`isotherm stop {v}`), or check only its data meanwhile (`isotherm check {v} --data`)"
        )));
    }
    super::must_not_be_served(&args.volume)?;
    let failed = |e: isotherm_live::Error| Failure::failed(e.to_string());
    let mut config = VolumeConfig::load(&file).map_err(failed)?;
    for note in members::find(&mut config, &file).map_err(failed)? {
        crate::log::note(format_args!("isotherm: {note}"));
    }
    let paths: Vec<PathBuf> = config.members.iter().map(|m| m.path.clone()).collect();
    let (devices, findings) = open_members(&config, repair)?;
    let mut check = Check {
        media: FileMedia::new(&devices),
        uuid: config.uuid.as_deref().and_then(parse_uuid),
        other: None,
        sizes: (devices.iter().map(|d| Some(d.as_ref()?.bytes))).collect(),
        removed: config.members.iter().map(|m| m.removed).collect(),
        paths,
        findings,
        copied: None,
        opened: None,
        mended: Vec::new(),
    };
    check.refuse_others(config.members.len(), &file)?;
    check.tails(&devices)?;
    // From here on, repairs write to the members; a stamp says so to others.
    for note in refuse_if_served(&devices, &check.paths, repair).map_err(failed)? {
        eprintln!("isotherm: {note}");
    }
    if repair {
        check.mend(config.members.len());
    }
    let of_members = check.all(&config).unwrap_or_default();
    let data = match check.opened.take().filter(|_| read_data) {
        Some(opened) => {
            let (read, found) = check.data(&opened);
            // What a missing member has is not damaged.
            if opened.report.missing.is_empty() {
                data::tell_status(&args.volume, &config, &found);
            }
            Some(read)
        }
        None => None,
    };
    let answer = check.answer(&args.volume, of_members, data);
    args.json
        .print(&answer, || words::in_words(&answer, config.members.len()))?;
    if answer.ok { Ok(()) } else { Err(Failure::Bad) }
}

/// Opens every member that can be opened, for writing if repairs are requested. Errors of the others are findings.
fn open_members(
    config: &VolumeConfig,
    repair: bool,
) -> Result<(Vec<Option<Device>>, Vec<String>), Failure> {
    let (mut devices, mut findings) = (Vec::new(), Vec::new());
    let uuid = config.uuid.as_deref().and_then(parse_uuid);
    for m in &config.members {
        if m.removed {
            devices.push(None);
            continue;
        }
        let how = OpenHow {
            create: None,
            read_only: !repair,
            buffered: false,
            fresh: false,
        };
        match open_member(m, uuid, how) {
            Ok(device) => devices.push(Some(device)),
            // Nothing is known about a member that cannot be looked at: this is no damage.
            Err(e) if matches!(e.kind, ErrorKind::InUse | ErrorKind::Denied) => {
                return Err(Failure::failed(e.to_string()));
            }
            Err(e) => {
                findings.push(e.to_string());
                devices.push(None);
            }
        }
    }
    Ok((devices, findings))
}

impl Check<'_> {
    /// The answer, with what the superblocks and the metadata say.
    fn answer(self, volume: &Path, of_members: Checked, data: Option<CheckedData>) -> Checked {
        Checked {
            volume: volume.to_string_lossy().into_owned(),
            ok: self.findings.is_empty(),
            findings: self.findings,
            mended: self.mended,
            data,
            copied_extents: self.copied.map(|c| c.0),
            dirty_extents: self.copied.map(|c| c.1),
            ..of_members
        }
    }

    fn find(&mut self, member: usize, what: impl std::fmt::Display) {
        let path = self
            .paths
            .get(member)
            .map(|p| p.display().to_string())
            .unwrap_or_default();
        self.findings.push(format!("{path}: {what}"));
    }

    /// Restores damaged copies from intact ones. Damage that cannot be repaired is left to the check that follows, which reports it.
    fn mend(&mut self, count: usize) {
        let found = self.superblocks(count);
        // Findings before the repair are not findings after it.
        self.findings.clear();
        match store::mend(&mut self.media, &found) {
            Ok(repairs) => {
                let named = repairs.iter().map(|r| self.repair(r));
                self.mended = named.collect();
            }
            Err(e) => {
                let why = self.named(&e);
                self.findings.push(format!("cannot be mended: {why}"));
            }
        }
    }

    fn repair(&self, r: &Repair) -> String {
        let path = self.paths.get(usize::from(r.member.0));
        let path = path.map(|p| p.display().to_string()).unwrap_or_default();
        format!("{path}: {r}")
    }

    /// What the superblocks and the metadata say; `None` without a superblock that can be used.
    fn all(&mut self, config: &VolumeConfig) -> Option<Checked> {
        let found = self.superblocks(config.members.len());
        let Some(newest) = newest_superblock(found.iter().flatten()).cloned() else {
            self.findings
                .push("no member has a superblock that can be used".into());
            return None;
        };
        let layout = newest.layout();
        let mut areas = Vec::new();
        for c in layout.carriers() {
            if found
                .get(usize::from(c.member.0))
                .is_some_and(Option::is_some)
            {
                areas.push(self.area(c, &newest, &layout));
            }
        }
        let clean = found.iter().flatten().all(|s| s.state == State::Clean);
        if let [first, second] = &areas[..]
            && clean
            && first.member == second.member
        {
            self.compare(first, second);
        }
        let mapped = self.maps(&found, &newest, &layout);
        Some(Checked {
            metadata: Some(CheckedMetadata {
                uuid: format_uuid(&newest.uuid),
                generation: newest.generation,
                metadata: areas,
            }),
            was_clean: Some(clean),
            members_found: Some(found.iter().flatten().count()),
            mapped_extents: mapped,
            ..Checked::default()
        })
    }

    /// After a clean close, both places on one member hold the same, but for the checkpoint before the one in use, which a server that was
    /// killed may have begun to write over. (What the first one lacks, recovery reports.)
    fn compare(&mut self, first: &CheckedArea, second: &CheckedArea) {
        let in_use = |area: &CheckedArea| {
            let all = area.checkpoints.iter();
            all.max_by_key(|c| c.number).cloned()
        };
        let same = [
            ("checkpoints", in_use(first) == in_use(second)),
            (
                "journal_blocks",
                first.journal_blocks == second.journal_blocks,
            ),
        ];
        for (part, same) in same {
            if !same {
                let what = format!(
                    "its two copies of the metadata differ in {part}: the next serve mends it, or `check --repair`"
                );
                self.find(usize::from(first.member), what);
            }
        }
    }

    /// Both checkpoints and the journal of one member.
    fn area(&mut self, c: Carrier, sb: &Superblock, layout: &Layout) -> CheckedArea {
        let (m, member) = (c.member, usize::from(c.member.0));
        let mut block = vec![0; BLOCK];
        let mut checkpoints = Vec::new();
        let mut newest: Option<Header> = None;
        let mut torn = Vec::new();
        for region in 0..2u8 {
            let at = layout.region_offset(c, region);
            if self.media.read(m, at, &mut block).is_err() {
                self.find(member, format!("checkpoint {region} cannot be read"));
                continue;
            }
            let Some(h) =
                Header::decode(&block, &sb.uuid).filter(|h| Header::region(h.number) == region)
            else {
                continue;
            };
            let whole = self.checkpoint(c, sb, layout, &h);
            checkpoints.push(CheckedCheckpoint {
                number: h.number,
                blocks: h.blocks,
                whole,
            });
            if !whole {
                torn.push(h.number);
            } else if newest.is_none_or(|n| n.number < h.number) {
                newest = Some(h);
            }
        }
        // The next checkpoint is written over the older one, blocks first. So a crash during that leaves an old header above new blocks,
        // which is no damage as long as the checkpoint in use is the newer one.
        for number in torn {
            if newest.is_none_or(|n| n.number < number) {
                self.find(
                    member,
                    format!("checkpoint {number} has a header, but its blocks are damaged"),
                );
            }
        }
        let Some(newest) = newest else {
            self.find(member, "no whole checkpoint");
            return CheckedArea {
                member: m.0,
                checkpoints,
                journal_blocks: None,
            };
        };
        let mut tip = newest.start;
        let mut blocks = 0u64;
        while blocks < u64::from(layout.area.ring_blocks) {
            if self
                .media
                .read(m, layout.ring_offset(c, tip.next_seq), &mut block)
                .is_err()
            {
                self.find(
                    member,
                    format!("journal block {} cannot be read", tip.next_seq),
                );
                break;
            }
            let Some(h) = journal::decode(&block, &sb.uuid).filter(|h| tip.accepts(h)) else {
                break;
            };
            tip = tip.after(&h);
            blocks += 1;
        }
        CheckedArea {
            member: m.0,
            checkpoints,
            journal_blocks: Some(blocks),
        }
    }

    fn checkpoint(&mut self, c: Carrier, sb: &Superblock, layout: &Layout, h: &Header) -> bool {
        if h.blocks >= layout.area.region_blocks {
            return false;
        }
        let base = layout.region_offset(c, Header::region(h.number)) + BLOCK as u64;
        let mut buf = vec![0; CHUNK * BLOCK];
        let mut i = 0;
        while i < h.blocks {
            let n = (h.blocks - i).min(CHUNK as u32);
            let part = &mut buf[..n as usize * BLOCK];
            if self
                .media
                .read(c.member, base + u64::from(i) * BLOCK as u64, part)
                .is_err()
            {
                return false;
            }
            if part
                .chunks_exact(BLOCK)
                .zip(i..)
                .any(|(b, i)| !checkpoint::is_data(b, &sb.uuid, h.number, i))
            {
                return false;
            }
            i += n;
        }
        true
    }

    /// The complete map, and then the map from each side alone: in a cleanly closed volume both sides agree.
    fn maps(
        &mut self,
        found: &[Option<Superblock>],
        sb: &Superblock,
        layout: &Layout,
    ) -> Option<u32> {
        let opened = match open::open(&mut self.media, found, open::Mode::ReadOnly) {
            Ok(opened) => opened,
            Err(e) => {
                self.findings.push(self.named(&e));
                return None;
            }
        };
        for r in &opened.report.repairs {
            // Findings about superblocks were already reported.
            if r.part != Part::Superblock {
                let what = self.repair(r);
                self.findings.push(format!(
                    "{what}: the next serve mends it, or `check --repair`"
                ));
            }
        }
        let clean = found.iter().flatten().all(|s| s.state == State::Clean);
        // A volume that runs without one of the two has one side only.
        let both = opened.report.missing.is_empty();
        let primary = layout.primary.member;
        let mirror = layout.mirror.map(|c| c.member).filter(|&m| m != primary);
        if let (true, Some(mirror)) = (clean && both, mirror) {
            for (with, without) in [(primary, mirror), (mirror, primary)] {
                let with = usize::from(with.0);
                let mut alone = found.to_vec();
                if alone
                    .get(usize::from(without.0))
                    .is_none_or(Option::is_none)
                {
                    continue;
                }
                alone[usize::from(without.0)] = None;
                match open::open(&mut self.media, &alone, open::Mode::ReadOnly) {
                    Ok(one) => {
                        // Each side alone lacks the slots of the other, and the clean data in them.
                        let (a, b) = (&one.space.map, &opened.space.map);
                        let differs = (0..sb.extents).map(ExtentId).find(|&e| {
                            a.home(e) != b.home(e)
                                || a.dirty_blocks(e) != b.dirty_blocks(e)
                                || (b.is_dirty(e) && a.copy(e) != b.copy(e))
                        });
                        if let Some(e) = differs {
                            self.find(with, format!("its map alone places extent {e} elsewhere"));
                        }
                    }
                    Err(e) => {
                        let why = self.named(&e);
                        self.find(with, format!("the map cannot be read from it alone: {why}"));
                    }
                }
            }
        }
        self.copies(sb, &opened);
        let mapped = opened.report.mapped;
        let lost = Listed::of(&opened.space);
        if lost.bytes > 0 {
            self.findings.push(format!(
                "{} bytes were lost with flash, and reading them is an error until they are written again ({}): {}",
                lost.bytes,
                lost.words(),
                Listed::TODO
            ));
        }
        self.opened = Some(opened);
        Some(mapped)
    }

    /// Checks the copies: each has a slot of its own on a tier faster than its home, and its dirty blocks are a subset of its blocks.
    /// (Opening has already checked that no slot has two owners.)
    fn copies(&mut self, sb: &Superblock, opened: &Opened) {
        let (map, geo) = (&opened.space.map, &opened.space.geo);
        for e in (0..sb.extents).map(ExtentId) {
            let Some(copy) = map.copy(e) else { continue };
            let slower = map
                .home(e)
                .is_some_and(|h| geo.tier_of(copy) < geo.tier_of(h));
            if !slower || map.owner(copy) != Some(e) {
                self.findings.push(format!(
                    "extent {e} has a copy in slot {copy}, which is no place for it"
                ));
            }
            if map.dirty_blocks(e) > map.copied_blocks(e) || map.copied_blocks(e) == 0 {
                self.findings
                    .push(format!("the copy of extent {e} holds less than it says"));
            }
        }
        self.copied = Some((map.copied(), map.dirty()));
    }

    fn named(&self, error: &OpenError) -> String {
        let why = self
            .media
            .last_error()
            .map(|e| format!(" ({e})"))
            .unwrap_or_default();
        if let OpenError::Media(e) = error {
            let path = self
                .paths
                .get(usize::from(e.member.0))
                .map(|p| p.display().to_string())
                .unwrap_or_default();
            return format!("{path}: cannot be read at byte {}{why}", e.offset);
        }
        error.to_string()
    }
}
