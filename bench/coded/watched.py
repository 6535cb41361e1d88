"""A run that is watched: what its processes and links use, and workers killed at given steps."""

import os
import pathlib
import shutil
import signal
import subprocess
import time

from harness import Failed
from live import Live, kill

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
SAMPLE_EVERY_S = 0.05
LOOK_EVERY_S = 0.003
LONGEST_S = 240
# A network of its own, so that the bytes on its loopback are those of the run alone.
ALONE = ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]


class Place:
    """Where runs are made: the program, a folder, and a home for what machines keep."""

    def __init__(self, binary, folder):
        self.binary, self.folder = str(binary), pathlib.Path(folder)
        self.home = self.folder / "home"
        self.has_network = subprocess.run([*ALONE, "true"], capture_output=True,
                                          check=False).returncode == 0

    def live(self, recipe):
        """Starts a run with nothing kept from others."""
        shutil.rmtree(self.home, ignore_errors=True)
        self.home.mkdir()
        return Live(self.binary, self.folder, recipe, inside=ALONE if self.has_network else (),
                    environment={"HOME": str(self.home)})

    def stored_bytes(self):
        """Largest block that a machine keeps."""
        files = [p for p in (self.home / ".cache/planaria/coded").rglob("*") if p.is_file()]
        return max((p.stat().st_size for p in files), default=None)


def watch(place, recipe, kills=()):
    """Runs to the end. `kills` are (step, worker): each is killed once the step is committed, or
    the next worker that is there. Figures are per iteration, from the first to the last; the run's
    folder is `run`."""
    with place.live(recipe) as live:
        watched = Watched(live, place.has_network, sorted(kills))
        watched.follow()
        report = live.report(60)
        if report["outcome"] != "completed":
            raise Failed(f"the run ended {report['outcome']}")
        return watched.figures(report) | {"run": str(live.run),
                                          "stored_bytes": place.stored_bytes()}


class Watched:
    """What was seen of a run."""

    def __init__(self, live, has_network, kills):
        self.live, self.has_network, self.kills = live, has_network, kills
        self.samples, self.told, self.workers, self.agents = [], 0, {}, {}
        self.step, self.killed, self.ended = 0, 0, False
        self.used, self.memory = {}, {}

    def follow(self):
        deadline, sampled = time.monotonic() + LONGEST_S, 0.0
        while not self.ended and self.live.process.poll() is None:
            if time.monotonic() > deadline:
                raise Failed(f"not over within {LONGEST_S} s, at step {self.step}")
            self.hear()
            if self.kills and self.step >= self.kills[0][0]:
                self.sample()
                self.strike(self.kills.pop(0)[1])
            if time.monotonic() - sampled >= SAMPLE_EVERY_S:
                sampled = time.monotonic()
                self.sample()
            time.sleep(LOOK_EVERY_S)

    def hear(self):
        events = self.live.events()
        for event in events[self.told:]:
            name, agent = event["event"], event.get("agent", "")
            if name == "joined":
                self.agents[event["pid"]] = agent
                if agent.startswith("worker"):
                    self.workers[int(agent.split("-")[1])] = event["pid"]
            elif name == "lost" and agent.startswith("worker"):
                self.workers.pop(int(agent.split("-")[1]), None)
            elif name == "epoch":
                self.step = event["step"]
            elif name == "ended":
                self.ended = True
        self.told = len(events)

    def strike(self, wanted):
        """Kills this worker, or the next one there is."""
        there = sorted(self.workers, key=lambda worker: (worker < wanted, worker))
        for worker in there:
            if kill(self.workers.pop(worker), signal.SIGKILL) is not None:
                self.killed += 1
                return

    def sample(self):
        """Processor time and traffic so far. Processes that have ended count as last seen."""
        # Coordinators do not join, and those that are starting work as well.
        if self.killed or "coordinator" not in self.agents.values():
            self.agents |= {pid: name for name, pid in self.live.agents().items()}
        for pid, name in [(self.live.process.pid, "command"), *self.agents.items()]:
            try:
                stat = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
                self.used[pid, name] = (int(stat[11]) + int(stat[12])) / TICKS_PER_S
                if name.startswith("worker"):
                    self.memory[pid] = peak_bytes(pid)
            except OSError:
                continue
        everyone = sum(self.used.values())
        workers = sum(used for (_, name), used in self.used.items() if name.startswith("worker"))
        self.samples.append((self.step, everyone, workers, self.link_bytes()))

    def link_bytes(self):
        if not self.has_network:
            return None
        try:
            lines = pathlib.Path(f"/proc/{self.live.process.pid}/net/dev").read_text().splitlines()
        except OSError:
            return None
        counts = next((line.split(":")[1].split() for line in lines if "lo:" in line), None)
        return int(counts[8]) if counts else None

    def figures(self, report):
        self.hear()
        steps = report["steps"]
        inside = [s for s in self.samples if 1 <= s[0] < steps]
        if len(inside) < 2 or inside[0][0] == inside[-1][0]:
            raise Failed("the run was too short to be watched")
        (first, cpu, worked, sent), (last, *after) = inside[0], inside[-1]

        def each(before, now):
            return None if None in (before, now) else (now - before) / (last - first)

        return {
            "steps": steps,
            "examples": report["examples"] // max(1, report["epochs"]),
            "width": report["parameters"],
            "cpu_s": each(cpu, after[0]), "workers_cpu_s": each(worked, after[1]),
            "bytes": each(sent, after[2]),
            "seconds": report["seconds_training"] / steps,
            "recomputed": report["recomputed_shards"],
            # What workers of a coded run say they have multiplied and sent.
            "products": report.get("products"),
            "killed": self.killed, "lost": report["processes_lost"],
            "memory_bytes": max(filter(None, self.memory.values()), default=None),
            "accuracy": report["accuracy"], "confusion": report.get("confusion"),
            "f1": (report.get("positive") or {}).get("f1"),
            "sha256": report["weights_sha256"], "exactly_once": report["exactly_once"],
            # A step was under way when somebody was lost.
            "struck": sum(e["event"] == "healed" and "was lost" in e["after"]
                          for e in self.live.events()),
        }


def peak_bytes(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    return None
