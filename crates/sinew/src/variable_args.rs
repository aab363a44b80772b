//! Flags that let files read environment variables.

use clap::Args;
use sinew_operations::failure::{Failure, FailureKind};
use sinew_source::VariableRules;

/// Flags that let files read environment variables.
#[derive(Args, Clone, Debug, Default)]
#[group(skip)]
pub(crate) struct VariableArgs {
    /// Let application files (`apps:`) read this environment variable as ${NAME}. May be repeated
    #[arg(long = "env", value_name = "NAME", hide_short_help = true)]
    env_names: Vec<String>,
    /// Like --env, for a secret: the plan keeps ${NAME}; an agent that lists NAME resolves it. May be repeated
    #[arg(long = "env-secret", value_name = "NAME", hide_short_help = true)]
    env_secrets: Vec<String>,
}

impl VariableArgs {
    /// Returns the allow-list from the flags.
    pub(crate) fn rules(&self) -> Result<VariableRules, Failure> {
        let mut rules = VariableRules::default();
        let refused = |error: sinew_source::VariableError| {
            Failure::new(FailureKind::Usage, error.code(), error.to_string())
        };
        self.env_names.iter().try_for_each(|name| rules.allow(name)).map_err(refused)?;
        self.env_secrets.iter().try_for_each(|name| rules.allow_secret(name)).map_err(refused)?;
        Ok(rules)
    }

    /// Returns whether a flag was given.
    pub(crate) fn is_given(&self) -> bool {
        !self.env_names.is_empty() || !self.env_secrets.is_empty()
    }
}
