
f
WaR{"type":"object","properties":{"n":{"type":"integer","maximum":9007199254740993}}}*
W_a_1.json