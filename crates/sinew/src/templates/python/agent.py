"""The agent AGENT_NAME: a function that receives the input of a task and returns the output."""
import sinew_agent

INPUT = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}


def answer(value):
    return {"text": f"Hello, {value['name']}!"}


sinew_agent.run("AGENT_NAME", answer, description="Greets a person by name.", input_schema=INPUT)
