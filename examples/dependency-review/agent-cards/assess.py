def assess(request):
    """Sums the risk points of a package. The sum determines its level."""
    package, policy = request["package"], request["policy"]
    findings = []
    if package["source"] != "workspace":
        findings = [
            {"kind": kind, "points": policy["points"][kind], "detail": detail}
            for kind, detail in objections(package, policy)
        ]
    score = sum(finding["points"] for finding in findings)
    level = "none"
    for name in ("low", "medium", "high"):
        if score >= policy["levels"][name]:
            level = name
    return {
        "name": package["name"],
        "version": package["version"],
        "licence": package["licence"],
        "direct": package["direct"],
        "subtree": package["subtree"],
        "level": level,
        "score": score,
        "findings": findings,
    }


def objections(package, policy):
    found = []
    licence = package["licence"]
    if licence is None:
        found.append(("licence", "declares no licence"))
    elif not any_of(words_of(licence), policy["licences"]):
        found.append(("licence", f"{licence} is not on the list"))
    if package["source"] != "registry":
        found.append(("source", f"comes from {package['source']}, not from a registry"))
    elif not package["pinned"]:
        found.append(("checksum", "is not pinned by a checksum"))
    if package["build_script"]:
        found.append(("build script", "runs code while it is built"))
    if package["copies"] > 1:
        found.append(("several versions", f"{package['copies']} versions are in use"))
    if package["subtree"] >= policy["large_subtree"]:
        found.append(("large subtree", f"brings {package['subtree']} packages along"))
    return found


# Licences are SPDX expressions: names, AND, OR, WITH and parentheses. Older packages write `/` for OR.


def words_of(licence):
    for sign, spaced in (("/", " OR "), ("(", " ( "), (")", " ) "), (" WITH ", "~WITH~")):
        licence = licence.replace(sign, spaced)
    return licence.split()


def any_of(words, allowed):
    good = all_of(words, allowed)
    while words and words[0] == "OR":
        words.pop(0)
        other = all_of(words, allowed)
        good = good or other
    return good


def all_of(words, allowed):
    good = one(words, allowed)
    while words and words[0] == "AND":
        words.pop(0)
        other = one(words, allowed)
        good = good and other
    return good


def one(words, allowed):
    if not words:
        return False
    word = words.pop(0)
    if word != "(":
        return word.replace("~WITH~", " WITH ") in allowed
    good = any_of(words, allowed)
    if words:
        words.pop(0)
    return good
