WIDTH, LEFT, RIGHT, ROW = 720, 190, 60, 26
LEVELS = [("none", "#cbd5e1"), ("low", "#93b7dd"), ("medium", "#f0a04b"), ("high", "#c2413b")]
INK, SOFT = "#1e293b", "#64748b"


def chart(request):
    """Draws a strip of the levels, and bars of the findings and of the heaviest direct dependencies."""
    tally = request["tally"]
    parts = [text(24, 38, f"{request['workspace']}: {tally['total']} packages by risk", 18, weight=600)]
    parts += strip(tally["levels"], tally["total"], 56)
    y = 140
    findings = [(row["name"], row["count"]) for row in tally["findings"]]
    heaviest = [(row["name"], row["subtree"]) for row in tally["heaviest"]]
    for title, rows, color in (
        ("Findings, by number of packages", findings, "#5b7fb5"),
        ("Direct dependencies, by number of transitive packages", heaviest, "#7c6aa8"),
    ):
        parts.append(text(24, y, title, 14, weight=600))
        parts += bars(rows, y + 14, color)
        y += 50 + ROW * max(1, len(rows))
    height = y - 16
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img" font-family="system-ui, Helvetica, Arial, sans-serif">'
    )
    title = f"<title>{escape(request['workspace'])}: packages by risk</title>"
    ground = f'<rect width="{WIDTH}" height="{height}" rx="10" fill="#ffffff"/>'
    return {"svg": "\n".join([head, title, ground] + parts + ["</svg>", ""])}


def strip(levels, total, y):
    """Divides the width among the levels, with a legend below."""
    parts, x, at = [], 24, 24
    for level, color in LEVELS:
        width = (WIDTH - 48) * levels[level] / max(1, total)
        parts.append(f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="22" fill="{color}"/>')
        x += width
        parts.append(f'<rect x="{at}" y="{y + 34}" width="12" height="12" rx="2" fill="{color}"/>')
        parts.append(text(at + 18, y + 44, f"{level} {levels[level]}", 13, SOFT))
        at += 110
    return parts


def bars(rows, y, color):
    if not rows:
        return [text(24, y + 18, "nothing", 13, SOFT)]
    longest = max(value for _, value in rows)
    parts = []
    for name, value in rows:
        width = max(2, (WIDTH - LEFT - RIGHT) * value / max(1, longest))
        parts.append(text(LEFT - 10, y + 18, name, 13, anchor="end"))
        parts.append(f'<rect x="{LEFT}" y="{y + 5}" width="{width:.1f}" height="18" rx="3" fill="{color}"/>')
        parts.append(text(LEFT + width + 8, y + 18, str(value), 13, SOFT))
        y += ROW
    return parts


def text(x, y, words, size, color=INK, weight=400, anchor="start"):
    return (
        f'<text x="{x:.1f}" y="{y}" font-size="{size}" font-weight="{weight}" fill="{color}" '
        f'text-anchor="{anchor}">{escape(words)}</text>'
    )


def escape(words):
    return words.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
