//! How people write sizes (`64K`, `1.5G`, `10%`), policies with their parameters (`greendm,PT=2`) and promises to classes
//! (`1-7+floor=5M`). The command line, descriptions in TOML and the Python package read them here, so that the same words mean the
//! same everywhere.

pub mod policy_spec;
pub mod qos;
pub mod size;
