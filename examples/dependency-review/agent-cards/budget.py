def keep_to_budget(request):
    """One step: the bar rises by a point; `bar` is null the first time."""
    bar = (request.get("bar") or 0) + 1
    shortlist = [one for one in request["ranked"] if one["score"] >= bar]
    return {
        "verdict": "look closer",
        "bar": bar,
        "within_budget": len(shortlist) <= request["budget"],
        "shortlist": shortlist,
    }
