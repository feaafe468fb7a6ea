//! How people write sizes (`64K`, `1.5G`, `10%`), and policies with their parameters (`greendm,PT=2`). The command line, descriptions in
//! TOML and the Python package read them here, so that the same words mean the same everywhere.

pub mod policy_spec;
pub mod size;
