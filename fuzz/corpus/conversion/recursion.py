def f(d):
    return f(d)