//! The volumes of the web view: the one that this process serves, or all that are served on this machine.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use isotherm_answers::{Brief, ListedState, Params};
use isotherm_core::engine::KNOBS;
use isotherm_core::policy::{PRESETS, Preset};
use isotherm_web::{Listed, Question, Settings, Source, WebServer};
use serde::Serialize;
use serde_json::Value;

use crate::args::WebArgs;
use crate::control::Request;
use crate::control::client::connect;
use crate::frame::frame;
use crate::overview::Sample;
use crate::{Failure, place};
use isotherm_control::health::Level;
use isotherm_control::live::Live;
use isotherm_control::server::Service;

// A page may ask for at most as many cells as a volume answers with.
const _: () = assert!(isotherm_web::BINS_MAX <= isotherm_control::atlas::CELLS_MAX);

/// A server that does not answer within this time is treated as hanging.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Answers questions about volumes.
pub trait VolumeSource: Send + Sync + 'static {
    /// All volumes.
    fn volumes(&self) -> Vec<Listed>;
    /// The answer of a volume.
    ///
    /// # Errors
    /// One line that says what is wrong.
    fn ask(&self, volume: &str, request: &Request) -> Result<Value, String>;
}

/// The volume that this process serves.
pub struct Own(pub Arc<Live>);

impl VolumeSource for Own {
    fn volumes(&self) -> Vec<Listed> {
        let live = &self.0;
        let health = live.health();
        let (state, note) = match health.level {
            Level::Well => ("serving", None),
            level => (level.word(), Some(health.sentence())),
        };
        let config = live.config.lock().unwrap_or_else(PoisonError::into_inner);
        vec![Listed {
            id: live.volume.display().to_string(),
            name: config.name.clone(),
            state: state.to_owned(),
            note,
            served: true,
        }]
    }

    fn ask(&self, _volume: &str, request: &Request) -> Result<Value, String> {
        self.0.answer(request)
    }
}

/// All volumes of the machine, through their control sockets.
pub struct Machine;

impl VolumeSource for Machine {
    fn volumes(&self) -> Vec<Listed> {
        let mut paths = place::described_volumes();
        paths.extend(place::served_volumes());
        let mut paths: Vec<PathBuf> = (paths.into_iter())
            .map(|p| std::path::absolute(&p).unwrap_or(p))
            .collect();
        paths.sort();
        paths.dedup();
        paths.iter().map(|p| listed(p)).collect()
    }

    fn ask(&self, volume: &str, request: &Request) -> Result<Value, String> {
        let client = connect(Path::new(volume)).map_err(|e| e.to_string())?;
        let client = client.ok_or_else(|| format!("{volume}: is not served (any more)"))?;
        let mut client = client.with_limit(TIMEOUT);
        client.ask(request).map_err(|e| e.to_string())
    }
}

fn listed(volume: &Path) -> Listed {
    let one = crate::cmd::list::summary(volume);
    let state = match one.health {
        Some(health) if health != Level::Well => isotherm_answers::word(health),
        _ => isotherm_answers::word(one.state),
    };
    Listed {
        id: volume.display().to_string(),
        name: one.name,
        served: matches!(
            one.state,
            ListedState::Serving | ListedState::Failed | ListedState::Unreachable
        ),
        state,
        note: one.note,
    }
}

/// The policy of a volume, as the page shows it.
#[derive(Serialize)]
struct Chosen {
    policy: String,
    name: String,
    what: Option<&'static str>,
    source: Option<&'static str>,
    kind: Option<&'static str>,
    params: Option<Params>,
    meanings: BTreeMap<&'static str, Meaning>,
    presets: Vec<Known>,
}

/// The meaning of a parameter.
#[derive(Serialize)]
struct Meaning {
    what: String,
    default: Option<&'static str>,
    of: &'static str,
}

/// A policy that can be chosen.
#[derive(Serialize)]
struct Known {
    name: &'static str,
    what: &'static str,
}

/// The source of the web view, which uses the answers of volumes.
pub struct View<A> {
    asked: A,
    last: Mutex<BTreeMap<String, Sample>>,
}

impl<A: VolumeSource> View<A> {
    /// A view of these volumes.
    pub fn new(asked: A) -> View<A> {
        View {
            asked,
            last: Mutex::default(),
        }
    }

    fn policy(&self, volume: &str) -> Result<Value, String> {
        let status = self.asked.ask(volume, &Request::Status)?;
        let Brief { policy, params, .. } = isotherm_answers::read(&status)?;
        let policy = policy.unwrap_or_default();
        let name = policy.split(',').next().unwrap_or_default().to_owned();
        let mut meanings = BTreeMap::new();
        for k in KNOBS {
            // Errors print the name before it.
            let range = k.range.split_once(": ").map_or(k.range, |r| r.1);
            let meaning = Meaning {
                what: format!("{} ({})", k.what, range),
                default: None,
                of: "engine",
            };
            meanings.insert(k.name, meaning);
        }
        let preset = PRESETS.iter().find(|p| p.name == name);
        for q in preset.into_iter().flat_map(Preset::parameters) {
            let meaning = Meaning {
                what: q.what.to_owned(),
                default: Some(q.default),
                of: "policy",
            };
            meanings.insert(q.name, meaning);
        }
        let known = |p: &Preset| Known {
            name: p.name,
            what: p.what,
        };
        Ok(isotherm_answers::json(&Chosen {
            policy,
            name,
            what: preset.map(|p| p.what),
            source: preset.map(|p| p.source),
            kind: preset.map(Preset::kind),
            params,
            meanings,
            presets: PRESETS.iter().map(known).collect(),
        }))
    }

    fn set(&self, volume: &str, wanted: Vec<(String, Value)>) -> Result<Value, String> {
        let (mut values, mut words) = (Vec::new(), Vec::new());
        for (key, value) in wanted {
            match value {
                Value::Number(n) => values.push((key, n.as_f64().unwrap_or(f64::NAN))),
                Value::String(s) => words.push((key, s)),
                _ => return Err(format!("{key}: a number or a name")),
            }
        }
        self.asked.ask(volume, &Request::Set { values, words })
    }
}

impl<A: VolumeSource> Source for View<A> {
    fn volumes(&self) -> Vec<Listed> {
        self.asked.volumes()
    }

    fn look(&self, volume: &str) -> Result<Value, String> {
        let seen = self.asked.ask(volume, &Request::Look).map_err(|e| {
            if e.starts_with("not a request") {
                return "it is served by an older program: stop it and serve it again".to_owned();
            }
            e
        })?;
        let seen = isotherm_answers::read_look(&seen)?;
        let now = Sample {
            stats: seen.stats,
            status: seen.status,
            at: Instant::now(),
        };
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = isotherm_answers::json(&frame(&now, last.get(volume)));
        last.insert(volume.to_owned(), now);
        Ok(seen)
    }

    fn ask(&self, volume: &str, question: Question) -> Result<Value, String> {
        let request = match question {
            Question::Map { from, to, bins } => Request::Map {
                from,
                to,
                cells: bins,
            },
            Question::Moves => Request::Moves,
            Question::Why { offset } => Request::Why { offset },
            Question::Policy => return self.policy(volume),
            Question::Set(values) => return self.set(volume, values),
            Question::Switch(policy) => Request::Policy { policy },
        };
        self.asked.ask(volume, &request)
    }
}

/// Starts the view as the command line describes it; `None` if there is no address.
///
/// # Errors
/// The address, the token or the certificate is wrong; the message says what.
pub fn start(
    address: Option<&isotherm_web::Address>,
    args: &WebArgs,
    source: Arc<dyn Source>,
) -> Result<Option<WebServer>, Failure> {
    let Some(address) = address else {
        return Ok(None);
    };
    let tls = args.web_tls_cert.clone().zip(args.web_tls_key.clone());
    let mut settings = Settings {
        address: address.clone(),
        tls,
        token: args.web_token.as_ref().map(|_| String::new()),
        control: args.web_control,
    };
    settings.check().map_err(Failure::Usage)?;
    if let Some(file) = &args.web_token {
        settings.token = Some(isotherm_web::token(file).map_err(Failure::failed)?);
    }
    let server = WebServer::start(settings, source).map_err(Failure::failed)?;
    let allowed = match (&args.web_token, args.web_control) {
        (Some(file), true) => format!(", changes with the token in {}", file.display()),
        (Some(file), false) => format!(", token in {}", file.display()),
        (None, _) => ", read-only".to_owned(),
    };
    tracing::info!(
        address = server.address(),
        "web view at {}{allowed}",
        server.address()
    );
    Ok(Some(server))
}
