//! Compiles every schema under the repository's `proto/` into the crate.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() -> Result<(), Box<dyn Error>> {
    let here = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let out = PathBuf::from(env::var("OUT_DIR")?);
    schemas(&here.join("../../proto"), &out)
}

/// Generates one Rust module tree for all schemas; `src/lib.rs` includes it as `pb`.
fn schemas(folder: &Path, out: &Path) -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={}", folder.display());
    let schemas = files(folder, "proto")?;
    for schema in &schemas {
        println!("cargo::rerun-if-changed={}", schema.display());
    }
    prost_build::Config::new()
        .out_dir(out)
        .bytes(["."])
        .btree_map(["."])
        .include_file("schemas.rs")
        .compile_fds(protox::compile(&schemas, [folder])?)?;
    Ok(())
}

/// All files below `folder` with this extension, in name order.
fn files(folder: &Path, extension: &str) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files(&path, extension)?);
        } else if path.extension().is_some_and(|e| e == extension) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}
