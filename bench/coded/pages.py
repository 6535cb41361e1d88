"""Figures of the coded benchmark as Markdown and drawings, and where they go in docs/."""

import statistics

import drawing
from harness import ROOT, table
from parts import middle

GOAL_DISTANCE = 1e-12
PUBLISHED_SAVING = 0.46
GOAL_ACCURACY, GOAL_F1 = 0.82, 0.46
# The file, and the marks between which it is ours to write.
PLACES = {"benchmarks": (ROOT / "docs/benchmarks.md", "bench/coded"),
          "coded": (ROOT / "docs/coded.md", "bench/coded")}
DRAWINGS = ROOT / "docs/coded"


def document(figures):
    """The section of docs/benchmarks.md."""
    parts, title = [], None
    for name, write_part in WRITERS.items():
        found = figures.get(name)
        if not found:
            continue
        # Parts that were measured together have one title.
        if found["title"] != title:
            title = found["title"]
            parts.append(title)
        parts.append(f"Left out: {name}, {found['left_out']}.\n" if "left_out" in found
                     else write_part(found))
    return "\n".join(parts)


def summary(figures):
    """The section of docs/coded.md: drawings, and the figures that a reader asks for first."""
    found = {name: part for name, part in figures.items() if "left_out" not in part}
    parts = sorted({part["title"] for part in found.values()})
    if "curves" in found:
        parts.append("![rows of one machine, its processor time, time and bytes per iteration, "
                     "against the number of machines](coded/machines.svg)\n")
        parts.append(curves_text(found["curves"]))
    if "churn" in found:
        parts.append("![distance of the weights to those of one machine](coded/distance.svg)\n")
        parts.append(churn_table(found["churn"]))
    if "compare" in found:
        parts.append(compare_parts(found["compare"]))
    if "saving" in found:
        parts.append(saving_text(found["saving"]))
    parts.append("More of them, and the commands, are in [benchmarks.md](benchmarks.md).\n")
    return "\n".join(parts)


def write(figures):
    """Puts all of it into docs/; the files that were written."""
    DRAWINGS.mkdir(exist_ok=True)
    written = []
    for name, draw in (("curves", draw_machines), ("churn", draw_distance)):
        if name in figures and "left_out" not in figures[name]:
            path, text = draw(figures[name])
            path.write_text(text)
            written.append(path)
    for name, text in (("benchmarks", document(figures)), ("coded", summary(figures))):
        path, mark = PLACES[name]
        begin, end = f"<!-- begin: {mark} -->\n", f"<!-- end: {mark} -->"
        before, rest = path.read_text().split(begin)
        _, after = rest.split(end)
        path.write_text(f"{before}{begin}{text}{end}{after}")
        written.append(path)
    return [str(p.relative_to(ROOT)) for p in written]


def goal(met, text=""):
    return " ✓" if met else f" ✗{text}"


def kilobytes(value):
    return "–" if value is None else f"{value / 1e3:,.0f} kB"


def megabytes(value):
    return "–" if value is None else f"{value / 1e6:,.1f} MB"


def milliseconds(value):
    return "–" if value is None else f"{value * 1e3:,.1f} ms"


def times(ours, other):
    return "–" if not ours or not other else f"{ours / other:.2f}×"


# Against data parallelism.


def compare_parts(found):
    return "\n".join(compare_table(name, found["tables"][name]) for name in found["tables"])


def compare_table(name, found):
    examples, width = found["examples"], found["width"]
    plain = 2 * examples
    what = {"dense": "Dense data", "credit": "The credit table"}[name]
    text = (f"{what}, {examples:,} rows × {width - 1} columns, 8 workers, threshold 4; per "
            f"iteration, medians of {len(found['rows'][0]['runs'])}. With churn, "
            f"{found['kills']} workers are killed in {found['iterations']} iterations, at the same "
            "ones in each scheme. Processor time is that of all processes, also of workers that "
            "return and read the data:\n")
    rows, kept = [], {}
    for row in found["rows"]:
        runs = row["runs"]
        figure = {key: middle(runs, key) for key in
                  ("rows", "cpu_s", "workers_cpu_s", "bytes", "share", "least", "stored_bytes",
                   "memory_bytes", "seconds")}
        kept[row["scheme"], row["churn"]] = figure
        rows.append([row["scheme"] + (", churn" if row["churn"] else ""),
                     f"{figure['rows'] / plain:.3f}", milliseconds(figure["cpu_s"]),
                     milliseconds(figure["workers_cpu_s"]), milliseconds(figure["seconds"]),
                     kilobytes(figure["bytes"]),
                     f"{figure['share']:.3f}" + (f" ({megabytes(figure['stored_bytes'])} on disk)"
                                                 if figure["stored_bytes"] else ""),
                     f"{figure['least']:.3f}", megabytes(figure["memory_bytes"])])
    for ours in ("coded f32", "coded f64"):
        for other in ("recomputed", "computed twice"):
            a, b = kept[ours, True], kept[other, True]
            rows.append([f"{ours} / {other}, churn"] +
                        [times(a[key], b[key]) for key in
                         ("rows", "cpu_s", "workers_cpu_s", "seconds", "bytes", "share", "least",
                          "memory_bytes")])
    return text + "\n" + table(
        ["", "rows computed, of both products' rows", "processor time", "of it workers'", "time",
         "on links", "of the data on a machine", "least the scheme needs there",
         "peak memory of a worker"], rows)


# Against codes that do not adapt.


def by_scheme(found, chosen):
    """Scheme to means over the iterations that `chosen` takes, of each round; then the median of
    rounds."""
    keys = ("rows", "rows_of_one_max", "work_cpu_seconds", "work_cpu_seconds_of_one_max",
            "decode_cpu_seconds", "decode_wall_seconds", "work_macs", "decode_macs", "cpu")
    out = {}
    for scheme in ("adaptive", "whole"):
        rounds = {}
        for row in found["iterations"]:
            if row["scheme"] == scheme and chosen(row):
                row = row | {"cpu": row["work_cpu_seconds"] + row["decode_cpu_seconds"]}
                rounds.setdefault(row["round"], []).append(row)
        out[scheme] = {key: statistics.median(statistics.mean(r[key] for r in rows)
                                              for rows in rounds.values()) for key in keys}
    return out


def saved(schemes, key):
    return 1 - schemes["adaptive"][key] / schemes["whole"][key]


def traces(found):
    """The traces that savings are of: names, and which iterations are theirs."""
    sizes = found["machines"] - found["threshold"] + 1
    grown = sizes + found["stay"]
    low, high = found["threshold"], found["machines"]
    return {"there and back": (f"{low} to {high} and back, every size alike",
                               lambda row: not sizes <= row["iteration"] < grown),
            "grown": (f"{low} to {high}, then {high} for {found['stay']} iterations more",
                      lambda row: row["iteration"] < grown)}


def saving_table(found):
    rows = []

    def add(name, chosen):
        s = by_scheme(found, chosen)
        rows.append([name, f"{s['whole']['rows']:,.0f}", f"{s['adaptive']['rows']:,.0f}",
                     f"{saved(s, 'rows'):.1%}",
                     milliseconds(s["whole"]["cpu"]), milliseconds(s["adaptive"]["cpu"]),
                     f"{saved(s, 'cpu'):.1%}", f"{saved(s, 'work_cpu_seconds_of_one_max'):.1%}"])

    for present in sorted({row["present"] for row in found["iterations"]}):
        add(str(present), lambda row, p=present: row["present"] == p)
    for name, chosen in traces(found).values():
        add(f"**{name}**", chosen)
    head = ["machines", "rows, not adaptive", "rows, adaptive", "saved",
            "processor time, not adaptive", "adaptive", "saved",
            "saved, machine that works longest"]
    return saving_text(found) + "\n" + table(head, rows)


def saving_text(found):
    """What is averaged, and what comes out."""
    both = {name: by_scheme(found, chosen) for name, (_, chosen) in traces(found).items()}
    back, grown = both["there and back"], both["grown"]
    low, high = found["threshold"], found["machines"]
    return (
        f"A code that does not adapt has every machine multiply all it stores (m/{low} rows of each "
        f"product), however many are there; here each has m/P. {found['rows']:,} × "
        f"{found['width']} in f64, threshold {low}; both products and decoding are really computed, "
        "by the same kernels, in turn in one thread, and compared with one machine's. Means per "
        f"iteration. Machines join one per iteration from {low} to {high} and leave again: "
        f"{saved(back, 'rows'):.1%} fewer rows and {saved(back, 'cpu'):.1%} less processor time. "
        f"They join and then stay for {found['stay']} iterations: {saved(grown, 'rows'):.1%} and "
        f"{saved(grown, 'cpu'):.1%}. Rows saved are 1 − {low}/P at any moment; the "
        f"published {PUBLISHED_SAVING:.0%} of computation time (Yang and others 2018, P from {low} "
        f"to {high}) needs a mean of {low / (1 - PUBLISHED_SAVING):.1f} machines. Of the publication "
        "only the abstract was at hand, which gives no trace of its machines; the second of ours "
        "was chosen to have as many, and is no more than that.\n")


def decode_table(found):
    width, threshold = found["width"], found["threshold"]
    bound = 2 * threshold / width
    rows = []
    for present in sorted({row["present"] for row in found["iterations"]}):
        ours = [r for r in found["iterations"]
                if r["scheme"] == "adaptive" and r["present"] == present]
        share = {r["round"]: r["decode_macs"] / r["work_macs"] for r in ours}
        own = max(r["decode_macs_of_one_max"] / (r["rows_of_one_max"] * width) for r in ours)
        s = by_scheme(found, lambda row, p=present: row["present"] == p)["adaptive"]
        rows.append([str(present), f"{share[0]:.3%}",
                     f"{max(share.values()):.3%}" + goal(max(share.values()) <= bound),
                     f"{own:.3%}" + goal(own <= bound),
                     f"{s['decode_wall_seconds'] * 1e3:.3f} ms",
                     f"{s['work_cpu_seconds'] * 1e3:.2f} ms"])
    text = (f"Decoding and transforming, {found['rows']:,} × {width} in f64, threshold "
            f"{threshold}; each group decoded by another machine. The bound is 2·L/d = {bound:.2%} "
            "of the workers' multiplications:\n")
    return text + "\n" + table(
        ["machines", "multiplications, of the workers', systematic machines first",
         "any machines, the most", "of one machine, of its own",
         "time of decoding all groups", "time of both products, all machines"], rows)


# How it goes with the number of machines.


def machine_rows(found):
    for row in found["by_machines"]:
        runs, p = row["runs"], row["machines"]
        yield {"machines": p, "rows": row["plan"]["rows_max"],
               "share": found["examples"] / p, "cpu": middle(runs, "workers_cpu_s") / p,
               "seconds": middle(runs, "seconds"), "bytes": middle(runs, "bytes"),
               "counted": row["plan"]["traffic_values"] * 8,
               "between": each(runs, "sent_bytes"),
               "decode": each(runs, "decode_seconds") / each(runs, "busy_seconds")}


def each(runs, key):
    """What workers of coded runs count, per iteration: the median of runs."""
    return statistics.median(run["products"][key] / run["steps"] for run in runs)


def curves_table(found):
    rows = []
    for r in machine_rows(found):
        even = abs(r["rows"] / r["share"] - 1) <= 0.01
        rows.append([str(r["machines"]), f"{r['rows']:,}" + goal(even), milliseconds(r["cpu"]),
                     milliseconds(r["seconds"]), kilobytes(r["bytes"]), kilobytes(r["between"]),
                     kilobytes(r["counted"]), f"{r['decode']:.1%}"])
    text = (f"Runs in peace on dense data, {found['examples']:,} × {found['width']} in f64, "
            "threshold 4. All workers share the cores of one machine, so time cannot fall with "
            "their number here as rows do:\n")
    return text + "\n" + table(
        ["machines", "rows of one, of each product (m/P)", "its processor time", "time",
         "on links, all of it", "of it from worker to worker", "m values up and m down",
         "decoding, of workers' computing time"], rows)


def curves_text(found):
    return (f"Per iteration on dense data, {found['examples']:,} rows × {found['width']} columns in "
            "f64, threshold 4. All workers share the cores of one machine, so time cannot fall with "
            "their number here as rows do.\n")


def draw_machines(found):
    rows = list(machine_rows(found))
    across = [r["machines"] for r in rows]
    panels = [("rows of one machine", [("", [r["rows"] for r in rows])]),
              ("ms per iteration", [("time", [r["seconds"] * 1e3 for r in rows]),
                                    ("processor of one", [r["cpu"] * 1e3 for r in rows])])]
    if all(r["bytes"] for r in rows):
        panels.append(("kB per iteration",
                       [("on links", [r["bytes"] / 1e3 for r in rows]),
                        ("worker to worker", [r["between"] / 1e3 for r in rows])]))
    return DRAWINGS / "machines.svg", drawing.lines("machines", across, panels)


# Weights while machines come and go.


def churn_rows(found):
    for row in found["rows"]:
        runs, precision = row["runs"], row["precision"]
        farthest = max(run["distance"] for run in runs)
        alike = all(run["same_confusion"] for run in runs)
        # The slope of hinge jumps, so that weights may differ where predictions do not.
        met, goal_text = {
            "exact": (all(run["same_bytes"] for run in runs), "the same bytes"),
            "f32": (farthest <= 5 * row["floor"], "≤ 5 times another order"),
            "f64": (farthest <= GOAL_DISTANCE, "≤ 1e-12")}[precision]
        if row["loss"] == "hinge" and precision != "exact":
            met, goal_text = alike, "same confusion matrix"
        yield row | {"distance": farthest, "met": met, "goal": goal_text,
                     "bytes": all(run["same_bytes"] for run in runs),
                     "confusion": alike if runs[0]["has_classes"] else None,
                     "killed": sum(run["killed"] for run in runs), "count": len(runs),
                     "inside": sum(run["inside"] for run in runs)}


def churn_table(found):
    def small(value):
        return f"{value:.1e}" if value else "0"

    rows = [[r["loss"], r["precision"], f"{r['iterations']} × {r['count']}",
             f"{r['killed']}, {r['inside']} inside", small(r["distance"]), small(r["floor"]),
             "yes" if r["bytes"] else "no",
             {None: "–", True: "yes ✓", False: "NO ✗"}[r["confusion"]],
             r["goal"] + goal(r["met"])] for r in churn_rows(found)]
    text = ("Linear models on the credit table, on 8 real worker processes that are killed at "
            "random, many inside an iteration, and return; the largest difference of a weight to "
            "one process on plain rows, as a share of the largest weight. *Another order* is that "
            "of runs in which no block is coded and rows are only added up by 2 to 8 workers:\n")
    return text + "\n" + table(["loss", "precision", "iterations", "killed", "distance",
                                "another order", "same bytes", "same confusion matrix", "goal"], rows)


def draw_distance(found):
    bars = []
    for r in churn_rows(found):
        if r["loss"] == found["rows"][0]["loss"]:
            bars += [(f"{r['precision']}, under churn", r["distance"]),
                     (f"{r['precision']}, another order", r["floor"])]
    return DRAWINGS / "distance.svg", drawing.bars("distance to one machine, of the largest weight",
                                                   bars)


# The example.


def credit_table(found):
    same = sum(found["exact_same"])
    rows = [["accuracy", f"{found['accuracy']:.2%}", f"≥ {GOAL_ACCURACY:.1%}" +
             goal(found["accuracy"] >= GOAL_ACCURACY), "80.28 %"],
            ["F1 of the positive class", f"{found['f1']:.4f}", f"≥ {GOAL_F1}" +
             goal(found["f1"] >= GOAL_F1), "0.34"],
            ["exact: same bytes as in peace", f"{same} of {len(found['exact_same'])} seeds",
             "all" + goal(same == len(found["exact_same"])), "–"]]
    text = (f"`examples/credit-svm.yaml`, {found['steps']} iterations on 8 workers while `planaria "
            f"chaos --kill worker` breaks it ({found['lost']} lost; in exact arithmetic "
            f"{', '.join(map(str, found['exact_lost']))}):\n")
    return text + "\n" + table(["", "measured", "goal", "published (2019 report)"], rows)


WRITERS = {"compare": compare_parts, "saving": saving_table, "decode": decode_table,
           "curves": curves_table, "churn": churn_table, "credit": credit_table}
