//! Real tiers: directories of local or remote file systems, and the mover's calls on them.

mod attributes;
mod calls;
mod copy;
mod names;
mod new_file;
mod number;
mod probe;
mod room;
mod root;
mod roots;
mod writable;

pub(crate) use attributes::{DirAttributes, make_dir_like, xattrs_of};
pub use attributes::{Xattrs, same_attributes, xattrs};
pub use calls::Disk;
pub use copy::{copy_range, write_all};
pub(crate) use copy::{read_all, write_counted};
pub(crate) use names::path_of;
pub(crate) use new_file::NewFile;
pub(crate) use number::{Mark, decode, is_mark, set_number};
pub(crate) use room::apart;
pub(crate) use root::{DirEntries, LOCK, cached_facts_of, own_working_directory};
pub use root::{Root, facts_of, is_hidden};
pub use roots::Roots;
