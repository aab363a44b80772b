"""Writes digest.md. Reads the request as JSON on standard input."""

import json
import os
import sys
from pathlib import Path

request = json.load(sys.stdin)
settings = request["context"]["request"]["configurations"]
findings = "\n".join(f"- {finding}" for finding in request["input"]["result"]["findings"])
digest = f"# {settings['title']}\n\n{settings['table']}\n\n{findings}\n"
(Path(os.environ["SINEW_ARTIFACTS"]) / "digest.md").write_text(digest, encoding="utf-8")
json.dump({"success": True, "headline": settings["title"], "file": "digest.md"}, sys.stdout)
