//! `--html FILE`, `--svg DIR`, `--png DIR`: where pages and pictures go.

use std::path::PathBuf;

use isotherm_lab::report::Page;

use crate::Failure;
use crate::json::to_file;

/// The options that every command with a page has.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct PageArgs {
    /// Write a page with charts: one HTML file that loads nothing
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

impl PageArgs {
    /// Is anything asked for?
    pub fn wanted(&self) -> bool {
        self.html.is_some()
    }

    /// Write what was asked for.
    ///
    /// # Errors
    /// A file cannot be written; an earlier one of that name is then as it was.
    pub fn write(&self, page: &Page) -> Result<(), Failure> {
        if let Some(file) = &self.html {
            to_file(file, page.html())?;
        }
        Ok(())
    }
}
