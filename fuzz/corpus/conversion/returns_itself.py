def f(d):
    d["d"] = d
    return d