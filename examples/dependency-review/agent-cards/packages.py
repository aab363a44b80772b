"""Every package that a build of this Cargo workspace uses on this machine, as JSON on standard output.

`cargo metadata` says what there is and who needs whom; Cargo.lock says what is pinned by a checksum. Cargo's answer is
megabytes, so it is boiled down here and never enters the workflow.
"""

import json
import os
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path


def main():
    # The agent file passes empty values for unset variables.
    for name in [name for name, value in os.environ.items() if not value]:
        del os.environ[name]
    host = next(line.split()[1] for line in run("rustc", "-vV").splitlines() if line.startswith("host:"))
    metadata = read_metadata(host)
    root = Path(metadata["workspace_root"])
    with open(root / "Cargo.lock", "rb") as file:
        locked = tomllib.load(file)["package"]
    pinned = {(package["name"], package["version"]) for package in locked if "checksum" in package}
    packages = describe(metadata, pinned)
    print(f"{len(packages)} of {len(locked)} locked packages are used on {host}", file=sys.stderr)
    json.dump({"workspace": root.name, "host": host, "locked": len(locked), "packages": packages}, sys.stdout)


def read_metadata(host):
    """Lists the packages of this platform, which a build has downloaded. Uses the network only if one is missing."""
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", host]
    try:
        return json.loads(run(*command, "--offline", quiet=True))
    except subprocess.CalledProcessError:
        return json.loads(run(*command))


def run(*command, quiet=False):
    stderr = subprocess.DEVNULL if quiet else None
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=stderr, text=True).stdout


def describe(metadata, pinned):
    needs = {node["id"]: set(node["dependencies"]) for node in metadata["resolve"]["nodes"]}
    members = set(metadata["workspace_members"])
    direct = {need for member in members for need in needs[member]} - members
    used = [package for package in metadata["packages"] if package["id"] in needs]
    copies = Counter(package["name"] for package in used)
    subtrees = subtree_sizes(needs)
    packages = [
        {
            "name": package["name"],
            "version": package["version"],
            "licence": package["license"],
            "source": source_of(package, members),
            "pinned": (package["name"], package["version"]) in pinned,
            "copies": copies[package["name"]],
            "subtree": subtrees[package["id"]],
            "direct": package["id"] in direct,
            "build_script": any("custom-build" in target["kind"] for target in package["targets"]),
        }
        for package in used
    ]
    return sorted(packages, key=lambda package: (package["name"], package["version"]))


def source_of(package, members):
    if package["id"] in members:
        return "workspace"
    return (package["source"] or "path").split("+")[0]


def subtree_sizes(needs):
    """Returns the number of transitive dependencies of each package."""
    sizes = {}
    for start in needs:
        seen, todo = {start}, [start]
        while todo:
            for need in needs[todo.pop()] - seen:
                seen.add(need)
                todo.append(need)
        sizes[start] = len(seen) - 1
    return sizes


main()
