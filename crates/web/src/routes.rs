//! The paths and their answers.
//!
//! ```text
//! GET  /                            the page; /app.css, /*.js, /icon.svg
//! GET  /api/volumes                 all volumes, and what is allowed here
//! GET  /api/events?volume=V         server-sent events: history, frame, gone
//! GET  /api/map?volume=V&from=&to=&bins=     /api/moves  /api/why?offset=  /api/policy
//! POST /api/set    {"volume": V, "values": {"KEY": VALUE}}          with the token, where --web-control was given
//! POST /api/switch {"volume": V, "policy": "NAME,KEY=VALUE"}
//! ```

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, extract::rejection::JsonRejection};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::guard::{guard, refused};
use crate::served::{Served, Which};
use crate::{BINS_MAX, Listed, Question, events};

/// Most bytes of a request's body.
const BODY_MAX: usize = 16 << 10;
/// Path, content type, and content, which is embedded in the program.
const ASSETS: [(&str, &str, &str); 10] = [
    (
        "/",
        "text/html; charset=utf-8",
        include_str!("../assets/index.html"),
    ),
    (
        "/app.css",
        "text/css; charset=utf-8",
        include_str!("../assets/app.css"),
    ),
    (
        "/icon.svg",
        "image/svg+xml",
        include_str!("../assets/icon.svg"),
    ),
    ("/app.js", JS, include_str!("../assets/app.js")),
    ("/charts.js", JS, include_str!("../assets/charts.js")),
    ("/map.js", JS, include_str!("../assets/map.js")),
    ("/net.js", JS, include_str!("../assets/net.js")),
    ("/panels.js", JS, include_str!("../assets/panels.js")),
    (
        "/transport.js",
        JS,
        include_str!("../assets/direct/transport.js"),
    ),
    ("/words.js", JS, include_str!("../assets/words.js")),
];
const JS: &str = "text/javascript; charset=utf-8";

pub(crate) fn router(served: Served) -> Router {
    let mut router = Router::new();
    for (path, kind, text) in ASSETS {
        router = router.route(
            path,
            get(move || async move { ([(header::CONTENT_TYPE, kind)], text) }),
        );
    }
    router
        .route("/api/volumes", get(volumes))
        .route("/api/events", get(events::events))
        .route("/api/map", get(map))
        .route("/api/moves", get(moves))
        .route("/api/why", get(why))
        .route("/api/policy", get(policy))
        .route("/api/set", post(set))
        .route("/api/switch", post(switch))
        .fallback(|| async { refused(StatusCode::NOT_FOUND, "no such page") })
        .layer(DefaultBodyLimit::max(BODY_MAX))
        .layer(middleware::from_fn_with_state(served.clone(), guard))
        .with_state(served)
}

/// What the page shows before it has chosen a volume.
#[derive(Serialize)]
struct Start {
    volumes: Vec<Listed>,
    /// Whether changes are possible.
    control: bool,
    version: &'static str,
}

async fn volumes(State(served): State<Served>) -> Json<Start> {
    Json(Start {
        volumes: served.all.listed(),
        control: served.settings.control,
        version: env!("CARGO_PKG_VERSION"),
    })
}

/// Asks a question on a thread that may block.
async fn ask(served: Served, volume: String, question: Question) -> Response {
    let Ok(permit) = Arc::clone(&served.questions).try_acquire_owned() else {
        let why = "too many questions are unanswered: the volume may hang";
        return refused(StatusCode::SERVICE_UNAVAILABLE, why);
    };
    if served.all.get(&volume).is_none() {
        return refused(StatusCode::NOT_FOUND, format!("{volume}: is not served"));
    }
    let source = Arc::clone(&served.all.source);
    let answer = tokio::task::spawn_blocking(move || {
        let answer = source.ask(&volume, question);
        drop(permit);
        answer
    });
    match answer.await {
        Ok(Ok(value)) => Json(value).into_response(),
        Ok(Err(why)) => refused(StatusCode::UNPROCESSABLE_ENTITY, why),
        Err(e) => refused(StatusCode::INTERNAL_SERVER_ERROR, e.to_string()),
    }
}

#[derive(Deserialize)]
struct MapAsked {
    volume: String,
    from: u64,
    to: u64,
    bins: u32,
}

async fn map(State(served): State<Served>, Query(q): Query<MapAsked>) -> Response {
    if q.from >= q.to || q.bins == 0 || q.bins > BINS_MAX {
        let why = format!("from < to, and 1 to {BINS_MAX} bins");
        return refused(StatusCode::BAD_REQUEST, why);
    }
    let (from, to, bins) = (q.from, q.to, q.bins);
    ask(served, q.volume, Question::Map { from, to, bins }).await
}

async fn moves(State(served): State<Served>, Query(q): Query<Which>) -> Response {
    ask(served, q.volume, Question::Moves).await
}

async fn policy(State(served): State<Served>, Query(q): Query<Which>) -> Response {
    ask(served, q.volume, Question::Policy).await
}

#[derive(Deserialize)]
struct WhyAsked {
    volume: String,
    offset: u64,
}

async fn why(State(served): State<Served>, Query(q): Query<WhyAsked>) -> Response {
    let offset = q.offset;
    ask(served, q.volume, Question::Why { offset }).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SetAsked {
    volume: String,
    values: Map<String, Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SwitchAsked {
    volume: String,
    policy: String,
}

/// Whether changes are allowed at all. The token was already checked.
fn may_change(served: &Served, headers: &HeaderMap) -> Result<(), Box<Response>> {
    if !served.settings.control {
        let why = "this view is read-only: serve with --web-control and --web-token to change that";
        return Err(Box::new(refused(StatusCode::FORBIDDEN, why)));
    }
    // A form of another site cannot send this content type without a preflight request, which is refused.
    let kind = headers
        .get(header::CONTENT_TYPE)
        .and_then(|k| k.to_str().ok());
    if kind.is_none_or(|k| !k.starts_with("application/json")) {
        let why = "application/json";
        return Err(Box::new(refused(StatusCode::UNSUPPORTED_MEDIA_TYPE, why)));
    }
    Ok(())
}

async fn set(
    State(served): State<Served>,
    headers: HeaderMap,
    body: Result<Json<SetAsked>, JsonRejection>,
) -> Response {
    if let Err(no) = may_change(&served, &headers) {
        return *no;
    }
    match body {
        Ok(Json(q)) => {
            ask(
                served,
                q.volume,
                Question::Set(q.values.into_iter().collect()),
            )
            .await
        }
        Err(e) => refused(e.status(), e.body_text()),
    }
}

async fn switch(
    State(served): State<Served>,
    headers: HeaderMap,
    body: Result<Json<SwitchAsked>, JsonRejection>,
) -> Response {
    if let Err(no) = may_change(&served, &headers) {
        return *no;
    }
    match body {
        Ok(Json(q)) => ask(served, q.volume, Question::Switch(q.policy)).await,
        Err(e) => refused(e.status(), e.body_text()),
    }
}
