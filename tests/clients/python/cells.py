"""Cells of the matrix: each script registers a function per behaviour and calls `fill`.

A function fails by an exception, and returns a text if a limit refused the call as it should. `fill`
appends one JSON object per behaviour to the file $SINEW_CELLS."""

import asyncio
import json
import os
import sys
import traceback

GATEWAY = os.environ["SINEW_GATEWAY"]
"""A gateway without keys, which accepts bodies of 16 MiB."""
KEYED_GATEWAY = os.environ["SINEW_KEYED_GATEWAY"]
KEY = os.environ["SINEW_KEY"]
LARGE = "x" * 5_000_000
TABLE_BYTES = 360_000
SECONDS = 90

_cells = {}


def cell(behaviour):
    def register(function):
        _cells[behaviour] = function
        return function

    return register


def check(condition, *seen):
    """Fails with what was seen, shortened."""
    if not condition:
        raise AssertionError(" ".join(str(one)[:600] for one in seen))


def causes(error):
    """An error with all that it contains and all that caused it."""
    found, waiting = [], [error]
    while waiting:
        one = waiting.pop()
        if one is not None and one not in found:
            found.append(one)
            waiting += [*getattr(one, "exceptions", []), one.__cause__, one.__context__]
    return found


def is_refusal(seen):
    """Returns whether this names a refusal of a caller without a key."""
    return any(words in str(seen) for words in ("401", "nauthorized", "no credentials"))


async def refuses(call):
    """Awaits a call that must be refused for its missing key."""
    try:
        result = await call
    except BaseException as error:  # frameworks raise groups, and cancel
        check(any(is_refusal(one) for one in causes(error)), causes(error))
        return
    check(is_refusal(result), "accepted without a key:", result)


async def _fill():
    chosen = sys.argv[1:] or list(_cells)
    for behaviour in chosen:
        try:
            limit = await asyncio.wait_for(_cells[behaviour](), SECONDS)
            outcome = {"behaviour": behaviour, "outcome": "limit" if limit else "works", "detail": limit or ""}
        except BaseException as error:
            if os.environ.get("SINEW_TRACE"):
                traceback.print_exc()
            detail = " / ".join(f"{type(one).__name__}: {one}" for one in causes(error))[:800]
            outcome = {"behaviour": behaviour, "outcome": "fails", "detail": detail}
        # Not stdout: frameworks print there, also from threads.
        with open(os.environ["SINEW_CELLS"], "a") as file:
            file.write(json.dumps(outcome) + "\n")


def fill():
    asyncio.run(_fill())
    # Frameworks leave threads and connections that would delay the end.
    os._exit(0)
