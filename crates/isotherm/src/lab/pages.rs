//! `--html FILE`, `--svg DIR`, `--png DIR`: the destinations of pages and pictures.

use std::path::{Path, PathBuf};

use isotherm_report::{Chart, Page};

use crate::Failure;
use crate::json::to_file;

/// Size of a picture in pixels.
const SIZE: (u32, u32) = (900, 420);
/// A PNG has this many pixels per pixel of [`SIZE`] in each direction, for present screens and for paper.
const PNG_SCALE: f32 = 2.0;

/// The options that every command with a page has.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct PageArgs {
    /// Write a page with charts: one HTML file that loads nothing
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write each chart as a picture into a directory
    #[arg(long, value_name = "DIR")]
    pub svg: Option<PathBuf>,
    /// As --svg, in pixels
    #[arg(long, value_name = "DIR")]
    pub png: Option<PathBuf>,
}

impl PageArgs {
    /// Whether any page or picture is requested.
    pub fn wanted(&self) -> bool {
        self.html.is_some() || self.svg.is_some() || self.png.is_some()
    }

    /// Writes the requested files. Pictures are named by number and title: `03-latency.svg`.
    ///
    /// # Errors
    /// A file cannot be written; an earlier file of that name is then unchanged.
    pub fn write(&self, page: &Page) -> Result<(), Failure> {
        if let Some(file) = &self.html {
            to_file(file, page.html())?;
        }
        if let Some(dir) = &self.svg {
            each(dir, "svg", page, |c| {
                Ok(c.svg(SIZE.0, SIZE.1)?.into_bytes())
            })?;
        }
        if let Some(dir) = &self.png {
            each(dir, "png", page, |c| c.png(SIZE.0, SIZE.1, PNG_SCALE))?;
        }
        Ok(())
    }
}

fn each(
    dir: &Path,
    ending: &str,
    page: &Page,
    draw: impl Fn(&Chart) -> Result<Vec<u8>, isotherm_lab::LabError>,
) -> Result<(), Failure> {
    std::fs::create_dir_all(dir).map_err(|e| Failure::file(dir, "create", &e))?;
    for (i, c) in page.charts().enumerate() {
        let picture = draw(c).map_err(|e| Failure::failed(e.to_string()))?;
        to_file(
            &dir.join(format!("{:02}-{}.{ending}", i + 1, slug(&c.title))),
            picture,
        )?;
    }
    Ok(())
}

/// A title as a file name: letters and digits, with `-` between words.
fn slug(title: &str) -> String {
    let words = title
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|w| !w.is_empty());
    let name = words.collect::<Vec<_>>().join("-").to_lowercase();
    if name.is_empty() {
        "chart".to_owned()
    } else {
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_report::{CostCurve, cost_chart};

    #[test]
    fn pages_and_pictures_are_written_whole() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut page = Page::new("t", "s");
        let curve = CostCurve {
            name: "a".to_owned(),
            once_usd: 1.0,
            per_run_usd: 1.0,
        };
        let mut chart = cost_chart(&[curve]);
        page.chart(chart.clone());
        chart.title = "../../etc/\u{e4}".to_owned();
        page.chart(chart);
        let args = PageArgs {
            html: Some(dir.path().join("p.html")),
            svg: Some(dir.path().join("new/svg")),
            png: Some(dir.path().join("png")),
        };
        assert!(args.wanted() && !PageArgs::default().wanted());
        args.write(&page).expect("written");
        for file in [
            "p.html",
            "new/svg/01-cost-over-the-time-factor.svg",
            "new/svg/02-etc.svg",
            "png/01-cost-over-the-time-factor.png",
        ] {
            assert!(dir.path().join(file).is_file(), "{file}");
        }
        assert_eq!(slug("</>"), "chart");
        let nowhere = PageArgs {
            html: Some(dir.path().join("p.html/x")),
            ..PageArgs::default()
        };
        assert!(nowhere.write(&page).is_err());
    }
}
