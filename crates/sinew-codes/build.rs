//! Compiles the code pages under `codes/` and the constants of `codes/names.txt` into the crate.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() -> Result<(), Box<dyn Error>> {
    let here = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let out = PathBuf::from(env::var("OUT_DIR")?);
    code_pages(&here.join("codes"), &out.join("codes.rs"))?;
    code_names(&here.join("codes"), &out.join("code_names.rs"))
}

/// Writes `[("SINEW-1001", include_str!(..)), ..]`, sorted by code so that a lookup can bisect.
fn code_pages(folder: &Path, target: &Path) -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut table = String::from("&[\n");
    for page in files(folder, "md")? {
        println!("cargo::rerun-if-changed={}", page.display());
        let code = page.file_stem().unwrap_or_default().to_string_lossy();
        writeln!(table, "    ({code:?}, include_str!({:?})),", page.to_string_lossy())?;
    }
    table.push(']');
    fs::write(target, table)?;
    Ok(())
}

/// Writes `pub const NAME: Code = …;` for each line `SINEW-NNNN NAME` of `names.txt`. Every page has one name.
fn code_names(folder: &Path, target: &Path) -> Result<(), Box<dyn Error>> {
    let mut pages: BTreeMap<String, PathBuf> = BTreeMap::new();
    for page in files(folder, "md")? {
        pages.insert(page.file_stem().unwrap_or_default().to_string_lossy().into_owned(), page);
    }
    let mut constants = String::new();
    for line in fs::read_to_string(folder.join("names.txt"))?.lines() {
        let (code, name) = line.split_once(' ').ok_or(format!("names.txt: '{line}' has no name"))?;
        let page = pages.remove(code).ok_or(format!("names.txt: {code} has no page, or a second name"))?;
        let text = fs::read_to_string(page)?;
        let title = text.lines().next().unwrap_or_default().trim_start_matches('#').trim();
        writeln!(constants, "/// {code}: {title}.\npub const {name}: Code = Code({code:?});")?;
    }
    if let Some(code) = pages.keys().next() {
        return Err(format!("names.txt has no name for {code}").into());
    }
    fs::write(target, constants)?;
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
