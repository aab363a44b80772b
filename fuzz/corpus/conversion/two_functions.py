def a(d):
    return 1
def b(d):
    return 2