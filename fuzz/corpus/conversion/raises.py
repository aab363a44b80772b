def f(d):
    raise ValueError('no')