"""Checks documents with the helpers that the request names. Reads the request as JSON on standard input."""

import json
import re
import sys
from pathlib import Path

LINK = re.compile(r"\]\(([^)\s#]+)(?:#[^)]*)?\)")
SKIPPED = {"target", "node_modules"}


def main():
    request = json.load(sys.stdin)
    root = next(path for path in Path(__file__).resolve().parents if (path / "Cargo.toml").is_file())
    helpers = request["context"]["request"].get("subagents", [])
    documents = [path for path in sorted(root.glob(request["input"]["text"])) if is_ours(path.relative_to(root))]
    if not documents:
        sys.exit(f"no document matches {request['input']['text']}")
    found = []
    for document in documents:
        lines = document.read_text(encoding="utf-8").splitlines()
        for helper in helpers:
            name = helper["systemPrompt"].split(":")[0]
            for number, what in CHECKS[helper["agentName"]](document, lines):
                found.append(f"- {name} at {document.relative_to(root)}:{number}: {what}")
    checked = f"{len(documents)} documents, {len(helpers)} checks: {len(found) or 'nothing'} found."
    json.dump("\n".join([checked, *([""] if found else []), *found]), sys.stdout)


def is_ours(path):
    return not any(part in SKIPPED or part.startswith(".") for part in path.parts)


def links(document, lines):
    for number, line in text(lines):
        for target in LINK.findall(re.sub(r"`[^`]*`", "", line)):
            if "://" not in target and not target.startswith("mailto:") and not (document.parent / target).exists():
                yield number, target


def headings(_, lines):
    level = 0
    for number, line in text(lines):
        marks = len(line) - len(line.lstrip("#"))
        if marks and line[marks:].startswith(" "):
            if marks > level + 1:
                yield number, line
            level = marks


def fences(_, lines):
    open = False
    for number, line in enumerate(lines, 1):
        if line.lstrip().startswith("```"):
            open = not open
            if open and line.strip() == "```":
                yield number, "```"


def text(lines):
    """Returns the lines outside code blocks, with their numbers."""
    open = False
    for number, line in enumerate(lines, 1):
        if line.lstrip().startswith("```"):
            open = not open
        elif not open:
            yield number, line


CHECKS = {"LinkCheck": links, "HeadingCheck": headings, "FenceCheck": fences}
main()
