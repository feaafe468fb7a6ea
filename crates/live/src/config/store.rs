//! The description of an object store that is the slow member of a volume, `p/v.store`. It holds no credentials.

use super::{BYTES_MAX, Size};
use crate::error::{Error, ErrorKind};
use serde::{Deserialize, Serialize};
use std::fmt::Display;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Name of the file that `isotherm-store` shows.
pub const DISK: &str = "disk";

/// Whether a text names a store, and not a path.
pub fn is_store(text: &str) -> bool {
    ["s3://", "gs://", "az://", "file://"]
        .iter()
        .any(|s| text.starts_with(s))
}

/// What `isotherm-store run` serves. What is left out has the default of `isotherm-store serve`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoreConfig {
    /// `s3://BUCKET/PREFIX`, `gs://…`, `az://CONTAINER/PREFIX` or `file:///DIRECTORY`, without credentials.
    pub url: String,
    /// The store's identity, 32 hexadecimal digits: a store at this URL that has another one is refused.
    pub id: String,
    /// Size of the disk.
    pub size: Size,
    /// Largest payload of an object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object_size: Option<Size>,
    /// The directory in which the file [`DISK`] appears.
    pub dir: PathBuf,
    /// The directory on local flash for what is not yet in the store.
    pub spool: PathBuf,
    /// Largest size of the spool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spool_size: Option<Size>,
    /// Seconds after which a FLUSH ends an epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order_s: Option<u64>,
    /// Dirty bytes at which a FLUSH ends an epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch_size: Option<Size>,
    /// Seconds for which a read waits for a store that is away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote_wait_s: Option<u64>,
    /// Memory for blocks of the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<Size>,
    /// Seconds for which objects stay that are not needed any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_s: Option<u64>,
}

fn bad(file: &Path, e: &dyn Display) -> Error {
    let what = format!("{}: {e}", file.display());
    Error::new(ErrorKind::Config, what.trim_end())
}

impl StoreConfig {
    /// The description's place for volume `p/v`: `p/v.store`.
    pub fn place(volume: &Path) -> PathBuf {
        crate::volume::description(volume).with_extension("store")
    }

    /// Reads `file`; `None` if it does not exist.
    ///
    /// # Errors
    /// It cannot be read, has an unknown field, or a value of a wrong type.
    pub fn load(file: &Path) -> Result<Option<StoreConfig>, Error> {
        match isotherm_paths::read_text(file, BYTES_MAX) {
            Ok(text) => toml::from_str(&text).map(Some).map_err(|e| bad(file, &e)),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(bad(file, &e)),
        }
    }

    /// Writes `file` whole or not at all.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn save(&self, file: &Path) -> Result<(), Error> {
        let text = toml::to_string(self).map_err(|e| bad(file, &e))?;
        isotherm_paths::replace_behind_links(file, 0o644, |f| f.write_all(text.as_bytes()))
            .map_err(|e| bad(file, &e))
    }

    /// An identity for a store that is to be made.
    ///
    /// # Errors
    /// The system has no random numbers yet.
    pub fn new_id() -> Result<String, Error> {
        Ok(super::format_uuid(&crate::random::random()?))
    }

    /// The same with the values of `KEY=VALUE` texts.
    ///
    /// # Errors
    /// No such key, one that a user does not set, or a value of a wrong type.
    pub fn with(&self, settings: &[(String, String)]) -> Result<StoreConfig, String> {
        let mut table = toml::Table::try_from(self).map_err(|e| e.to_string())?;
        let mut set = self.clone();
        for (key, value) in settings {
            if ["url", "id", "size", "dir"].contains(&key.as_str()) {
                return Err(format!("{key}: is not set in this way"));
            }
            let number = value.parse().map(toml::Value::Integer);
            table.insert(key.clone(), number.unwrap_or_else(|_| value.clone().into()));
            let read: Result<StoreConfig, toml::de::Error> = table.clone().try_into();
            set = read.map_err(|e| format!("{key}: {}", e.message()))?;
        }
        Ok(set)
    }

    /// The file that is the member.
    pub fn disk(&self) -> PathBuf {
        self.dir.join(DISK)
    }

    /// The options of `isotherm-store serve`.
    pub fn options(&self) -> Vec<String> {
        let path = |p: &Path| p.to_string_lossy().into_owned();
        let mut all = vec![
            self.url.clone(),
            path(&self.dir),
            "--spool".into(),
            path(&self.spool),
        ];
        let mut add = |name: &str, value: Option<String>| {
            all.extend(value.map(|v| format!("--{name}={v}")));
        };
        let size = |s: Option<Size>| s.map(|s| s.to_string());
        let seconds = |s: Option<u64>| s.map(|s| s.to_string());
        add("spool-size", size(self.spool_size));
        add("order-s", seconds(self.order_s));
        add("epoch-size", size(self.epoch_size));
        add("remote-wait", seconds(self.remote_wait_s));
        add("cache", size(self.cache));
        add("grace", seconds(self.grace_s));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_checked_and_become_options() {
        let plain = StoreConfig {
            url: "s3://b/p".into(),
            dir: "/d".into(),
            spool: "/s".into(),
            ..StoreConfig::default()
        };
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let set = plain.with(&[
            pair("order_s", "5"),
            pair("cache", "16M"),
            pair("spool", "/f"),
        ]);
        let options = set.as_ref().map(StoreConfig::options);
        let expected = [
            "s3://b/p",
            "/d",
            "--spool",
            "/f",
            "--order-s=5",
            "--cache=16M",
        ];
        assert_eq!(options, Ok(expected.map(String::from).to_vec()));
        for (key, value, says) in [
            ("order", "5", "unknown field"),
            ("order_s", "soon", "order_s"),
            ("cache", "-1", "negative"),
            ("url", "s3://x/y", "is not set"),
            ("secret_access_key", "x", "unknown field"),
        ] {
            let said = plain.with(&[pair(key, value)]).unwrap_err();
            assert!(said.contains(says), "{key}: {said}");
        }
    }

    #[test]
    fn stores_are_told_from_paths() {
        assert!(is_store("s3://b/p") && is_store("file:///d") && is_store("az://c"));
        assert!(!is_store("s3") && !is_store("/dev/sda") && !is_store("http://x/y"));
    }
}
