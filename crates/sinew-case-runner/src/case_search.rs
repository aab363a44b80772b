//! Finds test files.

use std::path::{Path, PathBuf};

use sinew_operations::failure::Failure;

/// Returns the given test files, whatever their names, and those in folders, sorted by path.
pub(crate) fn files(paths: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let mut found = Vec::new();
    for path in paths {
        let about = std::fs::metadata(path).map_err(|error| Failure::unreadable(path, &error))?;
        if about.is_dir() {
            walk(path, &mut found)?;
        } else {
            found.push(path.clone());
        }
    }
    found.sort();
    found.dedup();
    Ok(found)
}

fn walk(folder: &Path, found: &mut Vec<PathBuf>) -> Result<(), Failure> {
    let unreadable = |error: std::io::Error| Failure::unreadable(folder, &error);
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        // Do not follow links to folders, which may be circular.
        let kind = entry.file_type().map_err(unreadable)?;
        if kind.is_dir() {
            if !name.starts_with('.') && !matches!(&*name, "target" | "node_modules") {
                walk(&entry.path(), found)?;
            }
        } else if [".test.yaml", ".test.yml", ".test.json"].iter().any(|end| name.ends_with(end)) {
            let path = entry.path();
            found.push(path.strip_prefix(".").map(Path::to_owned).unwrap_or(path));
        }
    }
    Ok(())
}
