//! The class of every block of an image according to `dumpe2fs` and `debugfs`.

use super::output;
use isotherm_classify::classes;
use std::fs;
use std::path::Path;

/// Parses `a-b` or `a`.
fn range(text: &str) -> Option<(u64, u64)> {
    let (a, b) = text.split_once('-').unwrap_or((text, text));
    Some((a.trim().parse().ok()?, b.trim().parse().ok()?))
}

/// The class of every block according to e2fsprogs.
#[expect(clippy::too_many_lines, reason = "one scenario")]
pub(super) fn reference(image: &Path, blocks: u64) -> Vec<u8> {
    let image = image.to_str().unwrap();
    let dump = output("dumpe2fs", &[image]);
    let mut class = vec![0u8; blocks as usize];
    let mut free_inodes = Vec::new();
    let mut journal_inode = 0u64;
    let mut fixed: Vec<(u64, u64, u8)> = Vec::new();
    let mut inodes = 0;
    for line in dump.lines() {
        let line = line.trim();
        if let Some(n) = line.strip_prefix("Inode count:") {
            inodes = n.trim().parse().unwrap();
        } else if let Some(n) = line.strip_prefix("Journal inode:") {
            journal_inode = n.trim().parse().unwrap();
        } else if let Some(list) = line.strip_prefix("Free inodes:") {
            free_inodes.extend(list.split(',').filter_map(|x| range(x.trim())));
        } else if let Some(n) = line.strip_prefix("MMP block number:") {
            fixed.push((n.trim().parse().unwrap(), 0, classes::SUPERBLOCK));
        }
        for part in line.split(", ") {
            let number = |p: &str| {
                let p = p.strip_prefix("at ").unwrap_or(p);
                range(p.split([' ', '(']).next()?)
            };
            for (name, c) in [
                ("Primary superblock", classes::SUPERBLOCK),
                ("Backup superblock", classes::SUPERBLOCK),
                ("Group descriptors", classes::DESCRIPTORS),
                ("Group descriptor", classes::DESCRIPTORS),
                ("Reserved GDT blocks", classes::DESCRIPTORS),
                ("Block bitmap", classes::BITMAP),
                ("Inode bitmap", classes::BITMAP),
                ("Inode table", classes::INODES),
            ] {
                let rest = part.strip_prefix(name).and_then(|r| r.strip_prefix(' '));
                if let Some((a, b)) = rest.and_then(number) {
                    fixed.push((a, b.max(a), c));
                }
            }
        }
    }
    let used = |i: u64| !free_inodes.iter().any(|(a, b)| (*a..=*b).contains(&i));
    let commands: String = (1..=inodes)
        .filter(|i| used(*i))
        .fold(String::new(), |all, i| all + &format!("stat <{i}>\n"));
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), commands).unwrap();
    let stats = output("debugfs", &["-f", file.path().to_str().unwrap(), image]);
    for one in stats.split("debugfs: stat ").skip(1) {
        let number: u64 = one[1..one.find('>').unwrap()].parse().unwrap();
        let field = |name: &str| {
            let rest = &one[one.find(name)? + name.len()..];
            rest.split_whitespace().next()
        };
        let links: u64 = field("Links:").map_or(0, |x| x.parse().unwrap());
        if links == 0 || number == 1 {
            continue;
        }
        let size: u64 = field("Size:").unwrap().parse().unwrap();
        let data = match field("Type:").unwrap() {
            _ if number == 7 => classes::DESCRIPTORS,
            _ if number == journal_inode => classes::JOURNAL,
            "directory" => classes::DIRECTORY,
            "regular" | "symlink" => classes::of_file_size(size),
            _ => 0,
        };
        let acl: u64 = field("File ACL:").unwrap().parse().unwrap();
        if acl != 0 {
            class[acl as usize] = classes::INDIRECT;
        }
        let Some(at) = one.find("BLOCKS:").or_else(|| one.find("EXTENTS:")) else {
            continue;
        };
        let list = one[at..].lines().skip(1).take_while(|l| l.starts_with('('));
        for item in list.flat_map(|l| l.split(", ")) {
            let Some((what, place)) = item.trim_end_matches(',').split_once("):") else {
                continue;
            };
            let tree = what.contains("IND") || what.contains("ETB");
            let (a, b) = range(place).unwrap_or_else(|| panic!("{item}"));
            let c = if tree { classes::INDIRECT } else { data };
            class[a as usize..=b as usize].fill(c);
        }
    }
    for (a, b, c) in fixed {
        class[a as usize..=b.max(a) as usize].fill(c);
    }
    class
}
