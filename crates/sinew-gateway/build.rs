//! Compiles the schemas of gRPC under `proto/` into one set of descriptors.

use std::env;
use std::error::Error;
use std::fs;
use std::path::PathBuf;

/// Schemas, below `proto/`.
const SCHEMAS: [&str; 2] = ["lf/a2a/v1/a2a.proto", "google/rpc/status.proto"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let folder = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("proto");
    let mut compiler = protox::Compiler::new([&folder])?;
    compiler.include_imports(true).open_files(SCHEMAS)?;
    fs::write(
        PathBuf::from(env::var("OUT_DIR")?).join("schemas.bin"),
        compiler.encode_file_descriptor_set(),
    )?;
    Ok(())
}
