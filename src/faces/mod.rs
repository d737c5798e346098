//! Product surfaces over the engine: all wording and all shapes, and nothing that waits.

pub mod find;
pub mod fit;
pub mod glob;
pub mod plain;
pub mod toolman;
pub mod uri_template;
pub mod workbench;
