//! The state of the store, as the newest manifest says it: which object holds each block.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::extent_map::{ExtentMap, Place};
use crate::layout::{self, BLOCK, Description, Line, Manifest, MapText, Part};
use crate::remote::{Remote, RemoteError};

/// A place in a data object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InObject {
    /// The object's number in [`State`].
    pub object: u32,
    /// The block in it.
    pub block: u64,
}

impl Place for InObject {
    fn advance(self, blocks: u64) -> InObject {
        InObject {
            block: self.block + blocks,
            ..self
        }
    }
    fn joins(self, blocks: u64, next: InObject) -> bool {
        self.advance(blocks) == next
    }
}

/// A data object.
#[derive(Debug)]
pub struct Object {
    /// Its name.
    pub name: Arc<str>,
    /// Blocks that it holds.
    pub blocks: u64,
}

/// See the module.
pub struct State {
    /// The store.
    pub description: Description,
    /// The newest manifest.
    pub manifest: Manifest,
    /// Where each block lies; one without a place is zeros.
    pub map: ExtentMap<InObject>,
    /// Objects with their numbers of blocks that are in use.
    objects: HashMap<u32, (Arc<Object>, u64)>,
    names: HashMap<Arc<str>, u32>,
    next_object: u32,
    /// Blocks in all objects that are in use in part.
    pub stored: u64,
    /// The segments of the index.
    pub segments: Vec<Part>,
    /// Segments that have changed since.
    pub changed: BTreeSet<u64>,
}

impl State {
    /// Blocks of the disk.
    pub fn blocks(&self) -> u64 {
        self.description.bytes / BLOCK
    }

    fn empty(description: Description, manifest: Manifest) -> State {
        State {
            description,
            manifest,
            map: ExtentMap::default(),
            objects: HashMap::new(),
            names: HashMap::new(),
            next_object: 0,
            stored: 0,
            segments: Vec::new(),
            changed: BTreeSet::new(),
        }
    }

    /// Reads the state that `manifest` names.
    ///
    /// # Errors
    /// An object is missing or damaged, or the store is away.
    pub fn load(
        remote: &Remote,
        description: Description,
        manifest: Manifest,
    ) -> Result<State, RemoteError> {
        let mut state = State::empty(description, manifest);
        if let Some(index) = state.manifest.index.clone() {
            let bytes = State::part(remote, &index)?;
            let damaged = |_| RemoteError::Damaged(index.name.clone());
            state.segments = serde_json::from_slice(&bytes).map_err(damaged)?;
        }
        for part in state.segments.clone() {
            state.take(remote, &part)?;
        }
        state.changed.clear();
        for part in state.manifest.deltas.clone() {
            state.take(remote, &part)?;
        }
        Ok(state)
    }

    fn part(remote: &Remote, part: &Part) -> Result<Vec<u8>, RemoteError> {
        let bytes = remote.wait(remote.get(&part.name))?;
        if crc32fast::hash(&bytes) == part.crc {
            Ok(bytes)
        } else {
            Err(RemoteError::Damaged(part.name.clone()))
        }
    }

    fn take(&mut self, remote: &Remote, part: &Part) -> Result<(), RemoteError> {
        let bytes = State::part(remote, part)?;
        let lines = layout::map_lines(&bytes, self.blocks());
        let lines = lines.ok_or_else(|| RemoteError::Damaged(part.name.clone()))?;
        self.apply(lines);
        Ok(())
    }

    /// Applies lines of a map, which were checked.
    pub fn apply(&mut self, lines: Vec<Line>) {
        let mut local = Vec::new();
        for line in lines {
            match line {
                Line::Object(name, blocks) => local.push(self.object(name, blocks)),
                Line::Extent(start, len, object, block) => {
                    let object = local[object];
                    self.put(start, len, Some(InObject { object, block }));
                }
                Line::Hole(start, len) => self.put(start, len, None),
            }
        }
        // Objects without a block in use are of no interest.
        let unused = local
            .into_iter()
            .filter(|o| self.objects.get(o).is_some_and(|(_, used)| *used == 0));
        for object in unused.collect::<Vec<_>>() {
            self.drop_object(object);
        }
    }

    fn object(&mut self, name: String, blocks: u64) -> u32 {
        if let Some(&known) = self.names.get(name.as_str()) {
            return known;
        }
        let number = self.next_object;
        self.next_object += 1;
        let name: Arc<str> = name.into();
        self.names.insert(Arc::clone(&name), number);
        self.stored += blocks;
        let object = Arc::new(Object { name, blocks });
        self.objects.insert(number, (object, 0));
        number
    }

    fn drop_object(&mut self, number: u32) {
        if let Some((object, _)) = self.objects.remove(&number) {
            self.names.remove(&object.name);
            self.stored -= object.blocks;
        }
    }

    fn put(&mut self, start: u64, len: u64, place: Option<InObject>) {
        let segment = self.description.segment_bytes / BLOCK;
        self.changed
            .extend(start / segment..=(start + len - 1) / segment);
        // The new reference counts first, so that an object is not dropped between.
        if let Some(used) = place.and_then(|p| self.objects.get_mut(&p.object)) {
            used.1 += len;
        }
        let mut empty = Vec::new();
        let objects = &mut self.objects;
        let gone = |_, blocks, place: InObject| {
            if let Some((_, used)) = objects.get_mut(&place.object) {
                *used -= blocks;
                if *used == 0 {
                    empty.push(place.object);
                }
            }
        };
        match place {
            Some(place) => self.map.insert(start, len, place, gone),
            None => self.map.remove(start, len, gone),
        }
        for object in empty {
            self.drop_object(object);
        }
    }

    /// An object of the map.
    pub fn get(&self, number: u32) -> Option<Arc<Object>> {
        self.objects.get(&number).map(|(o, _)| Arc::clone(o))
    }

    /// At most `most` objects of which less than half is in use, the emptiest first.
    pub fn sparse(&self, most: usize) -> Vec<u32> {
        let mut found: Vec<(u64, u32)> = self
            .objects
            .iter()
            .filter(|(_, (o, used))| used * 2 < o.blocks)
            .map(|(&n, (o, used))| (used * 1024 / o.blocks.max(1), n))
            .collect();
        found.sort_unstable();
        found.into_iter().take(most).map(|(_, n)| n).collect()
    }

    /// Whether the state needs this object of `data/` or `map/`.
    pub fn needs(&self, name: &str) -> bool {
        let manifest = &self.manifest;
        let parts = self.segments.iter().chain(&manifest.deltas);
        self.names.contains_key(name)
            || name.starts_with("map/") && parts.chain(&manifest.index).any(|p| p.name == name)
    }

    /// The text of one segment; `None` if nothing is in it.
    pub fn segment(&self, segment: u64) -> Option<MapText> {
        let each = self.description.segment_bytes / BLOCK;
        let start = segment * each;
        let (mut text, mut known) = (MapText::default(), HashMap::new());
        let len = each.min(self.blocks().saturating_sub(start));
        self.map.over(start, len, |at, len, place| {
            let Some((place, object)) = place.and_then(|p| Some((p, self.get(p.object)?))) else {
                return;
            };
            let next = known.len();
            let number = *known.entry(place.object).or_insert_with(|| {
                text.push(&Line::Object(object.name.to_string(), object.blocks));
                next
            });
            text.push(&Line::Extent(at, len, number, place.block));
        });
        (!known.is_empty()).then_some(text)
    }
}
