//! The container image as far as it can be known without Docker: its build is given every file that the program carries.

use std::fs;
use std::path::{Component, Path, PathBuf};

use super::{deploy, read, root};

/// Places of Rust files below a folder, without tests.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let (path, name) = (entry.path(), entry.file_name());
        if path.is_dir() && name != "tests" {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") && name != "tests.rs" {
            found.push(path);
        }
    }
}

/// A path without `..`, below the top of the repository.
fn below_top(path: &Path) -> PathBuf {
    let mut whole = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(whole.pop()),
            part => whole.push(part),
        }
    }
    whole.strip_prefix(root()).unwrap().to_owned()
}

#[test]
fn the_build_of_the_image_is_given_every_file_that_is_built_in() {
    let mut files = Vec::new();
    for entry in fs::read_dir(root().join("crates")).unwrap().map(Result::unwrap) {
        sources(&entry.path().join("src"), &mut files);
    }
    let rules = read(&deploy("Dockerfile.dockerignore"));
    let given: Vec<&Path> = rules.lines().filter_map(|rule| rule.strip_prefix('!')).map(Path::new).collect();
    let (mut seen, mut missing) = (0, Vec::new());
    for file in files {
        let text = read(&file);
        for part in ["include_str!(", "include_bytes!("].into_iter().flat_map(|call| text.split(call).skip(1))
        {
            let Some(name) = part.trim_start().strip_prefix('"').and_then(|rest| rest.split('"').next())
            else {
                continue;
            };
            let named = below_top(&file.parent().unwrap().join(name));
            seen += 1;
            if !given.iter().any(|given| named.starts_with(given)) {
                missing.push(format!("{} of {}", named.display(), file.display()));
            }
        }
    }
    assert!(seen > 30, "only {seen} files are built in: the search finds too little");
    assert!(missing.is_empty(), "Dockerfile.dockerignore keeps from the build: {missing:#?}");
}

/// The only image that deployments run is the one that is built here.
#[test]
fn deployments_run_the_image_of_the_build_only() {
    let mut seen = 0;
    for folder in ["compose", "kubernetes"] {
        for entry in fs::read_dir(deploy(folder)).unwrap().map(Result::unwrap) {
            if entry.path().extension().is_none_or(|extension| extension != "yaml") {
                continue;
            }
            for line in read(&entry.path()).lines() {
                let Some(image) = line.trim().trim_start_matches("- ").strip_prefix("image:") else {
                    continue;
                };
                seen += 1;
                assert!(
                    matches!(image.trim(), "sinew" | "sinew:local"),
                    "{}: {line}",
                    entry.path().display()
                );
            }
        }
    }
    assert!(seen > 6, "only {seen} images were found");
}

#[test]
fn images_of_the_build_are_named_by_digest() {
    let file = read(&deploy("Dockerfile"));
    let images: Vec<&str> = file.lines().filter_map(|line| line.strip_prefix("FROM ")).collect();
    assert!(images.len() > 1, "{file}");
    for image in images {
        let digest = image.split("@sha256:").nth(1).and_then(|rest| rest.split(' ').next());
        assert_eq!(digest.map(str::len), Some(64), "{image}");
    }
}
