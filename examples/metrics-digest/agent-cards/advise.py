"""Describes the content of long files. Reads the request as JSON on standard input."""

import json
import re
import sys
from pathlib import Path

ITEM = re.compile(r"^(?:pub(?:\([^)]*\))? )?(?:async )?(fn|impl|mod|trait|struct|enum)\b\s*(.*?)\s*[{(;].*$")


def main():
    prompt = json.load(sys.stdin)["context"]["request"]["user_prompt"]
    root = next(path for path in Path(__file__).resolve().parents if (path / "Cargo.toml").is_file())
    advice = []
    for line in prompt.splitlines():
        name, lines = line.rsplit(" ", 1)
        largest = ", ".join(f"`{what}` ({size})" for what, size in items(root / name)[:3])
        advice.append(f"`{name}` has {lines} lines; most of them are in {largest or 'no item of their own'}")
    json.dump({"content": "\n".join(advice)}, sys.stdout)


def items(path):
    """Returns the top-level items of a file with their number of lines, largest first."""
    starts, lines = [], path.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines):
        if match := ITEM.match(line):
            starts.append((number, f"{match[1]} {match[2]}".strip()))
    ends = [number for number, _ in starts[1:]] + [len(lines)]
    sizes = [(what, end - start) for (start, what), end in zip(starts, ends)]
    return sorted(sizes, key=lambda item: (-item[1], item[0]))


main()
