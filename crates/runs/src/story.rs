//! What became of a script's run so far, besides what every run has: its recipe, what its events add up
//! to, its newest figures and what was brought back.
//!
//! Owns how a script's run is told from others, and what its processes are called. Never writes, and
//! never asks a live run anything.

use crate::processes::{Process, Restarted};
use crate::run_dir;
use crate::summary::Summary;
use planaria_protocol::plain;
use planaria_recipe::script::Framework;
use planaria_recipe::{AnySource, Job, JobKind};
use planaria_text::figures::{Latest, Point};
use serde::Serialize;
use serde_json::{Number, Value};
use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Bytes of `metrics.jsonl` that are read, from its end.
const METRICS_BYTES_MAX: u64 = 1 << 20;
/// Files in `outputs` that are counted at most.
const OUTPUTS_MAX: usize = 100_000;

/// A script's run so far.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Story {
    pub file: String,
    /// What it is written for, once that is known.
    pub framework: Option<&'static str>,
    /// Whether all of it is on this machine.
    pub is_here: bool,
    /// Its processes, in the order of their ranks.
    pub processes: Vec<Process>,
    /// Restarts so far.
    pub restarts: u32,
    /// Restarts allowed.
    pub max_restarts: u32,
    /// Why, the oldest first.
    pub restarted: Vec<Restarted>,
    /// The newest figures.
    pub figures: Latest,
    /// What was brought back.
    pub outputs: Outputs,
    /// The process that failed first, as `report.json` has it.
    pub failed: Option<Value>,
}

/// Files that were brought back.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Outputs {
    pub files: usize,
    /// Their length together.
    pub bytes: u64,
}

impl Story {
    /// Of the run in a folder with these events; nothing where it is no script's.
    pub fn read(folder: &Path, summary: &Summary) -> Option<Self> {
        // `runs` looks at every folder: only recipes of scripts are parsed.
        if run_dir::kind(folder) != JobKind::Script {
            return None;
        }
        let AnySource::Script(source) = run_dir::recipe(folder).ok()? else { return None };
        let mut story = Self::of(source.recipe(), summary);
        let first = story.processes.first().map(|process| process.process.clone());
        story.figures = latest(&tail(&folder.join("metrics.jsonl")), first.as_deref());
        story.outputs = count(&folder.join("outputs"));
        let report = plain::read(&folder.join("report.json")).ok();
        let report = report.and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
        story.failed = report.map(|mut report| report["failed"].take()).filter(|v| !v.is_null());
        Some(story)
    }

    /// What recipe and events tell.
    pub fn of(job: &Job, summary: &Summary) -> Self {
        let processes = &summary.processes;
        Self {
            file: job.script.file.clone(),
            framework: job.script.framework.map(Framework::as_str),
            is_here: job.pool.is_here() && job.machine_count() == 1,
            processes: processes.placed(),
            restarts: processes.restarts,
            max_restarts: job.script.max_restarts,
            restarted: processes.restarted.clone(),
            figures: Latest::default(),
            outputs: Outputs::default(),
            failed: None,
        }
    }

    /// Machines with the processes of each, both in the order of ranks.
    pub fn machines(&self) -> Vec<(&str, Vec<&Process>)> {
        let mut machines: Vec<(&str, Vec<&Process>)> = Vec::new();
        for process in &self.processes {
            let name = process.machine.as_deref().unwrap_or_default();
            match machines.iter_mut().find(|(machine, _)| *machine == name) {
                Some((_, processes)) => processes.push(process),
                None => machines.push((name, vec![process])),
            }
        }
        machines
    }

    /// A figure by its name.
    pub fn figure(&self, name: &str) -> Option<f64> {
        self.figures.figures().get(name)?.as_ref().and_then(Number::as_f64)
    }
}

/// Processes of one machine, in few words: `chief 0, worker 0 to 3`.
pub fn named(processes: &[&Process]) -> String {
    let parts: Vec<(&str, Option<u64>)> = processes
        .iter()
        .map(|one| match one.process.rsplit_once('-') {
            Some((role, index)) => (role, index.parse().ok()),
            None => (one.process.as_str(), None),
        })
        .collect();
    let follows = |a: &(&str, Option<u64>), b: &(&str, Option<u64>)| {
        a.0 == b.0 && a.1.is_some() && a.1.map(|n| n + 1) == b.1
    };
    let runs = parts.chunk_by(follows).flat_map(|run| match run {
        [(role, Some(first)), .., (_, Some(last))] if run.len() > 2 => {
            vec![format!("{role} {first} to {last}")]
        }
        few => few
            .iter()
            .map(|(role, index)| match index {
                Some(index) => format!("{role} {index}"),
                None => (*role).to_owned(),
            })
            .collect(),
    });
    runs.collect::<Vec<_>>().join(", ")
}

/// The last bytes of a file, from the beginning of a line; nothing where there is none.
fn tail(path: &Path) -> String {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = plain::open(path)?;
        let from = file.metadata()?.len().saturating_sub(METRICS_BYTES_MAX);
        file.seek(SeekFrom::Start(from))?;
        let mut bytes = Vec::new();
        file.take(METRICS_BYTES_MAX).read_to_end(&mut bytes)?;
        if from > 0 {
            let whole =
                bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |at| at + 1);
            bytes.drain(..whole);
        }
        Ok(bytes)
    };
    String::from_utf8_lossy(&read().unwrap_or_default()).into_owned()
}

/// The newest figures of a process, or of a process that told any.
fn latest(metrics: &str, process: Option<&str>) -> Latest {
    let points: Vec<Point> =
        metrics.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let mut own = Latest::default();
    points.iter().filter(|p| Some(p.process.as_str()) == process).for_each(|p| own.note(p));
    if own == Latest::default() {
        points.iter().for_each(|point| own.note(point));
    }
    own
}

fn count(folder: &Path) -> Outputs {
    let mut outputs = Outputs::default();
    let mut folders: Vec<PathBuf> = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if outputs.files >= OUTPUTS_MAX {
                return outputs;
            }
            match entry.metadata() {
                Ok(found) if found.is_dir() => folders.push(entry.path()),
                Ok(found) => {
                    outputs.files += 1;
                    outputs.bytes += found.len();
                }
                Err(_) => {}
            }
        }
    }
    outputs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processes::title;
    use planaria_protocol::event::{Event, What};
    use planaria_recipe::JobSource;

    fn job(text: &str) -> Job {
        let text = format!("{{name: x, {text}}}");
        JobSource::parse("x.yaml", text.as_bytes(), &[]).unwrap().recipe().clone()
    }

    fn joined(agent: &str, machine: &str) -> What {
        let machine = Some(machine.to_owned());
        What::Joined {
            agent: agent.into(),
            pid: 0,
            engine: None,
            threads: None,
            machine,
            downloaded: None,
        }
    }

    fn restarted(agent: Option<&str>, restarts: u32, reason: &str) -> What {
        let (agent, reason) = (agent.map(str::to_owned), reason.to_owned());
        let with_machine = reason.contains("lost with its machine");
        What::Restarted { agent, restarts, reason, with_machine }
    }

    fn events(whats: Vec<What>) -> Vec<Event> {
        let event = |what| Event { seconds: 1.5, unix_seconds: 1e9, generation: 1, what };
        whats.into_iter().map(event).collect()
    }

    #[test]
    fn processes_follow_from_events() {
        let job = job("script: {file: a.py, framework: plain}, pool: {workers: 3, machines: 2}");
        let lost = |agent: &str| What::Lost {
            agent: agent.into(),
            pid: 0,
            reason: "it failed with exit code 3".into(),
        };
        let story = Story::of(
            &job,
            &Summary::of(&events(vec![
                joined("worker-0", "m1"),
                joined("worker-1", "m1"),
                joined("worker-2", "m2"),
                lost("worker-1"),
                restarted(Some("worker-1"), 1, "worker 1 failed with exit code 3"),
                joined("worker-1", "m2"),
                lost("worker-0"),
            ])),
        );
        assert_eq!((story.restarts, story.restarted.len(), story.is_here), (1, 1, false));
        assert_eq!(story.processes[1].starts, 2);
        assert_eq!(story.processes[0].lost.as_deref(), Some("it failed with exit code 3"));
        let machines: Vec<(&str, String)> =
            story.machines().iter().map(|(name, all)| (*name, named(all))).collect();
        assert_eq!(machines, [("m1", "worker 0".into()), ("m2", "worker 1, worker 2".into())]);
    }

    #[test]
    fn another_round_may_have_fewer_processes() {
        let job = job("script: {file: a.py, framework: pytorch}");
        let mut whats = vec![joined("worker-0", "m1"), joined("worker-1", "m2")];
        whats.push(restarted(None, 1, "worker 1 was lost with its machine"));
        let before = Story::of(&job, &Summary::of(&events(whats.clone())));
        assert_eq!(before.processes.len(), 2);
        whats.push(joined("worker-0", "m1"));
        let story = Story::of(&job, &Summary::of(&events(whats)));
        assert_eq!(story.processes.len(), 1);
    }

    #[test]
    fn names_are_short_where_there_are_many() {
        let process =
            |name: &str| Process { process: name.into(), machine: None, starts: 1, lost: None };
        let all: Vec<Process> =
            ["chief-0", "worker-0", "worker-1", "worker-2", "ps-0", "ps-1"].map(process).into();
        let all: Vec<&Process> = all.iter().collect();
        assert_eq!(named(&all), "chief 0, worker 0 to 2, ps 0, ps 1");
        assert_eq!(title("worker-12"), "worker 12");
    }

    #[test]
    fn newest_figures_are_those_of_the_first_process() {
        let metrics = "{\"unix_seconds\":1.0,\"process\":\"worker-0\",\"step\":1,\"loss\":0.5}\n\
                       {\"unix_seconds\":2.0,\"process\":\"worker-1\",\"step\":9,\"loss\":0.1}\n\
                       {\"unix_seconds\":2.0,\"process\":\"worker-0\",\"step\":2,\"acc\":null}\n\
                       {\"unix_sec";
        assert_eq!(
            latest(metrics, Some("worker-0")).line(80),
            "step 2 · loss 0.5 · acc not finite"
        );
        assert_eq!(latest(metrics, Some("ps-0")).line(80), "step 2 · loss 0.1 · acc not finite");
        assert_eq!(latest("", None), Latest::default());
    }
}
