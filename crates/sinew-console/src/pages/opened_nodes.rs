//! Expanded nodes of a drawing, stored in the address of the page.

/// Names of nodes in the order in which they were expanded. A name with a comma cannot be expanded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OpenedNodes(Vec<String>);

impl OpenedNodes {
    /// Reads the parameter of an address.
    pub(crate) fn of(text: Option<&str>) -> Self {
        let names = text.unwrap_or_default().split(',').filter(|name| !name.is_empty());
        Self(names.map(str::to_owned).collect())
    }

    /// The parameter; `None` if no node is expanded.
    pub(crate) fn text(&self) -> Option<String> {
        (!self.0.is_empty()).then(|| self.0.join(","))
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|one| one == name)
    }

    pub(crate) fn names(&self) -> &[String] {
        &self.0
    }

    /// Adds a node.
    #[must_use]
    pub(crate) fn with(&self, name: &str) -> Self {
        let mut names = self.0.clone();
        names.push(name.to_owned());
        Self(names)
    }

    /// Removes a node and the nodes that are expanded within it.
    #[must_use]
    pub(crate) fn without(&self, name: &str) -> Self {
        let behind = format!("{name}/");
        Self(self.0.iter().filter(|one| *one != name && !one.starts_with(&behind)).cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_open_and_close_with_what_is_behind_them() {
        let opened = OpenedNodes::of(Some("a,,a/b,ab")).with("c");
        assert_eq!(opened.text().as_deref(), Some("a,a/b,ab,c"));
        assert!(opened.has("a/b") && !opened.has("b"));
        assert_eq!(opened.without("a").names(), ["ab", "c"]);
        assert_eq!(OpenedNodes::of(Some("")).text(), None);
    }
}
