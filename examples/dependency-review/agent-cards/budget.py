def keep_to_budget(request):
    """Raises the threshold by one point; `bar` is null the first time."""
    bar = (request.get("bar") or 0) + 1
    shortlist = [one for one in request["ranked"] if one["score"] >= bar]
    return {
        "verdict": "look closer",
        "bar": bar,
        "within_budget": len(shortlist) <= request["budget"],
        "shortlist": shortlist,
    }
