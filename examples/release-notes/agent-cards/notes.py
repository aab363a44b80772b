"""Works on one node of the release notes. Reads the request as JSON on standard input."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

SHOWN = {"features": "What is new", "fixes": "What works again", "upkeep": "Behind the scenes"}
WORDS = {
    "fixes": r"\b(fix(es|ed)?|repair\w*|correct\w*|bugs?|no longer|never|may panic)\b",
    "upkeep": r"\b(tests?|bench\w*|clippy|README|docs?|architecture|corpus|recorded|fuzz\w*|locked|comments?)\b",
}
UPKEEP_FILES = re.compile(r"(^|/)(tests?|benches|fuzz|\.github)/|\.md$|^Cargo\.lock$")
LONGEST = 100


def main():
    request = json.load(sys.stdin)
    step = STEPS[request["context"]["node"]]
    json.dump(step(request["input"], request["instruction"]), sys.stdout)


def collect(seen, _):
    most = int(seen["input"]["commits"])
    changes = commits(most)
    source = "git"
    if changes is None:  # without git history, use the change log
        changes, source = logged()[:most], "CHANGELOG.md"
    return {"count": len(changes), "source": source, "changes": changes}


def commits(most):
    command = ["git", "log", f"--max-count={most}", "--no-merges", "--name-only", "--format=%x1e%h%x1f%s%x1f"]
    try:
        log = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    records = (record.split("\x1f") for record in log.split("\x1e") if record.strip())
    return [{"id": id, "subject": subject.strip(), "files": files.split()} for id, subject, files in records]


def logged():
    logs = [folder / "CHANGELOG.md" for folder in Path(__file__).resolve().parents]
    log = next((path for path in logs if path.is_file()), None)
    lines = log.read_text(encoding="utf-8").splitlines() if log else []
    return [{"id": "", "subject": line[2:].strip(), "files": []} for line in lines if line.startswith("- ")]


def classify(seen, _):
    groups = {name: [] for name in SHOWN}
    for change in seen["collect"]["changes"]:
        groups[group_of(change)].append({"id": change["id"], "subject": change["subject"]})
    return {**groups, "total": seen["collect"]["count"]}


def group_of(change):
    for group, words in WORDS.items():
        if re.search(words, change["subject"], re.IGNORECASE):
            return group
    only_upkeep = change["files"] and all(UPKEEP_FILES.search(file) for file in change["files"])
    return "upkeep" if only_upkeep else "features"


def draft(seen, instruction):
    """Keeps as many changes as fit after a review; cuts lines after a judgement."""
    groups = {title: seen["classify"][group] for group, title in SHOWN.items() if seen["classify"][group]}
    before = seen.get("draft", {}).get("kept")
    cut = LONGEST if "Retry guidance" in instruction or before is not None else None
    if before is None:
        kept = max(len(changes) for changes in groups.values())
        return {"lines": written(groups, kept, cut), "kept": kept}
    room = seen["input"]["max_lines"]
    for kept in range(before - 1, 0, -1):
        lines = written(groups, kept, cut)
        if len(lines) <= room:
            return {"lines": lines, "kept": kept}
    # If not even one change per group fits, print the counts and always a title.
    numbers = [f"- {title}: {len(changes)}" for title, changes in groups.items()]
    return {"lines": ["# Release notes", *numbers][: max(int(room), 1)], "kept": 0}


def written(groups, kept, cut):
    lines = ["# Release notes"]
    for title, changes in groups.items():
        lines += ["", f"## {title}", ""]
        lines += [line(change, cut) for change in changes[:kept]]
        if len(changes) > kept:
            lines.append(f"- … and {len(changes) - kept} more")
    return lines


def line(change, longest=None):
    subject, end = change["subject"], f" ({change['id']})" if change["id"] else ""
    room = longest and longest - len("- ") - len(end)
    if room and len(subject) > room:
        subject = subject[: room - 1].rstrip() + "…"
    return f"- {subject}{end}"


def review(seen, _):
    lines = len(seen["draft"]["lines"])
    return {"verdict": "too long" if lines > seen["input"]["max_lines"] else "fits", "lines": lines}


def publish(seen, _):
    lines = seen["draft"]["lines"]
    (Path(os.environ["SINEW_ARTIFACTS"]) / "notes.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return {"file": "notes.md", "lines": len(lines)}


def nothing(_, __):
    return {"text": "Nothing has changed."}


STEPS = {step.__name__: step for step in (collect, classify, draft, review, publish, nothing)}
main()
