//! The code editor of the workflow editor: the published packages of CodeMirror 6, without a build
//! step.
//!
//! Browsers do not resolve bare module names, and the content policy forbids inline import maps.
//! Serving a file therefore replaces the names in import statements by addresses; nothing else is
//! changed.

use crate::page_file::{JAVASCRIPT, PageFile, with_addresses};

/// A file of a package.
struct VendoredModule {
    /// Name in import statements.
    specifier: &'static str,
    /// File name in its address.
    file: &'static str,
    text: &'static str,
}

macro_rules! vendored {
    ($specifier:literal, $folder:literal, $file:literal) => {
        VendoredModule {
            specifier: $specifier,
            file: $file,
            text: include_str!(concat!("../vendor/codemirror/", $folder, "/index.js")),
        }
    };
}

/// The packages, each after its dependencies.
const PACKAGES: [VendoredModule; 15] = [
    vendored!("@marijn/find-cluster-break", "find-cluster-break-1.0.4", "find-cluster-break.js"),
    vendored!("style-mod", "style-mod-4.1.5", "style-mod.js"),
    vendored!("w3c-keyname", "w3c-keyname-2.2.8", "w3c-keyname.js"),
    vendored!("crelt", "crelt-1.0.7", "crelt.js"),
    vendored!("@codemirror/streamparser", "streamparser-6.0.0", "streamparser.js"),
    vendored!("@lezer/common", "lezer-common-1.5.5", "lezer-common.js"),
    vendored!("@lezer/highlight", "lezer-highlight-1.2.5", "lezer-highlight.js"),
    vendored!("@lezer/lr", "lezer-lr-1.4.12", "lezer-lr.js"),
    vendored!("@lezer/yaml", "lezer-yaml-1.0.4", "lezer-yaml.js"),
    vendored!("@codemirror/state", "state-6.7.6", "state.js"),
    vendored!("@codemirror/view", "view-6.43.15", "view.js"),
    vendored!("@codemirror/language", "language-6.13.1", "language.js"),
    vendored!("@codemirror/commands", "commands-6.11.1", "commands.js"),
    vendored!("@codemirror/lint", "lint-6.9.8", "lint.js"),
    vendored!("@codemirror/lang-yaml", "lang-yaml-6.1.3", "lang-yaml.js"),
];

/// The module that opens an editor, then the packages that it imports.
pub(crate) fn editor_files() -> Vec<PageFile> {
    let mut addresses: Vec<(&str, String)> = Vec::new();
    let mut files = Vec::new();
    for package in &PACKAGES {
        let file = PageFile::of(package.file, JAVASCRIPT, with_addresses(package.text, &addresses));
        addresses.push((package.specifier, file.address.clone()));
        files.push(file);
    }
    let own = with_addresses(include_str!("assets/editor.js"), &addresses);
    files.insert(0, PageFile::of("editor.js", JAVASCRIPT, own));
    files
}

#[cfg(test)]
mod tests {
    use sha2::{Digest as _, Sha256};

    use super::*;

    #[test]
    fn packages_are_those_of_the_registry() {
        let list = include_str!("../vendor/codemirror/README.md");
        for package in &PACKAGES {
            let digest = hex::encode(Sha256::digest(package.text));
            let row = list.lines().find(|line| line.contains(&format!("`{}`", package.specifier)));
            assert!(
                row.is_some_and(|row| row.contains(&digest)),
                "{} has {digest}, not {row:?}",
                package.specifier
            );
        }
    }

    #[test]
    fn modules_import_addresses_only() {
        for file in editor_files() {
            let imports = file
                .content
                .lines()
                .filter(|line| line.starts_with("import ") || line.starts_with("export {"));
            for line in imports.filter(|line| line.contains(" from ")) {
                assert!(line.contains("/console/assets/"), "{}: {line}", file.address);
            }
        }
    }
}
