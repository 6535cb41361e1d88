"""Tables of the cluster benchmark from the figures that `run` gathered."""

from harness import number, ratio, table

TRAINING_GOALS = {"A": 3.0, "B": 2.0, "C": 1.7}
KEEPS_GOAL = 0.95
CPU_GOALS = {"coordinator": 0.01, "server": 0.05}
START_GOAL_S = 0.4
SLOPE_GOAL_S = 0.015
EXCHANGE_GOAL = 0.6
TLS_GOAL = 0.8

OURS = "planaria"
IN_PROCESS = "planaria, in process"
ONE_WORKER = "planaria, 1 worker"
TWO_RUNS = "planaria, two runs at once"


def rate(case, name):
    found = case["engines"].get(name)
    return found["per_second"] if found else None


def at_most(value, goal, text):
    return f"{text(value)} ✓" if value <= goal else f"{text(value)} ✗ ({text(goal)})"


def training(cases, peers):
    rows = []
    for case in cases:
        best = max((rate(case, p) for p in peers if rate(case, p)), default=None)
        rows.append([f"{case['net']}, {case['unit']}/s", *(number(rate(case, n))
                     for n in (OURS, *peers)),
                     ratio(rate(case, OURS), best, TRAINING_GOALS[case["net"]])])
    return table(["2 workers, 1 server", OURS, *peers, "planaria / best peer"], rows)


def keeps(cases):
    """What is left of the speed of one process."""
    rows = []
    for case in cases:
        for text, ours, other in (
                ("one worker and one server / in process, one thread", ONE_WORKER, IN_PROCESS),
                ("two workers and one server / two runs at once", OURS, TWO_RUNS)):
            if rate(case, other):
                rows.append([f"{case['net']}: {text}", number(rate(case, ours)),
                             number(rate(case, other)),
                             ratio(rate(case, ours), rate(case, other), KEEPS_GOAL)])
    return table(["what the cluster keeps", "img/s", "of", "ratio"], rows) if rows else ""


def cpu(found):
    def percent(value):
        return f"{value:.1%}"

    rows = []
    for kind in ("coordinator", "server", "worker"):
        if kind in found:
            goal = CPU_GOALS.get(kind)
            rows.append([kind if goal else "both workers",
                         at_most(found[kind], goal, percent) if goal else percent(found[kind])])
    return table(["C, 2 workers", f"share of a core over {found['window_s']:.0f} s"], rows)


def start(found):
    """`found` is worker count (as text) to the seconds of its rounds, see `figure`."""
    def seconds(value):
        return f"{value:.3f} s"

    points = sorted((int(workers), f["per_second"]) for workers, f in found.items())
    rows = []
    for workers, median in points:
        f = found[str(workers)]
        rows.append([str(workers), at_most(median, START_GOAL_S, seconds) if workers == 2
                     else seconds(median), f"{f['least']:.3f} to {f['most']:.3f}",
                     f"{5.02 + 1.02 * workers:.1f} s"])
    text = table(["workers", "command to first step", "range",
                  "Emulearner (2018), 5.02 + 1.02·n s"], rows)
    if len(points) > 1:
        base, slope = line(points)
        text += (f"\nFitted: {base:.3f} s + {slope * 1000:.1f} ms per worker "
                 f"{'✓' if slope <= SLOPE_GOAL_S else '✗'} "
                 f"(goal {SLOPE_GOAL_S * 1000:.0f} ms).\n")
    return text


def line(points):
    """Least squares: value at 0 and slope."""
    n = len(points)
    mean_x, mean_y = sum(x for x, _ in points) / n, sum(y for _, y in points) / n
    slope = (sum((x - mean_x) * (y - mean_y) for x, y in points)
             / sum((x - mean_x) ** 2 for x, _ in points))
    return mean_y - slope * mean_x, slope


def exchange(found):
    ours, tcp = found["exchange_bytes_per_second"], found["tcp_bytes_per_second"]
    tls = found["tls_bytes_per_second"]
    return table(["exchange, MB/s", "plain TCP, MB/s", "ratio", "exchange under TLS, MB/s",
                  "of exchange"],
                 [[number(ours / 1e6), number(tcp / 1e6), ratio(ours, tcp, EXCHANGE_GOAL),
                   number(tls / 1e6), ratio(tls, ours, TLS_GOAL)]])


def document(figures):
    parts = [figures["title"]]
    if figures["training"]:
        parts.append(training(figures["training"], figures["peers"]))
        parts.append(keeps(figures["training"]))
    for name, make in (("cpu", cpu), ("start", start), ("exchange", exchange)):
        if figures[name]:
            parts.append(make(figures[name]))
    if figures["left_out"]:
        parts.append("Left out:\n" + "\n".join(f"- {text}" for text in figures["left_out"]) + "\n")
    return "\n".join(part for part in parts if part)
