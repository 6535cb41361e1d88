//! What can be chosen about containers.
//!
//! Owns the settings as plain data, and whether what they name on this machine is there.

use crate::home::at_home;
use crate::program::Program;
use crate::provider::Fault;
use crate::providers::Purpose;
use planaria_recipe::pool::providers::docker as recipe;
use std::path::PathBuf;

/// What can be chosen about containers.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// The image of all machines; without it one is made of the program.
    pub image: Option<String>,
    /// Where the engine listens: `/path` or `unix:///path`. Without it, where `DOCKER_HOST` says,
    /// or the usual place.
    pub socket: Option<String>,
    /// Machines there may be at a time.
    pub machines_max: Option<usize>,
    /// The network that containers are in; without it, the engine's usual one.
    pub network: Option<String>,
    /// Processors of each.
    pub cpus: Option<f64>,
    /// Memory of each.
    pub memory_bytes: Option<u64>,
    /// Processes and threads of each at a time.
    pub pids: Option<u32>,
    /// Groups that every machine belongs to.
    pub groups: Vec<String>,
    /// What machines see of the engine's own.
    pub mounts: Vec<Mount>,
    /// Graphics processors of each; all there are where it is below zero.
    pub gpus: Option<i32>,
    /// Machines outlive the channel to their host.
    pub detached: bool,
    /// What containers are made to run. Listing and destroying need none.
    pub program: Option<Program>,
}

/// A folder or file of the engine's machine, which a container sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// An absolute path here.
    pub source: PathBuf,
    /// Where it is in a container.
    pub target: String,
    /// Whether it is read alone.
    pub is_read_only: bool,
}

impl Settings {
    pub fn of(settings: &recipe::Settings, purpose: Purpose) -> Result<Self, Fault> {
        let recipe::Docker { socket, network, mounts, gpus, cpus, memory_mib, pids } =
            &settings.docker;
        Ok(Self {
            image: settings.image.clone(),
            socket: socket.clone(),
            network: network.clone(),
            mounts: mounts.iter().map(|text| Mount::of(text)).collect::<Result<_, Fault>>()?,
            gpus: gpus.as_ref().map(|gpus| match gpus {
                recipe::Gpus::Count(count) => i32::try_from(*count).unwrap_or(i32::MAX),
                recipe::Gpus::All(_) => -1,
            }),
            cpus: *cpus,
            memory_bytes: memory_mib.map(|mib| mib << 20),
            pids: *pids,
            detached: purpose.is_detached,
            program: purpose.program,
            ..Self::default()
        })
    }

    /// Whether all that is to be seen is there. The engine is taken to be on this machine: what it
    /// does not find it says itself.
    pub fn check_mounts(&self) -> Result<(), Fault> {
        for Mount { source, .. } in &self.mounts {
            if let Err(e) = source.metadata() {
                let what = format!("`{}` of `pool.docker.mounts`: {e}", source.display());
                return Err(Fault::fix("docker", what, "name a folder or file of this machine"));
            }
        }
        Ok(())
    }
}

impl Mount {
    /// As a recipe writes it: the path here without links or what it is relative to, where it leads
    /// anywhere.
    fn of(text: &str) -> Result<Self, Fault> {
        let wrong = |why: String| Fault::fix("docker", format!("`{text}`{why}"), "");
        // The checker has seen it before; a run's folder may have been changed by hand.
        let mount = recipe::Mount::parse(text).map_err(|why| wrong(format!(" {why}")))?;
        let source = at_home(&mount.source);
        let source = source.canonicalize().or_else(|_| std::path::absolute(&source));
        let source = source.map_err(|e| wrong(format!(": {e}")))?;
        let recipe::Mount { target, is_read_only, .. } = mount;
        Ok(Self { source, target, is_read_only })
    }
}
