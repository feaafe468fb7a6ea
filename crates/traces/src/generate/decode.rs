//! Lets a generator run under the same reader as a file.

use std::path::{Path, PathBuf};

use super::run::Generate;
use super::spec::Spec;
use crate::decode::{Decode, Run};
use crate::error::TraceError;
use crate::record::Record;

pub(crate) struct Generated {
    spec: PathBuf,
    inner: Box<dyn Generate>,
}

impl Generated {
    pub fn new(spec: &Spec, run: &mut Run) -> Result<Generated, TraceError> {
        let path = PathBuf::from(spec.to_string());
        let inner = (spec.generator.make)(&spec.values)
            .map_err(|e| TraceError::unsupported(Path::new(&path), e.to_string()))?;
        run.devices
            .preset(spec.generator.devices.iter().map(|d| (*d).to_owned()));
        Ok(Generated { spec: path, inner })
    }
}

impl Decode for Generated {
    fn decode(
        &mut self,
        out: &mut Vec<Record>,
        max: usize,
        _: &mut Run,
    ) -> Result<bool, TraceError> {
        self.inner
            .fill(out, max)
            .map_err(|e| TraceError::unsupported(&self.spec, e.to_string()))
    }
}
