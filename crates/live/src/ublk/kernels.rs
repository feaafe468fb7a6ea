//! Kernels whose ublk driver crashes the machine when a device is added (ADD_DEV), from public reports. With the service enabled, that would
//! be a panic at each boot.
//!
//! A kernel that is listed wrongly, because its distribution has mended it under the same name, costs speed: `--device` takes a loop device
//! there. One that is not listed costs the machine. So what is doubtful counts as listed.

use std::ops::RangeInclusive;

/// Builds with this defect.
struct Broken {
    /// The version of Linux from which they are made.
    version: [u32; 3],
    /// Numbers and flavour of a distribution's builds, as in `6.17.0-1015-azure`; `None`: all builds of this version.
    builds: Option<(RangeInclusive<u32>, &'static str)>,
}

const BROKEN: [Broken; 4] = [
    // The defect came with 6.18.4 and was mended in 6.18.6.
    Broken {
        version: [6, 18, 4],
        builds: None,
    },
    Broken {
        version: [6, 18, 5],
        builds: None,
    },
    // Ubuntu took the same change into builds of 6.17.0. The reports name 1015 and 1018 of azure; what lies between counts as well.
    Broken {
        version: [6, 17, 0],
        builds: Some((1015..=1018, "azure")),
    },
    Broken {
        version: [6, 17, 0],
        builds: Some((1017..=1017, "aws")),
    },
];

/// The reason why devices must not be added on the running kernel, if its driver is known to be broken.
pub(super) fn defect() -> Option<String> {
    // Without /proc the kernel stays unknown.
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
    let release = release.trim();
    is_broken(release).then(|| {
        format!(
            "ublk: the driver of this kernel ({release}) crashes the machine when a device is added (mended in Linux 6.18.6): start another \
             kernel"
        )
    })
}

/// Takes a number from the front of a text.
fn number(text: &str) -> Option<(u32, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit());
    let (digits, rest) = text.split_at(end.unwrap_or(text.len()));
    Some((digits.parse().ok()?, rest))
}

/// The version, and what follows it.
fn version(release: &str) -> Option<([u32; 3], &str)> {
    let (major, rest) = number(release)?;
    let (minor, rest) = number(rest.strip_prefix('.')?)?;
    // The first release of a series may lack the third number.
    let (patch, rest) = rest.strip_prefix('.').and_then(number).unwrap_or((0, rest));
    Some(([major, minor, patch], rest))
}

/// Whether this is the release (`uname -r`) of a kernel in the list.
fn is_broken(release: &str) -> bool {
    let Some((mut version, rest)) = version(release) else {
        return false;
    };
    // A candidate may lack what the version itself has: that of 6.18.6 counts as 6.18.5, that of 6.18.4 as itself.
    let is_candidate = rest.starts_with("-rc");
    if is_candidate && version == [6, 18, 6] {
        version[2] -= 1;
    }
    BROKEN.iter().any(|b| {
        let built = b.builds.as_ref().is_none_or(|(numbers, flavour)| {
            let build = rest.strip_prefix('-').and_then(number);
            build.is_some_and(|(n, rest)| {
                // Variants such as `azure-fde` are made from the same source.
                let of = rest.strip_prefix('-').and_then(|r| r.strip_prefix(flavour));
                numbers.contains(&n) && of.is_some_and(|r| r.is_empty() || r.starts_with('-'))
            })
        });
        b.version == version && built
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_of_broken_kernels_are_known_by_their_names() {
        for release in [
            "6.18.4",
            "6.18.5",
            "6.18.5-arch1-1",
            "6.18.5-200.fc43.x86_64",
            "6.18.4-gentoo-x86_64",
            "6.18.5+deb14-amd64",
            "6.18.5+",
            "6.18.5-rt3",
            "6.18.4-rc1",
            "6.18.6-rc2",
            "6.17.0-1015-azure",
            "6.17.0-1016-azure",
            "6.17.0-1018-azure",
            "6.17.0-1018-azure-fde",
            "6.17.0-1017-aws",
        ] {
            assert!(is_broken(release), "{release}");
        }
        for release in [
            "",
            "linux",
            "6",
            "6.18",
            "6.18.0",
            "6.18.3-arch1-1",
            "6.18.6",
            "6.18.6-200.fc43.x86_64",
            "6.18.40",
            "6.18.50-rc1",
            "6.19.4",
            "6.19.5",
            "6.19-rc5",
            "7.18.5",
            "16.18.5",
            "6.17.4",
            "6.17.0-1014-azure",
            "6.17.0-1019-azure",
            "6.17.0-1015-azureous",
            "6.17.0-1015-gcp",
            "6.17.0-1016-aws",
            "6.17.0-1018-aws",
            "6.17.0-17-generic",
            "6.14.0-1017-aws",
            "6.12.48+deb13-amd64",
            "5.15.0-1015-azure",
            "99999999999.1.1",
        ] {
            assert!(!is_broken(release), "{release}");
        }
    }
}
