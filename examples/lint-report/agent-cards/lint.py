"""Searches for matches of the rules. Reads the request as JSON on standard input."""

import json
import re
import sys
from pathlib import Path


def main():
    request = json.load(sys.stdin)
    tools = request["context"]["request"]["links"].get("tools", [])
    rules = [(rule["name"], re.compile(rule["pattern"])) for tool in tools for rule in tool["data"].get("rules", [])]
    folder = re.search(r"below (\S+)", request["instruction"])[1]
    root = next(path for path in Path(__file__).resolve().parents if (path / "Cargo.toml").is_file())
    files = sorted((root / folder).rglob("*.rs"))
    if not files:
        sys.exit(f"there is no Rust file below {folder}")
    findings = [
        {"path": path.relative_to(root).as_posix(), "line": number, "rule": name}
        for path in files
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        for name, pattern in rules
        if pattern.search(line)
    ]
    found = {"files": len(files), "count": len(findings), "findings": findings}
    # Named outputs; without them, an agent of this dialect returns a text.
    json.dump({"outputs": {"output": found}}, sys.stdout)


main()
