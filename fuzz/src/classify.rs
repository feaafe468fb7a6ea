//! What says of what kind data are: layouts of file systems, class files.

use isotherm_classify::files::{Facts, Rules};
use isotherm_classify::layout::Layout;
use isotherm_classify::{Layers, Watch, opencas};
use std::path::Path;

/// Any bytes as a volume: looked at whole, then as if all of it had been written again. It ends, in bounded memory.
pub fn layout(data: &[u8]) {
    let bytes = data.len() as u64;
    let mut layers = Layers::new(bytes);
    let mut layout = Layout::default();
    let watch = Watch::default();
    layout.read(&mut &data[..], &mut layers, &watch);
    let all = 0..bytes;
    layout.refresh(
        &mut &data[..],
        &mut layers,
        &watch,
        Some(std::slice::from_ref(&all)),
    );
    while !layers.is_settled() {
        layers.settle(1 << 16);
    }
    // 2 bytes a block of 1 KiB and leaves at worst; bitmaps, groups and tree blocks beside them.
    let most = (1 << 20) + data.len() / 16;
    assert!(layers.memory() <= most, "{} of {most}", layers.memory());
    assert!(
        layout.memory() <= (4 << 20) + data.len(),
        "{}",
        layout.memory()
    );
}

/// Any text as a class file of Open CAS and as rules. What is accepted can be asked.
pub fn class_file(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let facts = Facts {
        path: Path::new("a/b.mkv"),
        size: 4096,
        owner: 0,
        age_s: 1,
    };
    if let Ok(import) = opencas::parse(text) {
        let class = import.of_file(facts, Path::new("/srv"));
        assert!(class.is_none_or(|c| (31..=63).contains(&c)));
        assert!(import.rows().len() <= 36);
        let ranges = import.ranges(1 << 30);
        assert!(ranges.iter().all(|r| r.0 + r.1 <= 1 << 30 && r.1 > 0));
    }
    if let Ok(rules) = Rules::parse(text) {
        assert!(rules.class(facts).is_none_or(|c| c <= 63));
    }
}
