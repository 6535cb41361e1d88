"""Small drawings as SVG, readable on light and dark pages."""

import math
from xml.sax.saxutils import escape

STYLE = """<style>
text { font: 12px system-ui, sans-serif; fill: #24292f; }
.small { font-size: 11px; fill: #57606a; }
.grid { stroke: #d0d7de; stroke-width: 1; }
.s0 { stroke: #0969da; } .s1 { stroke: #bc4c00; }
.line { fill: none; stroke-width: 2; } .s1.line { stroke-dasharray: 5 3; }
.f0 { fill: #0969da; } .f1 { fill: #bc4c00; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; } .small { fill: #9198a1; } .grid { stroke: #3d444d; }
  .s0 { stroke: #58a6ff; } .s1 { stroke: #ffa657; } .f0 { fill: #58a6ff; } .f1 { fill: #ffa657; }
}
</style>
"""
PANEL, HEIGHT, LEFT, TOP, BOTTOM = 240, 210, 46, 44, 168


def lines(across_name, across, panels):
    """Panels beside each other: (title, [(name, values)]), each from 0 to its largest value."""
    body = []
    for number, (title, series) in enumerate(panels):
        body.append(panel(number * PANEL, title, across_name, across, series))
    return page(len(panels) * PANEL, HEIGHT, "".join(body))


def panel(x0, title, across_name, across, series):
    most = rounded_up(max(max(values) for _, values in series))
    left, right = x0 + LEFT, x0 + PANEL - 14

    def x(value):
        return left + (right - left) * (value - across[0]) / max(1, across[-1] - across[0])

    def y(value):
        return BOTTOM - (BOTTOM - TOP) * value / most

    out = [word(x0 + 8, 16, title)]
    for share in (0, 0.5, 1):
        at = y(most * share)
        out.append(f'<line class="grid" x1="{left}" y1="{at:.1f}" x2="{right}" y2="{at:.1f}"/>\n')
        out.append(word(left - 5, at + 4, f"{most * share:,.4g}", "small", "end"))
    for value in across:
        out.append(word(x(value), BOTTOM + 16, value, "small", "middle"))
    out.append(word((left + right) / 2, BOTTOM + 32, across_name, "small", "middle"))
    for number, (name, values) in enumerate(series):
        points = " ".join(f"{x(a):.1f},{y(v):.1f}" for a, v in zip(across, values))
        out.append(f'<polyline class="line s{number}" points="{points}"/>\n')
        out += [f'<circle class="f{number}" cx="{x(a):.1f}" cy="{y(v):.1f}" r="3"/>\n'
                for a, v in zip(across, values)]
        if name:
            at = left + number * 72
            out.append(f'<circle class="f{number}" cx="{at}" cy="30" r="3"/>\n')
            out.append(word(at + 7, 34, name, "small"))
    return "".join(out)


def bars(title, named):
    """Bars on a logarithmic scale; 0 has none."""
    least = math.floor(math.log10(min((v for _, v in named if v > 0), default=1e-16))) - 1
    most = math.ceil(math.log10(max((v for _, v in named if v > 0), default=1.0)))
    left, right, step = 150, 560, 24
    out = [word(8, 18, title)]
    for number, (name, value) in enumerate(named):
        at = 34 + number * step
        out.append(word(left - 8, at + 11, name, "small", "end"))
        length = 0.0
        if value > 0:
            length = (right - left) * (math.log10(value) - least) / (most - least)
            out.append(f'<rect class="f{number % 2}" x="{left}" y="{at}" width="{length:.1f}" '
                       f'height="{step - 9}"/>\n')
        out.append(word(left + length + 6, at + 11, f"{value:.1e}" if value else "0", "small"))
    return page(640, 44 + len(named) * step, "".join(out))


def rounded_up(value):
    """The next of 1, 1.5, 2, 3, 4, 5, 6, 8 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(value)) if value > 0 else 1.0
    return next(power * step for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10)
                if power * step >= value or step == 10)


def word(x, y, text, kind="", anchor="start"):
    kind = f' class="{kind}"' if kind else ""
    return (f'<text{kind} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">'
            f'{escape(str(text))}</text>\n')


def page(width, height, body):
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" role="img">\n{STYLE}{body}</svg>\n')
