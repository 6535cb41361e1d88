//! What is left of a run whose controller's machine is lost: the copies of its checkpoints that other
//! machines hold.
//!
//! Owns the way of a copy into the run's folder here: fetched beside it, believed where it is whole,
//! and put in its place where it is newer than what is here.

use super::mirror::{self, METRICS};
use super::{Away, Following, give_back};
use crate::talk::{Progress, Talk};
use planaria_fleet::files::copy::{BEST, SLOTS};
use planaria_fleet::pool::resources;
use planaria_protocol::checkpoint;
use planaria_protocol::durable;
use planaria_protocol::event::What;
use planaria_protocol::journal::{self, Journal};
use planaria_protocol::message::Agent;
use planaria_runs::clock;
use planaria_runs::failure::{Context, Result};
use planaria_runs::run_dir::CHECKPOINTS;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Where copies are fetched to, in the run's folder.
const FOLDER: &str = "salvage";

/// Where the copy of a machine is fetched to.
pub fn staging(run: &Path, machine: &str) -> io::Result<PathBuf> {
    let folder = run.join(FOLDER).join(machine);
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// Takes in what was fetched, and removes the rest. The step of the newest checkpoint that came so.
pub fn take_in(run: &Path) -> io::Result<Option<u64>> {
    let mut newest = None;
    let entries = match fs::read_dir(run.join(FOLDER)) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        entries => entries?,
    };
    let mut machines: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    machines.sort();
    for machine in machines {
        for slot in SLOTS.into_iter().chain([BEST]) {
            let step = take_checkpoint(run, &machine.join(CHECKPOINTS).join(slot))?;
            newest = newest.max(step.filter(|_| slot != BEST));
        }
        for file in [journal::FILE, METRICS] {
            take_longer(&machine.join(file), &run.join(file))?;
        }
    }
    if let Some(step) = newest {
        lead_to(run, step)?;
    }
    fs::remove_dir_all(run.join(FOLDER))?;
    Ok(newest)
}

/// Moves a checkpoint that is whole to where checkpoints are; its step.
fn take_checkpoint(run: &Path, from: &Path) -> io::Result<Option<u64>> {
    // One that was cut off on its way is no checkpoint.
    let Ok(manifest) = checkpoint::verify(from) else { return Ok(None) };
    let to = place(run, manifest.step);
    if checkpoint::verify(&to).is_err() {
        if to.exists() {
            fs::remove_dir_all(&to)?;
        }
        fs::create_dir_all(run.join(CHECKPOINTS))?;
        fs::rename(from, &to)?;
    }
    Ok(Some(manifest.step))
}

fn place(run: &Path, step: u64) -> PathBuf {
    run.join(CHECKPOINTS).join(format!("step-{step:010}"))
}

/// What only ever grows is taken where it has come further than here.
fn take_longer(from: &Path, to: &Path) -> io::Result<()> {
    let length = |path: &Path| fs::symlink_metadata(path).map_or(0, |found| found.len());
    match length(from) > length(to) {
        true => fs::rename(from, to),
        false => Ok(()),
    }
}

/// Makes it `last`, unless that is newer, and the best of the events `best`.
fn lead_to(run: &Path, step: u64) -> io::Result<()> {
    let folder = run.join(CHECKPOINTS);
    let here = checkpoint::verify(&folder.join("last")).ok();
    let name = format!("step-{step:010}");
    if here.is_none_or(|here| here.step < step) {
        durable::link(&name, &folder.join("last"))?;
    }
    let events = journal::read(&run.join(journal::FILE)).unwrap_or_default();
    let best = events.iter().rev().find_map(|event| match &event.what {
        What::Saved { step, is_best: true, .. } => Some(*step),
        _ => None,
    });
    if let Some(best) = best.filter(|best| checkpoint::verify(&place(run, *best)).is_ok()) {
        durable::link(&format!("step-{best:010}"), &folder.join("best"))?;
    }
    durable::sync_folder(&folder)
}

/// Writes down that the controller was lost with its machine, which it could not.
pub(super) fn record_loss(run: &Path, machine: &str) -> io::Result<()> {
    let path = run.join(journal::FILE);
    let last = journal::read(&path)?.pop();
    // Nothing is known of a run that had not begun.
    let Some(last) = last else { return Ok(()) };
    let reason = format!("its machine {machine} was lost");
    let what = What::Lost { agent: Agent::Controller.to_string(), pid: 0, reason };
    let mut journal = Journal::open(&path, last.generation)?;
    journal.record(last.seconds, clock::unix_seconds(), what)?;
    journal.sync()
}

impl Away {
    /// Fetches the copies that other machines have of the run's checkpoints; the step of the newest.
    fn salvage(&self, progress: &mut Progress) -> Result<Option<u64>> {
        let held = resources::held(&self.folder);
        let held = held.context(|| format!("cannot read in `{}`", self.folder.display()))?;
        for (name, machine) in held {
            let Some(there) = self.detached.copies.get(&name) else { continue };
            let fetched = staging(&self.folder, &name)
                .context(|| format!("cannot write in `{}`", self.folder.display()))
                .and_then(|here| {
                    let known = || mirror::known(&here, false).into();
                    while self.hear(&machine, there, &known(), &here)?.is_more {}
                    Ok(())
                });
            // Another may have one.
            if let Err(failure) = fetched {
                let why = failure.message;
                progress.note(&format!("warning: no copy of the run came from {name}: {why}"));
            }
        }
        take_in(&self.folder)
            .context(|| format!("cannot take in copies in `{}`", self.folder.display()))
    }

    /// What a lost controller leaves: copies are fetched, and machines given back.
    pub(super) fn recover(&mut self, progress: &mut Progress) -> Result<()> {
        let step = self.salvage(progress)?;
        (self.detached.is_live, self.detached.is_fetched) = (false, true);
        self.detached.is_lost = true;
        self.detached.write(&self.folder)?;
        let (path, head) = (self.folder.display().to_string(), &self.detached.head.name);
        record_loss(&self.folder, head)
            .context(|| format!("cannot write `{}` in `{path}`", journal::FILE))?;
        let came = match step {
            Some(step) => format!("a copy of step {step} came from another machine"),
            None => "no other machine has a copy of it".to_owned(),
        };
        progress.note(&format!(
            "run {path} has lost its controller on {head}; {came}; `planaria resume {path}` goes on \
             with what is here"
        ));
        give_back(&self.provider, &self.run, &self.folder, progress);
        Ok(())
    }

    /// Takes the run from its machines: where its controller does not live, or cannot be reached.
    pub fn take_over(&mut self, talk: Talk) -> Result<()> {
        let mut progress = Progress::new(talk);
        if self.detached.is_fetched {
            return Ok(());
        }
        match self.follow(talk) {
            Ok(Following::Passing) => self.recover(&mut progress),
            Ok(_) => Ok(()),
            Err(failure) => {
                let head = &self.detached.head.name;
                progress.note(&format!("warning: {head} cannot be asked: {}", failure.message));
                self.recover(&mut progress)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_whole_is_not_taken_and_what_is_here_is_not_shortened() {
        let run = tempfile::tempdir().unwrap();
        assert_eq!(take_in(run.path()).unwrap(), None);
        fs::write(run.path().join(journal::FILE), "longer\n").unwrap();
        let staged = staging(run.path(), "h2").unwrap();
        fs::create_dir_all(staged.join("checkpoints/one")).unwrap();
        fs::write(staged.join("checkpoints/one/manifest.json"), "{}").unwrap();
        fs::write(staged.join(journal::FILE), "long\n").unwrap();
        fs::write(staged.join(METRICS), "{}\n").unwrap();
        assert_eq!(take_in(run.path()).unwrap(), None);
        let read = |name: &str| fs::read_to_string(run.path().join(name)).unwrap();
        assert_eq!(read(journal::FILE), "longer\n");
        assert_eq!(read(METRICS), "{}\n");
        assert!(!run.path().join(FOLDER).exists());
        assert!(!run.path().join(CHECKPOINTS).exists());
    }
}
