//! The properties of the disk that initiators query: inquiry (SPC-4, 6.6 and 7.8), mode pages (7.5), capacity (SBC-3, 5.15 and 5.16).

use super::disk::{Disk, MAX_RANGES, MAX_TRANSFER, MAX_UNMAP};
use super::sense::Sense;

/// The text as exactly `N` bytes: truncated, or padded with blanks.
fn padded<const N: usize>(text: &str) -> [u8; N] {
    let mut b = [b' '; N];
    let plain = text
        .bytes()
        .map(|c| if (0x20..0x7f).contains(&c) { c } else { b'_' });
    b.iter_mut().zip(plain).for_each(|(b, c)| *b = c);
    b
}

fn serial(disk: &Disk) -> String {
    crate::config::format_uuid(&disk.uuid).replace('-', "")
}

/// Standard data, or a page of vital product data.
pub(super) fn inquiry(disk: &Disk, cdb: &[u8; 16]) -> Result<Vec<u8>, Sense> {
    if cdb[1] & 0xfe != 0 || (cdb[1] & 1 == 0 && cdb[2] != 0) {
        return Err(Sense::FIELD);
    }
    if cdb[1] & 1 == 0 {
        return Ok(standard(disk));
    }
    let body = match cdb[2] {
        0x00 => vec![0x00, 0x80, 0x83, 0xb0, 0xb1, 0xb2],
        0x80 => serial(disk).into_bytes(),
        0x83 => identification(disk),
        0xb0 => limits(disk),
        // Neither the rotation rate nor the form factor is reported; caches are non-volatile only after a flush.
        0xb1 => vec![0; 60],
        // No threshold; UNMAP and both WRITE SAME are supported. If unmapped blocks read as zeros, the provisioning type is thin.
        0xb2 if disk.zeros => vec![0, 0xe4, 2, 0],
        0xb2 => vec![0, 0xe0, 0, 0],
        _ => return Err(Sense::FIELD),
    };
    let mut page = vec![0, cdb[2]];
    page.extend_from_slice(&(body.len() as u16).to_be_bytes());
    page.extend_from_slice(&body);
    Ok(page)
}

fn standard(disk: &Disk) -> Vec<u8> {
    // A disk, SPC-4, HiSup and response format 2, command queuing.
    let mut b = vec![0, 0, 6, 0x12, 69, 0, 0, 2];
    b.extend_from_slice(&padded::<8>("ISOTHERM"));
    b.extend_from_slice(&padded::<16>(&disk.name));
    b.extend_from_slice(&padded::<4>(env!("CARGO_PKG_VERSION")));
    b.resize(58, 0);
    // SAM-5, SPC-4, SBC-3, iSCSI.
    for version in [0x00a0u16, 0x0460, 0x04c0, 0x0960] {
        b.extend_from_slice(&version.to_be_bytes());
    }
    b.resize(74, 0);
    b
}

fn identification(disk: &Disk) -> Vec<u8> {
    let mut b = Vec::new();
    let mut add = |set: u8, kind: u8, id: &[u8]| {
        b.extend_from_slice(&[set, kind, 0, id.len() as u8]);
        b.extend_from_slice(id);
    };
    // The identifier is assigned locally: it is the volume's identity.
    let mut naa = [0; 8];
    naa.copy_from_slice(&disk.uuid[..8]);
    naa[0] = 0x30 | naa[0] & 0x0f;
    add(1, 3, &naa);
    let mut vendor = padded::<8>("ISOTHERM").to_vec();
    vendor.extend_from_slice(serial(disk).as_bytes());
    add(2, 1, &vendor);
    // Name of the unit and of its port, in UTF-8 with a terminating zero, padded to whole words.
    for (kind, tail) in [(0x08, ",L,0x0000000000000000"), (0x98, ",t,0x0001")] {
        let mut name = format!("{}{tail}", disk.target).into_bytes();
        name.truncate(247);
        name.push(0);
        name.resize(name.len().next_multiple_of(4), 0);
        add(3 | if kind & 0x80 == 0 { 0 } else { 0x50 }, kind, &name);
    }
    b
}

fn limits(disk: &Disk) -> Vec<u8> {
    let blocks = |bytes: u64| (bytes / u64::from(disk.block)).min(u32::MAX.into()) as u32;
    // The byte numbers are those of the standard; the body begins at byte 4. WSNZ: a WRITE SAME of zero blocks is refused.
    let mut b = vec![0; 60];
    b[0] = 1;
    let mut put = |at: usize, value: u32| b[at - 4..at].copy_from_slice(&value.to_be_bytes());
    put(8, blocks(MAX_TRANSFER.into()));
    put(12, blocks(disk.preferred.into()));
    put(20, blocks(MAX_UNMAP));
    put(24, MAX_RANGES as u32);
    put(28, 1);
    b[2..4].copy_from_slice(&1u16.to_be_bytes());
    b[32..40].copy_from_slice(&u64::from(blocks(MAX_TRANSFER.into())).to_be_bytes());
    b
}

/// Mode pages: caching (8) and control (0a).
pub(super) fn mode_sense(disk: &Disk, cdb: &[u8; 16]) -> Result<Vec<u8>, Sense> {
    let is_10 = cdb[0] == 0x5a;
    let (changeable, saved) = (cdb[2] >> 6 == 1, cdb[2] >> 6 == 3);
    let (page, sub) = (cdb[2] & 0x3f, cdb[3]);
    if saved {
        // Saving parameters is not supported.
        return Err(Sense(5, 0x39, 0));
    }
    let mut pages = Vec::new();
    let mut add = |number: u8, len: usize, set: &[(usize, u8)]| {
        if page != number && page != 0x3f {
            return;
        }
        let start = pages.len();
        pages.extend_from_slice(&[number, len as u8]);
        pages.resize(start + 2 + len, 0u8);
        for (at, value) in set.iter().filter(|_| !changeable) {
            pages[start + at] = *value;
        }
    };
    // A volatile write cache, which is written by a flush.
    add(0x08, 18, &[(2, 4)]);
    // Commands may be reordered; busy time-out unlimited.
    add(0x0a, 10, &[(3, 0x10), (8, 0xff), (9, 0xff)]);
    if pages.is_empty() || !(sub == 0 || (page == 0x3f && sub == 0xff)) {
        return Err(Sense::FIELD);
    }
    // Write protection; DPO and FUA are supported.
    let specific = if disk.read_only { 0x90 } else { 0x10 };
    let blocks = u32::try_from(disk.blocks()).unwrap_or(u32::MAX);
    let mut descriptor = blocks.to_be_bytes().to_vec();
    descriptor.extend_from_slice(&disk.block.to_be_bytes());
    if cdb[1] & 8 != 0 {
        descriptor.clear();
    }
    let body = descriptor.len() + pages.len();
    let mut b = if is_10 {
        let len = (body + 6) as u16;
        let mut b = len.to_be_bytes().to_vec();
        b.extend_from_slice(&[0, specific, 0, 0, 0, descriptor.len() as u8]);
        b
    } else {
        vec![(body + 3) as u8, 0, specific, descriptor.len() as u8]
    };
    b.extend_from_slice(&descriptor);
    b.extend_from_slice(&pages);
    Ok(b)
}

/// READ CAPACITY (10).
pub(super) fn capacity_10(disk: &Disk, cdb: &[u8; 16]) -> Result<Vec<u8>, Sense> {
    // If PMI is 0, the address must be zero.
    if cdb[8] & 1 == 0 && cdb[2..6] != [0; 4] {
        return Err(Sense::FIELD);
    }
    let last = u32::try_from(disk.blocks() - 1).unwrap_or(u32::MAX);
    let mut b = last.to_be_bytes().to_vec();
    b.extend_from_slice(&disk.block.to_be_bytes());
    Ok(b)
}

/// READ CAPACITY (16).
pub(super) fn capacity_16(disk: &Disk) -> Vec<u8> {
    let mut b = (disk.blocks() - 1).to_be_bytes().to_vec();
    b.extend_from_slice(&disk.block.to_be_bytes());
    b.resize(32, 0);
    // LBPME, LBPRZ.
    b[14] = if disk.zeros { 0xc0 } else { 0x80 };
    b
}

/// REPORT LUNS: there is one unit, number 0.
pub(super) fn report_luns(cdb: &[u8; 16]) -> Result<Vec<u8>, Sense> {
    let luns = match cdb[2] {
        0 | 2 => 1,
        // Only well-known units are requested; there are none.
        1 => 0,
        _ => return Err(Sense::FIELD),
    };
    let mut b = vec![0; 8 + 8 * luns];
    b[3] = 8 * luns as u8;
    Ok(b)
}

/// INQUIRY of a unit that does not exist.
pub(super) fn absent_unit() -> Vec<u8> {
    let mut b = vec![0; 36];
    (b[0], b[2], b[3], b[4]) = (0x7f, 6, 2, 31);
    b
}

/// The answer to GET LBA STATUS (SBC-3, 5.4): runs of bytes, mapped or not, beginning at `offset`.
pub(super) fn lba_status(disk: &Disk, mut offset: u64, runs: &[(u32, bool)]) -> Vec<u8> {
    let block = u64::from(disk.block);
    let mut out = vec![0; 8];
    for (bytes, mapped) in runs {
        out.extend_from_slice(&(offset / block).to_be_bytes());
        out.extend_from_slice(&(*bytes / disk.block).to_be_bytes());
        out.extend_from_slice(&[u8::from(!mapped), 0, 0, 0]);
        offset += u64::from(*bytes);
    }
    let len = (out.len() as u32 - 4).to_be_bytes();
    out[..4].copy_from_slice(&len);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    fn disk() -> Disk {
        Disk {
            name: "v".into(),
            target: "iqn.2026-01.org.example:v".into(),
            uuid: [0xab; 16],
            present_blocks: AtomicU64::new(1 << 33),
            block: 512,
            preferred: 64 << 10,
            read_only: false,
            zeros: true,
        }
    }

    #[test]
    fn every_page_that_is_listed_is_there_and_says_its_length() {
        let page = |n: u8| {
            let mut cdb = [0; 16];
            (cdb[0], cdb[1], cdb[2]) = (0x12, 1, n);
            inquiry(&disk(), &cdb)
        };
        let list = page(0).expect("the list");
        assert_eq!(list[4..].len(), 6);
        for n in &list[4..] {
            let p = page(*n).expect("listed");
            assert_eq!(p[1], *n);
            assert_eq!(p.len(), 4 + usize::from(p[2]) * 256 + usize::from(p[3]));
        }
        assert_eq!(page(0x86), Err(Sense::FIELD));
        let limits = page(0xb0).expect("limits");
        assert_eq!(limits[8..12], (MAX_TRANSFER / 512).to_be_bytes());
        assert_eq!(limits[20..24], ((MAX_UNMAP / 512) as u32).to_be_bytes());
        assert_eq!(limits[24..28], (MAX_RANGES as u32).to_be_bytes());
        assert_eq!(limits[36..44], u64::from(MAX_TRANSFER / 512).to_be_bytes());
        assert_eq!(standard(&disk()).len(), 74);
    }

    #[test]
    fn capacities_and_modes_are_as_they_should_be() {
        assert_eq!(
            capacity_10(&disk(), &[0; 16]).expect("valid")[..4],
            [0xff; 4]
        );
        assert_eq!(capacity_16(&disk())[..8], ((1u64 << 33) - 1).to_be_bytes());
        let mut cdb = [0; 16];
        (cdb[0], cdb[2]) = (0x1a, 0x3f);
        let all = mode_sense(&disk(), &cdb).expect("all pages");
        assert_eq!(all.len(), usize::from(all[0]) + 1);
        assert_eq!((all[3], all[12], all[14]), (8, 8, 4));
        cdb[2] = 0x7f;
        let changeable = mode_sense(&disk(), &cdb).expect("nothing to change");
        assert_eq!(changeable[14], 0);
        cdb[2] = 0x01;
        assert_eq!(mode_sense(&disk(), &cdb), Err(Sense::FIELD));
        cdb[0] = 0x5a;
        cdb[2] = 0x08;
        let ten = mode_sense(&disk(), &cdb).expect("page 8");
        assert_eq!(
            ten.len(),
            2 + usize::from(ten[0]) * 256 + usize::from(ten[1])
        );
    }
}
