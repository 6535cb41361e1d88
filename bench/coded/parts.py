"""The parts of the coded benchmark: each measures, and returns figures that JSON can hold."""

import json
import os
import random
import statistics
import subprocess
import time

import tables
from harness import ROOT, Failed, talk
from live import wait
from tables import MACHINES, THRESHOLD
from watched import watch

SEED = 4
# So long all 20 machines stay: then rows saved since the first joined are those published.
STAY = 27
LOSSES = ("squared_hinge", "hinge", "binary_cross_entropy", "mse")
VALUE_BYTES = {"f32": 4, "f64": 8, "exact": 8}


class Bench:
    """What parts need: where runs are made, the program that computes alone, data, sizes."""

    def __init__(self, place, work, credit, rounds, quick):
        self.place, self.work, self.rounds, self.quick = place, work, rounds, quick
        self.folder = place.folder
        self.credit = tables.credit(credit)
        self.rows, self.width = (2_000, 60) if quick else (20_000, 500)
        self.iterations = 80 if quick else 160
        self._dense = None

    def dense(self):
        if self._dense is None:
            self._dense = tables.draw(self.folder / "dense", self.rows, self.width)
        return tables.dense(self._dense)


def in_turn(rounds, names, measure):
    """Name to what each round measured of it, forwards and backwards in turn."""
    found = {name: [] for name in names}
    for number in range(rounds):
        for name in list(names)[::1 if number % 2 == 0 else -1]:
            found[name].append(measure(name))
    return found


def middle(rows, key):
    values = [row[key] for row in rows if row.get(key) is not None]
    return statistics.median(values) if values else None


# Against data parallelism.


def compare(bench):
    """Coded runs beside runs that compute lost shards again, and beside runs that compute every
    shard twice, with the same workers killed at the same steps."""
    found = {"dense": beside(bench, "dense", bench.dense(), bench.rows, (False, True))}
    if bench.credit:
        found["credit"] = beside(bench, "credit", bench.credit, tables.CREDIT_EXAMPLES,
                                 (True,))
    else:
        talk(f"  no {tables.CREDIT}; name its folder with --data")
    return {"tables": found}


def beside(bench, name, data, examples, churns):
    iterations = bench.iterations
    kills = [(iterations * number // 8, number) for number in range(1, 7)]
    schemes = {"coded f32": lambda: tables.coded(f"{name}-f32", data, iterations, MACHINES, "f32"),
               "coded f64": lambda: tables.coded(f"{name}-f64", data, iterations, MACHINES, "f64"),
               "recomputed": lambda: tables.plain(f"{name}-sync", data, iterations, MACHINES, 0,
                                                  examples),
               "computed twice": lambda: tables.plain(f"{name}-twice", data, iterations, MACHINES,
                                                      1, examples)}
    names = [(scheme, churn) for churn in churns for scheme in schemes]

    def measure(which):
        scheme, churn = which
        talk(f"  {name}, {scheme}{', killed' if churn else ''}")
        figures = watch(bench.place, schemes[scheme](), kills if churn else ())
        return figures | computed(scheme, figures)

    measured = in_turn(bench.rounds, names, measure)
    rows = [{"scheme": scheme, "churn": churn, "runs": runs}
            for (scheme, churn), runs in measured.items()]
    first = rows[0]["runs"][0]
    return {"examples": first["examples"], "width": first["width"], "iterations": iterations,
            "kills": len(kills), "rows": rows}


def computed(scheme, figures):
    """Rows of both products that one iteration asked for; which share of the data a machine has,
    and which it would need."""
    examples, width = figures["examples"], figures["width"]
    extra = figures["recomputed"] / figures["steps"]
    if scheme.startswith("coded"):
        block = -(-examples // THRESHOLD)
        # As workers count them, which a lost one cannot: no fewer than were asked for.
        asked = 2 * THRESHOLD * block + figures["products"]["extra_rows"] / figures["steps"]
        rows = max(asked, figures["products"]["rows"] / figures["steps"])
        whole = examples * width * VALUE_BYTES[scheme.split()[1]]
        return {"rows": rows, "share": figures["stored_bytes"] / whole, "least": 1 / THRESHOLD}
    copies = 2 if scheme == "computed twice" else 1
    rows = 2 * copies * examples + 2 * extra * examples / MACHINES
    # Any shard may be dealt to any worker, so each has the whole table.
    return {"rows": rows, "share": 1.0, "least": copies / MACHINES}


# Against codes that do not adapt.


def saving(bench):
    """Both ways to compute in turn, from 10 machines to 20 and back, threshold 10."""
    rows, width = (4_000, 100) if bench.quick else (40_000, 500)
    return worked(bench, rows, width, 10, 20, STAY)


def decode(bench):
    """What decoding costs beside the workers' work, threshold 4, up to 8 machines."""
    return worked(bench, bench.rows, bench.width, THRESHOLD, MACHINES, 0)


def worked(bench, rows, width, threshold, machines, stay):
    talk(f"  {rows} × {width}, threshold {threshold}, up to {machines} machines")
    command = [bench.work, rows, width, threshold, machines, stay, bench.rounds]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False,
                          timeout=300)
    if done.returncode != 0:
        raise Failed(f"coded_work: {done.stderr[-300:]}")
    return {"rows": rows, "width": width, "threshold": threshold, "machines": machines,
            "stay": stay, "iterations": [json.loads(line) for line in done.stdout.splitlines()]}


# How it goes with the number of machines.


def curves(bench):
    """Runs in peace with 4 to 8 workers: rows, processor time, time and bytes per iteration."""
    data, machines = bench.dense(), list(range(THRESHOLD, MACHINES + 1))

    def recipe(workers):
        return tables.coded(f"curve-{workers}", data, bench.iterations, workers, "f64")

    def measure(workers):
        talk(f"  {workers} workers")
        return watch(bench.place, recipe(workers))

    measured = in_turn(bench.rounds, machines, measure)
    path = bench.folder / "plan.yaml"
    path.write_text(json.dumps(recipe(MACHINES)))
    plan = subprocess.run([bench.place.binary, "plan", str(path), "--json"], capture_output=True,
                          text=True, check=False, timeout=60)
    if plan.returncode != 0:
        raise Failed(f"planaria plan: {plan.stderr[-300:]}")
    planned = {row["machines"]: row for row in json.loads(plan.stdout)["coded"]["by_machines"]}
    return {"examples": bench.rows, "width": bench.width,
            "by_machines": [{"machines": p, "plan": planned[p], "runs": measured[p]}
                            for p in machines]}


# Weights while machines come and go.


def churn(bench):
    """Distance of weights to those of one machine, for each loss in each precision, with workers
    killed at random; and how far they move when rows are only added up in another order."""
    if not bench.credit:
        raise Failed(f"it needs {tables.CREDIT}; name its folder with --data")
    chance = random.Random(SEED)
    rows = []
    for loss in LOSSES[:2] if bench.quick else LOSSES:
        # The example's own at length, the others once.
        iterations, runs = (200, bench.rounds) if loss == LOSSES[0] else (100, 1)
        if bench.quick:
            iterations, runs = 24, 1
        for precision in ("f32", "f64", "exact"):
            talk(f"  {loss}, {precision}")
            rows.append(struck(bench, loss, precision, iterations, runs, chance))
    return {"rows": rows}


def struck(bench, loss, precision, iterations, runs, chance):
    """Runs whose workers are killed, beside one process."""
    def recipe(name, workers):
        return tables.coded(name, bench.credit, iterations, workers, precision, loss)

    alone = weighed(bench, recipe("alone", 1))
    floor = 0.0
    # In exact arithmetic sums have no order; one look is enough.
    for machines in (4,) if bench.quick or precision == "exact" else (2, 3, 4, 6, 8):
        other = weighed(bench, all_systematic(recipe("order", machines)))
        floor = max(floor, tables.distance(other["weights"], alone["weights"]))
    found = []
    for _ in range(runs):
        kills = [(chance.randrange(1, iterations), chance.randrange(MACHINES))
                 for _ in range(max(3, iterations // 12))]
        figures = watch(bench.place, recipe("struck", MACHINES), kills)
        found.append({
            "distance": tables.distance(tables.weights(figures["run"]), alone["weights"]),
            "same_bytes": figures["sha256"] == alone["sha256"],
            "same_confusion": figures["confusion"] == alone["confusion"],
            "has_classes": bool(alone["confusion"]),
            "killed": figures["killed"], "inside": figures["struck"]})
    return {"loss": loss, "precision": precision, "iterations": iterations, "floor": floor,
            "runs": found}


def all_systematic(recipe):
    """Every worker stores a block as it is: nothing is decoded, sums have another order."""
    machines = recipe["pool"]["workers"]
    recipe["train"]["coded"] |= {"threshold": machines, "machines": machines}
    return recipe


def weighed(bench, recipe):
    """A run in peace, with its weights."""
    with bench.place.live(recipe) as live:
        report = live.report(300)
        return {"weights": tables.weights(live.run), "sha256": report["weights_sha256"],
                "confusion": report.get("confusion")}


# The example.


def credit(bench):
    """The example as it is, with `planaria chaos` killing its workers: quality, and in exact
    arithmetic the same bytes as in peace whatever the seed."""
    if not bench.credit:
        raise Failed(f"it needs {tables.CREDIT}; name its folder with --data")
    talk("  the example, broken by `planaria chaos`")
    quality = example(bench, "f64", 300, SEED)
    epochs = 40 if bench.quick else 300
    talk("  in exact arithmetic")
    peace = example(bench, "exact", epochs, None)
    seeds = [1] if bench.quick else [1, 2, 3]
    broken = [example(bench, "exact", epochs, seed) for seed in seeds]
    return {"accuracy": quality["accuracy"], "f1": quality["positive"]["f1"],
            "lost": quality["processes_lost"], "steps": quality["steps"],
            "exact_seeds": seeds, "exact_lost": [run["processes_lost"] for run in broken],
            "exact_same": [run["weights_sha256"] == peace["weights_sha256"] for run in broken]}


def example(bench, precision, epochs, chaos_seed):
    """Trains examples/credit-svm.yaml; the report."""
    runs = bench.folder / "examples"
    before = set(runs.glob("*"))
    sets = [f"data.train={bench.credit['train']}", f"output.dir={runs}",
            f"train.coded.precision={precision}", f"train.epochs={epochs}"]
    command = [bench.place.binary, "train", str(ROOT / "examples/credit-svm.yaml"), "--json",
               "--quiet", *(word for each in sets for word in ("--set", each))]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True,
                          env=os.environ | {"HOME": str(bench.place.home)}) as process:
        storm = None
        try:
            if chaos_seed is not None:
                run = wait(lambda: next(iter(set(runs.glob("*")) - before), None), 20,
                           "a run folder", process)
                events = run / "events.jsonl"
                wait(lambda: events.exists() and '"epoch"' in events.read_text(), 60,
                     "the first step", process)
                storm = subprocess.Popen(
                    [bench.place.binary, "chaos", str(run), "--kill", "worker", "--every",
                     "500ms..1500ms", "--seed", str(chaos_seed)], stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            out, errors = process.communicate(timeout=240)
        except subprocess.TimeoutExpired as error:
            process.kill()
            raise Failed("the example was not over within 240 s") from error
        finally:
            end(storm)
    if process.returncode != 0:
        raise Failed(f"planaria ended with {process.returncode}: {errors[-300:]}")
    return json.loads(out)


def end(process):
    """A storm ends by itself with its run; it is not waited for long."""
    if process is None:
        return
    deadline = time.monotonic() + 5
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


ALL = {"compare": compare, "saving": saving, "decode": decode, "curves": curves, "churn": churn,
       "credit": credit}
