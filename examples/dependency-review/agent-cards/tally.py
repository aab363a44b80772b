LEVELS = ["none", "low", "medium", "high"]


def tally(request):
    """Counts the assessments; `ranked` lists the worst first."""
    assessments = request["assessments"]
    levels = {level: 0 for level in LEVELS}
    findings, licences = {}, {}
    for one in assessments:
        levels[one["level"]] += 1
        count(licences, one["licence"] or "none")
        for finding in one["findings"]:
            count(findings, finding["kind"])
    ranked = sorted((one for one in assessments if one["score"]), key=rank)
    direct = sorted((one for one in assessments if one["direct"]), key=lambda one: (-one["subtree"], one["name"]))
    return {
        "total": len(assessments),
        "worst": max((LEVELS.index(one["level"]), one["level"]) for one in assessments)[1],
        "levels": levels,
        "findings": most_first(findings),
        "licences": most_first(licences),
        "ranked": [shown(one) for one in ranked],
        "heaviest": [{"name": one["name"], "subtree": one["subtree"]} for one in direct[:8]],
    }


def rank(one):
    return (-one["score"], one["name"], one["version"])


def count(counts, key):
    counts[key] = counts.get(key, 0) + 1


def most_first(counts):
    ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    return [{"name": name, "count": number} for name, number in ordered]


def shown(one):
    return {
        "package": f"{one['name']} {one['version']}",
        "level": one["level"],
        "score": one["score"],
        "why": "; ".join(finding["detail"] for finding in one["findings"]),
    }
