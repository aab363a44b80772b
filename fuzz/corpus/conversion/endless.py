def f(d):
    while True:
        pass