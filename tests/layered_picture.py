"""Draws what stands above what, as an SVG: boxes in rows, and an arrow from each to those below that it leads to.

The same arrows give the same picture, at each run and on each machine. Its steps: rows, an order in each row, places.
K. Sugiyama, S. Tagawa, M. Toda: Methods for Visual Understanding of Hierarchical System Structures (1981).
"""

from functools import cache
from html import escape
from itertools import combinations, pairwise

WIDTH, HEIGHT, GAP, PITCH, EDGE = 138, 42, 8, 80, 16
# How wide an arrow is where it passes a row.
PASS = 6
SWEEPS = 30


class LayeredPicture:
    """`boxes` are pairs of a name and a line below it. `arrows` are pairs of names, without a circle."""

    def __init__(self, boxes, arrows):
        self.boxes = dict(boxes)
        rows = _rows(self.boxes, arrows)
        # The way of each arrow: its two boxes, and between them a place in each row that it passes.
        self.ways = [
            [(above, 0), *(((above, below), row) for row in range(rows[above] + 1, rows[below])), (below, 0)]
            for above, below in arrows
        ]
        lines = [[] for _ in range(max(rows.values()) + 1)]
        for name, row in rows.items():
            lines[row].append((name, 0))
        for way in self.ways:
            for _, row in way[1:-1]:
                lines[row].append(way[row - rows[way[0][0]]])
        self._beside = _neighbours(self.ways)
        self.lines = self._ordered(lines)
        self.places = self._placed()

    def svg(self, label):
        """Return the picture. A screen reader says the label."""
        left = min(self.places.values()) - WIDTH / 2 - EDGE
        width = round(max(self.places.values()) + WIDTH / 2 + EDGE - left)
        height = 2 * EDGE + HEIGHT + PITCH * (len(self.lines) - 1)
        at = {
            each: (round(self.places[each] - left, 1), EDGE + HEIGHT / 2 + PITCH * row)
            for row, line in enumerate(self.lines)
            for each in line
        }
        head = f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"
 width="{width}" height="{height}" role="img" aria-label="{escape(label)}" font-family="sans-serif" font-size="14">
<rect width="{width}" height="{height}" rx="8" fill="#fff"/>
<defs><marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
<path d="M0 0 8 4 0 8z" fill="#445"/></marker></defs>"""
        return "\n".join((
            head,
            *(_arrow([at[each] for each in way]) for way in self.ways),
            *(_box(*at[name, 0], name, below) for name, below in self.boxes.items()),
            "</svg>\n",
        ))  # fmt: skip

    def _ordered(self, lines):
        """Each box stands where its neighbours do, of the row above and of that below in turn. The best order wins."""
        best, fewest = lines, self._crossings(lines)
        for sweep in range(SWEEPS):
            lines = [list(line) for line in lines]
            upwards = sweep % 2
            for row in range(len(lines) - 2, -1, -1) if upwards else range(1, len(lines)):
                known = {each: number for number, each in enumerate(lines[row + 1 if upwards else row - 1])}
                lines[row].sort(key=lambda each, known=known: self._middle(each, known))
            crossings = self._crossings(lines)
            if crossings < fewest:
                best, fewest = lines, crossings
        return best

    def _middle(self, each, known):
        there = [known[other] for other in self._beside.get(each, ()) if other in known]
        return sum(there) / len(there) if there else 0.0

    def _crossings(self, lines):
        place = {each: number for line in lines for number, each in enumerate(line)}
        steps = [[] for _ in lines]
        row_of = {each: row for row, line in enumerate(lines) for each in line}
        for way in self.ways:
            for above, below in pairwise(way):
                steps[row_of[above]].append((place[above], place[below]))
        return sum((a - c) * (b - d) < 0 for row in steps for (a, b), (c, d) in combinations(row, 2))

    def _placed(self):
        """Move each row, without changing its order, to where its boxes' neighbours are."""
        places = {each: 0.0 for line in self.lines for each in line}
        for sweep in range(SWEEPS):
            for line in self.lines if sweep % 2 else reversed(self.lines):
                wanted = [self._middle(each, places) for each in line]
                places |= zip(line, _apart(line, wanted), strict=True)
        return places


def _rows(boxes, arrows):
    """The row of each box: as high as those allow that lead to it."""
    above = {name: [one for one, other in arrows if other == name] for name in boxes}

    @cache
    def row(name):
        return max((row(each) + 1 for each in above[name]), default=0)

    return {name: row(name) for name in boxes}


def _neighbours(ways):
    beside = {}
    for way in ways:
        for above, below in pairwise(way):
            beside.setdefault(above, []).append(below)
            beside.setdefault(below, []).append(above)
    return beside


def _apart(line, wanted):
    """Places as near to those that are wanted as room allows: boxes that would meet share their middle."""
    sizes = [WIDTH if row == 0 else PASS for _, row in line]
    offsets = [0.0]
    for one, other in pairwise(sizes):
        offsets.append(offsets[-1] + (one + other) / 2 + GAP)
    # Sums and numbers of those that stand together, from the left.
    groups = []
    for place, offset in zip(wanted, offsets, strict=True):
        groups.append((place - offset, 1))
        while len(groups) > 1 and groups[-2][0] / groups[-2][1] >= groups[-1][0] / groups[-1][1]:
            (total, number), (more, others) = groups[-2:]
            groups[-2:] = [(total + more, number + others)]
    shifts = [total / number for total, number in groups for _ in range(number)]
    return [shift + offset for shift, offset in zip(shifts, offsets, strict=True)]


def _arrow(points):
    """A line from the lower edge of the first box to the upper edge of the last, upright where it passes a row."""
    (x, y), *passes, (to_x, to_y) = points
    path, last = f"M{x:g} {y + HEIGHT / 2:g}", y + HEIGHT / 2
    for next_x, middle, is_last in [*((*each, False) for each in passes), (to_x, to_y, True)]:
        top = middle - HEIGHT / 2 - (2 if is_last else 0)
        path += f"C{x:g} {(last + top) / 2:g} {next_x:g} {(last + top) / 2:g} {next_x:g} {top:g}"
        x, last = next_x, middle + HEIGHT / 2
        path += "" if is_last else f"V{last:g}"
    return f'<path d="{path}" fill="none" stroke="#445" stroke-width="1.3" marker-end="url(#a)"/>'


def _box(x, y, name, below):
    return (
        f'<rect x="{x - WIDTH / 2:g}" y="{y - HEIGHT / 2:g}" width="{WIDTH}" height="{HEIGHT}" rx="6" fill="#f4f5f8" '
        f'stroke="#aab"/><text x="{x:g}" y="{y - 3:g}" text-anchor="middle" fill="#223">{escape(name)}</text>'
        f'<text x="{x:g}" y="{y + 14:g}" text-anchor="middle" font-size="12" fill="#556">{escape(below)}</text>'
    )
