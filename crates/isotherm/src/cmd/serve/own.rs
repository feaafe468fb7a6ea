//! The volume that this process serves, as the web view sees it.

use std::sync::Arc;

use isotherm_control::live::Live;
use isotherm_control::server::Service;
use isotherm_web::Listed;
use serde_json::Value;

use crate::control::Request;
use crate::view::Asked;

/// See the module.
pub(super) struct Own(pub(super) Arc<Live>);

impl Asked for Own {
    fn volumes(&self) -> Vec<Listed> {
        let live = &self.0;
        let failure = live.handle.failure();
        let state = match (&failure, live.missing.is_empty()) {
            (Some(_), _) => "failed",
            (None, false) => "degraded",
            (None, true) => "serving",
        };
        vec![Listed {
            id: live.volume.display().to_string(),
            name: live.config().name,
            state: state.to_owned(),
            note: failure.map(|f| f.reason.clone()),
            served: true,
        }]
    }

    fn ask(&self, _volume: &str, request: &Request) -> Result<Value, String> {
        self.0.answer(request)
    }
}
