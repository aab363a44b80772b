//! Groups of target agents of bombs, one process each.

/// Agents that share a process.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum TargetGroup {
    /// Agents that normal workflows use too
    Innocent,
    /// Agents whose answers or scripts are bombs, as third-party programs
    Hostile,
}

impl TargetGroup {
    pub(crate) const ALL: [Self; 2] = [Self::Innocent, Self::Hostile];

    /// Returns the name of the group on the command line.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Innocent => "innocent",
            Self::Hostile => "hostile",
        }
    }

    pub(crate) const fn agents(self) -> &'static [&'static str] {
        match self {
            Self::Innocent => &["echo", "texts"],
            Self::Hostile => &["python", "deep", "wide", "huge"],
        }
    }
}
