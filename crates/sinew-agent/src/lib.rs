//! The SDK: an agent is a function from a typed input to a typed output; the rest is here.
//!
//! Place in the flow: tasks come from the agent's queue or through its A2A door, the function answers, the result goes
//! to the subject that the task names.
//!
//! It never answers a task twice with two different results, and never runs one without checking its input.
