#!/usr/bin/env python3
"""Writes JSON Schemas of providers' requests and answers, out of the types of their own SDKs.

    pip install openai==3.54.0 anthropic==2.12.0 google-genai==3.4.0
    python tests/providers/make-schemas.py

All three packages are under the Apache License 2.0; see README.md.
"""

import json
import pathlib
import warnings

import pydantic
from anthropic.types import Message
from anthropic.types.message_create_params import MessageCreateParamsNonStreaming, MessageCreateParamsStreaming
from google.genai import types as gemini
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.chat.completion_create_params import (
    CompletionCreateParamsNonStreaming,
    CompletionCreateParamsStreaming,
)

HERE = pathlib.Path(__file__).parent
warnings.simplefilter("ignore")


def write(name, kind):
    schema = pydantic.TypeAdapter(kind).json_schema()
    strip(schema)
    (HERE / f"{name}.json").write_text(json.dumps(schema, indent=None, separators=(",", ":"), sort_keys=True) + "\n")


def strip(schema):
    """Descriptions are long and check nothing."""
    if isinstance(schema, dict):
        if isinstance(schema.get("description"), str):
            del schema["description"]
        for value in schema.values():
            strip(value)
    elif isinstance(schema, list):
        for value in schema:
            strip(value)


write("openai-request", CompletionCreateParamsNonStreaming)
write("openai-request-stream", CompletionCreateParamsStreaming)
write("openai-answer", ChatCompletion)
write("openai-chunk", ChatCompletionChunk)
write("anthropic-request", MessageCreateParamsNonStreaming)
write("anthropic-request-stream", MessageCreateParamsStreaming)
write("anthropic-answer", Message)
write("gemini-content", gemini.Content)
write("gemini-generation-config", gemini.GenerationConfig)
write("gemini-function-declaration", gemini.FunctionDeclaration)
write("gemini-tool-config", gemini.ToolConfig)
write("gemini-answer", gemini.GenerateContentResponse)
