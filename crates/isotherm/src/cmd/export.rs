//! `isotherm export`.

use isotherm_live::config::VolumeConfig;
use isotherm_live::volume::description;

use crate::Failure;
use crate::args::ExportArgs;

/// Prints the description that `create --config` takes: without the volume's identity and without members that were taken out.
///
/// # Errors
/// There is no such volume; a disk of it was adopted, and `create` would erase such a disk; its slow tier is an object store; or it has no flash.
pub fn run(args: &ExportArgs) -> Result<(), Failure> {
    let file = description(&args.volume);
    let failed = |e: isotherm_live::Error| Failure::failed(e.to_string());
    let mut config = VolumeConfig::load(&file).map_err(failed)?;
    if let Some(m) = config.members.iter().find(|m| m.tail.is_some()) {
        return Err(Failure::failed(format!(
            "{}: {} was adopted with what it holds, and `create` would erase it: on the other machine use `isotherm adopt`",
            file.display(),
            m.path.display()
        )));
    }
    if let Some(store) = crate::store::of(&args.volume)? {
        return Err(Failure::failed(format!(
            "{}: its slow tier is the object store {}, which no description for `create --config` names: use `isotherm create --slow URL:SIZE`",
            file.display(),
            store.url
        )));
    }
    config.uuid = None;
    config.members.retain(|m| !m.removed);
    if config.check().is_err() {
        // What was removed left a tier without a member.
        let what = "it has no flash at present, which no description says: give it some with `isotherm cache add`, or make the other volume with `create --without-flash`";
        return Err(Failure::failed(format!("{}: {what}", file.display())));
    }
    let base = file.parent().unwrap_or(std::path::Path::new(""));
    for m in &mut config.members {
        m.path = std::path::absolute(base.join(&m.path))
            .map_err(|e| Failure::file(&m.path, "find its whole path", &e))?;
        m.spare = m.spare.take().map(|spare| base.join(spare));
    }
    crate::json::to_stdout(&config.to_toml().map_err(failed)?)
}
