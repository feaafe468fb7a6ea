//! One file per format (or family): the parser, and where its layout comes from.

pub(crate) mod blkreplay;
