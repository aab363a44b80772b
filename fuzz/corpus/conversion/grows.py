def f(d):
    x = 'a'
    while True:
        x += x