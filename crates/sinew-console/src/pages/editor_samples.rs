//! Sample files of the workflow editor.

/// A workflow.
pub(super) const WORKFLOW_FILE: &str = "workflow:
  description: Greets a person
  input_schema: {type: object, properties: {name: {type: string}}, required: [name]}
  nodes:
    - {id: greet, type: agent, agent_name: greeter, input: {name: \"{{workflow.input.name}}\"}}
  output_mapping: {text: \"{{greet.output.text}}\"}
";
/// Cases of this workflow.
pub(super) const WORKFLOW_CASES: &str = "cases:
  - name: greets by name
    workflow: workflow.yaml
    input: {name: Ada}
    agents:
      greeter: {output: {text: \"Hello, Ada\"}}
    expect:
      status: success
      output: {text: \"Hello, Ada\"}
";

/// Name of a file of an agent.
pub(super) const AGENT_NAME: &str = "sorter.agent.yaml";
/// A model agent.
pub(super) const AGENT_FILE: &str = "name: sorter
description: Sorts a message into a queue
input_schema: {type: object, properties: {text: {type: string}}, required: [text]}
output_schema: {type: object, properties: {queue: {enum: [billing, technical]}}, required: [queue]}
run:
  model:
    use: [main]
    models:
      main: {provider: openai, model: gpt-5-mini, key: \"${env:OPENAI_API_KEY}\"}
    instruction: Answer with the queue for the message.
";
/// Cases of this agent, including the answers of the model.
pub(super) const AGENT_CASES: &str = "agent: sorter.agent.yaml
cases:
  - name: sorts a bill
    input: {text: \"I was charged twice\"}
    model: [{answer: {queue: billing}}]
    crash: everywhere
    expect: {output: {queue: billing}, turns: 1}
";
