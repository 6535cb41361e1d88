//! Another machine of a detached run takes the place of a lost controller.
//!
//! Owns both ends of it: on that machine, the run's folder made from the copies it has; where the run was
//! begun, the way from the lost controller to the new one. When a host succeeds is
//! [`succeeding`](planaria_fleet::host::succeeding)'s to say. What the lost controller told and no
//! copy holds is kept aside here: those steps are taken again, with the same bits.

use super::mirror::{Heard, METRICS, Question};
use super::{Away, Following, salvage};
use crate::talk::{Progress, Talk};
use planaria_fleet::files::copy;
use planaria_fleet::pool::resources;
use planaria_fleet::provider::Machine;
use planaria_protocol::journal;
use planaria_runs::failure::{Context, Failure, Result};
use planaria_runs::run_dir::{self, LOGS, RunDir, run_id};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Makes the folder of a run on a machine that succeeds the controller, of the copies in `home`: it
/// can then be resumed. `lost` is the machine of the controller before.
pub fn inherit(home: &Path, folder: PathBuf, recipe: &str, lost: &str) -> Result<RunDir> {
    let run = RunDir::create_at(folder)?;
    run.write("recipe.yaml", recipe.as_bytes())?;
    let inherited = || -> io::Result<()> {
        let copies = home.join(copy::FOLDER);
        if copies.exists() {
            let staged = salvage::staging(run.path(), "own")?;
            fs::remove_dir(&staged)?;
            fs::rename(copies, staged)?;
            salvage::take_in(run.path())?;
        }
        match run.file(journal::FILE).exists() {
            true => salvage::record_loss(run.path(), lost),
            false => Ok(()),
        }
    };
    inherited().context(|| format!("cannot take in copies in `{}`", home.display()))?;
    Ok(run)
}

/// What another machine than the controller's tells.
pub(super) struct Other {
    name: String,
    machine: Machine,
    pub heard: Heard,
}

/// What users are told meanwhile.
pub fn passing(head: &str, run: &Path) -> String {
    format!(
        "the controller on {head} is lost; another machine goes on with the run within a few minutes \
         (`planaria resume {}` takes it from the machines at once)",
        run.display()
    )
}

impl Away {
    /// Whether the run is at work; a failure where another machine is about to take its controller's place.
    pub fn lives(&mut self, talk: Talk) -> Result<bool> {
        match self.follow(talk)? {
            Following::Lives => Ok(true),
            Following::Passing => {
                Err(Failure::failed(passing(&self.detached.head.name, &self.folder)))
            }
            Following::Ended | Following::Lost => Ok(false),
        }
    }

    /// What those machines tell that answer, of those that others than the controller are on.
    pub(super) fn others(&self) -> Result<Vec<Other>> {
        let held = resources::held(&self.folder);
        let held = held.context(|| format!("cannot read in `{}`", self.folder.display()))?;
        let brief = Question { is_brief: true, ..Question::default() };
        let mut others = Vec::new();
        for (name, machine) in held {
            let Some(there) = self.detached.copies.get(&name) else { continue };
            if name == self.detached.head.name {
                continue;
            }
            // Those that do not answer say nothing.
            if let Ok(heard) = self.hear(&machine, there, &brief, &self.folder) {
                others.push(Other { name, machine, heard });
            }
        }
        Ok(others)
    }

    /// Fetches what is new from the run's controller, also where another machine is that by now;
    /// nothing where one is about to be.
    pub(super) fn fetch_from_controller(
        &mut self,
        progress: &mut Progress,
    ) -> Result<Option<Heard>> {
        let fetched = self.fetch();
        if fetched.as_ref().is_ok_and(|heard| heard.is_live || heard.ended.is_some()) {
            return fetched.map(Some);
        }
        let others = self.others()?;
        let controls = |other: &Other| other.heard.is_live || other.heard.ended.is_some();
        if let Some(successor) = others.iter().position(controls) {
            let Other { name, machine, .. } =
                others.into_iter().nth(successor).expect("it is there");
            self.turn_to(&name, machine, progress)?;
            return self.fetch().map(Some);
        }
        // While one of them has a link to it, it lives, though it may not be reached from here.
        let is_linked = others.iter().any(|other| other.heard.host.is_linked);
        let is_passing = !is_linked && others.iter().any(|other| other.heard.host.may_succeed);
        if is_passing { Ok(None) } else { fetched.map(Some) }
    }

    /// Follows the controller on this machine from now on.
    fn turn_to(&mut self, name: &str, machine: Machine, progress: &mut Progress) -> Result<()> {
        let lost = self.detached.head.name.clone();
        let aside = self.folder.join(format!("lost-{}", run_dir::plain_name(&lost)));
        let set_aside = || -> io::Result<()> {
            fs::create_dir_all(&aside)?;
            for file in [journal::FILE, METRICS, LOGS] {
                match fs::rename(self.folder.join(file), aside.join(file)) {
                    Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                    _ => {}
                }
            }
            Ok(())
        };
        set_aside().context(|| format!("cannot write in `{}`", aside.display()))?;
        let home = self.detached.copies.get(name).map(PathBuf::from).unwrap_or_default();
        let home = home.parent().unwrap_or(Path::new("/"));
        self.detached.folder = home.join(run_id(&self.folder)).display().to_string();
        self.detached.head = machine;
        self.detached.write(&self.folder)?;
        progress.note(&format!(
            "run {} has lost its controller on {lost}, and goes on from a copy: {name} controls it now",
            self.folder.display()
        ));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_without_copies_begins_anew() {
        let home = tempfile::tempdir().unwrap();
        let run = inherit(home.path(), home.path().join("r-1"), "name: r\n", "h1").unwrap();
        assert_eq!(fs::read_to_string(run.file("recipe.yaml")).unwrap(), "name: r\n");
        assert!(!run.file(journal::FILE).exists());
        assert!(run.file("checkpoints").is_dir());
    }

    #[test]
    fn copies_become_the_run() {
        let home = tempfile::tempdir().unwrap();
        let copies = home.path().join(copy::FOLDER);
        fs::create_dir_all(copies.join("checkpoints/one")).unwrap();
        fs::write(copies.join("checkpoints/one/manifest.json"), "{}").unwrap();
        fs::write(copies.join(METRICS), "{}\n").unwrap();
        let run = inherit(home.path(), home.path().join("r-1"), "name: r\n", "h1").unwrap();
        assert_eq!(fs::read_to_string(run.file(METRICS)).unwrap(), "{}\n");
        assert!(!run.file("checkpoints/step-0000000000").exists(), "that one is not whole");
        assert!(!copies.exists());
    }
}
