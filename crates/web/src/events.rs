//! The event stream of a volume: its curve so far, then its figures once per second.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, StreamExt};
use tokio::sync::broadcast::error::RecvError;

use crate::follow::Told;
use crate::guard::refused;
use crate::served::{Served, Which};

/// A comment is sent after this time without an event, so that the page (and a proxy) can tell that the connection is alive.
const ALIVE: Duration = Duration::from_secs(3);

pub(crate) async fn events(State(served): State<Served>, Query(q): Query<Which>) -> Response {
    let Ok(permit) = Arc::clone(&served.streams).try_acquire_owned() else {
        return refused(StatusCode::SERVICE_UNAVAILABLE, "too many pages are open");
    };
    let Some(followed) = served.all.get(&q.volume) else {
        return refused(
            StatusCode::NOT_FOUND,
            format!("{}: is not served", q.volume),
        );
    };
    let (history, last, watcher) = followed.watch();
    let first = Told {
        event: "history",
        data: history.to_string().into(),
    };
    let first = stream::iter([Some(first), last].into_iter().flatten());
    let rest = stream::unfold((watcher, permit), |(mut watcher, permit)| async {
        loop {
            match watcher.told.recv().await {
                Ok(told) => return Some((told, (watcher, permit))),
                // A slow page skips missed figures and gets the current ones.
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return None,
            }
        }
    });
    let all = first
        .chain(rest)
        .map(|t| Ok::<_, Infallible>(Event::default().event(t.event).data(t.data)));
    Sse::new(all)
        .keep_alive(KeepAlive::new().interval(ALIVE))
        .into_response()
}
