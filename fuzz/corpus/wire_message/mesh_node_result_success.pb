

o.json