//! Workflows by name, ready to run.

use std::collections::BTreeMap;
use std::sync::Arc;

use sinew_engine::{Adapter, IndexedPlan, Machine, RoundJournal};
use sinew_plan::{Plan, PlanError};

/// A plan with its dialect's adapter.
#[derive(Clone)]
pub struct Program {
    /// The validated and indexed plan.
    pub graph: Arc<IndexedPlan>,
    /// The adapter of its dialect.
    pub adapter: &'static dyn Adapter,
}

impl Program {
    /// Checks the plan and combines it with its adapter.
    pub fn new(plan: Plan, adapter: &'static dyn Adapter) -> Result<Self, PlanError> {
        Ok(Self { graph: Arc::new(IndexedPlan::new(Arc::new(plan))?), adapter })
    }

    /// Returns an execution of the plan that has not started.
    pub fn machine<J: RoundJournal + Default>(&self) -> Machine<J> {
        Machine::new(Arc::clone(&self.graph), self.adapter)
    }

    /// Returns the workflow's name.
    pub fn name(&self) -> &str {
        &self.graph.plan().name
    }
}

impl std::fmt::Debug for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Program")
            .field("name", &self.name())
            .field("adapter", &self.adapter.name())
            .finish_non_exhaustive()
    }
}

/// Programs by workflow name.
#[derive(Clone, Debug, Default)]
pub struct Library {
    programs: BTreeMap<String, Program>,
}

impl Library {
    /// Adds a program under its workflow's name; returns the program that it replaces.
    pub fn insert(&mut self, program: Program) -> Option<Program> {
        self.programs.insert(program.name().to_owned(), program)
    }

    /// Returns the program with this name.
    pub fn get(&self, name: &str) -> Option<&Program> {
        self.programs.get(name)
    }

    /// Iterates over all programs by name.
    pub fn iter(&self) -> impl Iterator<Item = &Program> {
        self.programs.values()
    }
}
