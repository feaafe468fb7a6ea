//! Looks at spares once, and asks the drives under the members how they are, now and then. A thread of its own waits for them, because a drive may hang.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Child;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use isotherm_answers::Drive;
use isotherm_control::live::Live;
use isotherm_live::stack::{self, tree::Tree};

use crate::Failure;
use crate::smart::{Asked, Smartctl};

/// Interval between two questions.
const EACH: Duration = Duration::from_secs(600);
const HANGS: &str = "hangs: smartctl waits for it and cannot be ended";

/// Asks until the result is dropped. Nobody waits for the thread to end.
pub(super) fn start(service: &Arc<Live>) -> Result<Sender<()>, Failure> {
    let (until, ended) = channel();
    let service = Arc::clone(service);
    let thread = std::thread::Builder::new().name("drives".into());
    let run = move || {
        service.check_spares();
        Asker::default().run(&service, &ended);
    };
    (thread.spawn(run))
        .map_err(|e| Failure::failed(format!("no thread for the health of drives: {e}")))?;
    Ok(until)
}

#[derive(Default)]
struct Asker {
    /// Programs that wait for a drive that hangs, by what names the drive. It is not asked again until they have ended.
    stuck: BTreeMap<String, Child>,
    /// What was said about the program, which is said once.
    said: Option<String>,
}

impl Asker {
    fn run(&mut self, service: &Live, ended: &Receiver<()>) {
        loop {
            match Smartctl::find() {
                Ok(smartctl) => self.ask_all(&smartctl, service),
                Err(why) => self.say(why),
            }
            if ended.recv_timeout(EACH) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
    }

    fn say(&mut self, why: String) {
        if self.said.as_ref() != Some(&why) {
            tracing::info!("the health of drives is not known: {why}");
            self.said = Some(why);
        }
    }

    fn ask_all(&mut self, smartctl: &Smartctl, service: &Live) {
        let base = service.file.parent().unwrap_or(Path::new(""));
        // A drive that several members share is asked once.
        let mut heard: BTreeMap<String, Drive> = BTreeMap::new();
        for (place, member) in service.config().members.iter().enumerate() {
            let path = base.join(&member.path);
            let is_there = !member.removed && stack::reachable(&path).is_ok();
            let tree = is_there.then(|| Tree::of(&path, Path::new("/"))).flatten();
            let mut drives = Vec::new();
            for (name, node) in tree.iter().flat_map(|t| t.drives(0)) {
                let drive = match heard.get(name) {
                    Some(drive) => drive.clone(),
                    None => self.ask(smartctl, name, &node.path()),
                };
                heard.insert(name.to_owned(), drive.clone());
                drives.push(drive);
            }
            service.drives.heard((place, &member.path), drives);
        }
    }

    fn ask(&mut self, smartctl: &Smartctl, name: &str, device: &str) -> Drive {
        let unknown = |why: &str| Drive {
            device: device.to_owned(),
            not_known: Some(why.to_owned()),
            ..Drive::default()
        };
        if let Some(child) = self.stuck.get_mut(name) {
            if matches!(child.try_wait(), Ok(None)) {
                return unknown(HANGS);
            }
            self.stuck.remove(name);
        }
        match smartctl.ask(device) {
            Asked::Known(drive) => drive,
            Asked::Asleep => Drive {
                device: device.to_owned(),
                asleep: true,
                ..Drive::default()
            },
            Asked::Unknown(why) => unknown(&why),
            Asked::Stuck(child) => {
                self.stuck.insert(name.to_owned(), child);
                unknown(HANGS)
            }
        }
    }
}
