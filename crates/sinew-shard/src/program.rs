//! Workflows by name, ready to run.

use std::collections::BTreeMap;
use std::sync::Arc;

use sinew_engine::{Adapter, IndexedPlan, Machine, RoundJournal};
use sinew_plan::{Plan, PlanError};

/// A plan with the adapter of its dialect.
#[derive(Clone)]
pub struct Program {
    /// The plan, checked and indexed.
    pub graph: Arc<IndexedPlan>,
    /// Its dialect's adapter.
    pub adapter: &'static dyn Adapter,
}

impl Program {
    /// Checks the plan and pairs it with its adapter.
    pub fn new(plan: Plan, adapter: &'static dyn Adapter) -> Result<Self, PlanError> {
        Ok(Self { graph: Arc::new(IndexedPlan::new(Arc::new(plan))?), adapter })
    }

    /// Returns an execution of the plan that has not started.
    pub fn machine<J: RoundJournal + Default>(&self) -> Machine<J> {
        Machine::new(Arc::clone(&self.graph), self.adapter)
    }

    /// The workflow's name.
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
    /// Adds a program under its workflow's name; gives back the one that had the name.
    pub fn insert(&mut self, program: Program) -> Option<Program> {
        self.programs.insert(program.name().to_owned(), program)
    }

    /// The program of this name.
    pub fn get(&self, name: &str) -> Option<&Program> {
        self.programs.get(name)
    }

    /// All programs, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Program> {
        self.programs.values()
    }
}
