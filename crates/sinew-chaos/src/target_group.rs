//! Groups of agents that bombs are aimed at: each group is a process.

/// Agents that share a process.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum TargetGroup {
    /// Agents that innocent workflows use, too.
    Innocent,
    /// Agents whose answers or scripts are bombs: programs of somebody else.
    Hostile,
}

impl TargetGroup {
    pub(crate) const ALL: [Self; 2] = [Self::Innocent, Self::Hostile];

    /// Name of the group on the command line.
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
