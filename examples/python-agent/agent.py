"""An agent in Python. See README.md."""
import sinew_agent

INPUT = {"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}}
OUTPUT = {"type": "object", "required": ["loud"], "properties": {"loud": {"type": "string"}}}


def shout(value):
    if not isinstance(value, dict) or not isinstance(value.get("text"), str):
        raise ValueError("text: expected a string")
    return {"loud": value["text"].upper() + "!"}


sinew_agent.run("shouter", shout, description="Says it louder.", input_schema=INPUT, output_schema=OUTPUT)
