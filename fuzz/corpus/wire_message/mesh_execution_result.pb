:%
We1"

o.json2{"r":[1,null]}