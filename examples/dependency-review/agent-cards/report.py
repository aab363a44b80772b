"""Writes report.md and chart.svg. Reads the review as JSON on standard input."""

import json
import os
import sys
from pathlib import Path

LICENCES = 8


def main():
    review = json.load(sys.stdin)
    folder = Path(os.environ["SINEW_ARTIFACTS"])
    (folder / "chart.svg").write_text(review["svg"], encoding="utf-8")
    (folder / "report.md").write_text("\n".join(report(review)) + "\n", encoding="utf-8")
    json.dump({"report": "report.md", "chart": "chart.svg"}, sys.stdout)


def report(review):
    tally, result = review["tally"], review["result"]
    yield f"# Dependency review of {review['workspace']}"
    yield ""
    yield f"**{result['verdict'].capitalize()}.** {summary(tally)}"
    yield ""
    yield "![Packages by risk, findings and the heaviest dependencies](chart.svg)"
    yield ""
    yield from shortlist(result)
    yield "## Licences"
    yield ""
    rows = [(cell(row["name"]), row["count"]) for row in tally["licences"]]
    yield from table(("Licence", "Packages"), rows[:LICENCES])
    if len(rows) > LICENCES:
        yield ""
        rest = sum(count for _, count in rows[LICENCES:])
        yield f"… and {len(rows) - LICENCES} more expressions for {rest} packages."


def summary(tally):
    levels = tally["levels"]
    counts = ", ".join(f"{levels[level]} {level}" for level in ("high", "medium", "low", "none"))
    return f"{tally['total']} packages were assessed: {counts}."


def shortlist(result):
    if not result["shortlist"]:
        return
    yield "## To look at"
    yield ""
    if result["bar"]:
        yield f"The bar was raised until the budget held: these have {result['bar']} points or more."
        yield ""
    rows = [(cell(one["package"]), one["level"], one["score"], cell(one["why"])) for one in result["shortlist"]]
    yield from table(("Package", "Risk", "Points", "Why"), rows)
    yield ""


def table(head, rows):
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield "| " + " | ".join(str(value) for value in row) + " |"


def cell(text):
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")


main()
