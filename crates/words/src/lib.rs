//! Text forms that people type: sizes (`64K`, `1.5G`, `10%`), policies with their parameters (`greendm,PT=2`), and quality-of-service
//! promises to classes of data (`1-7+floor=5M`). The command line, TOML descriptions and the Python package all parse them here, so one
//! text has one meaning everywhere. And the text of others that this program prints ([`printable`]).

pub mod policy_spec;
pub mod printable;
pub mod qos;
pub mod size;
