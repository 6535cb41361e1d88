//! `provider: docker`: containers of a Docker engine.
//!
//! Owns the keys `image` and `docker` of a pool, and what they must be.

use super::Place;
use crate::diagnostic::quoted;
use crate::pool::{MACHINES_DEFAULT_MAX, is_default};
use crate::text;
use crate::words::counted;
use serde::{Deserialize, Serialize};

/// Its keys of `pool`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Settings {
    /// Image of the containers of `provider: docker`; built from the program when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// How the Docker engine is reached.
    #[serde(skip_serializing_if = "is_default")]
    pub docker: Docker,
}

impl super::Settings for Settings {
    const NAME: &'static str = "docker";
    const MEANING: &'static str = "Containers of a Docker engine.";

    fn machine_count(&self, asked: Option<usize>, workers: usize) -> usize {
        asked.unwrap_or(workers.min(MACHINES_DEFAULT_MAX))
    }

    fn describe(&self, count: usize) -> String {
        let image = self.image.as_deref().unwrap_or("an image built from this program");
        let containers = format!("{} of {image}", counted(count, "container"));
        match &self.docker.limits()[..] {
            [] => containers,
            limits => format!("{containers}, each with at most {}", limits.join(", ")),
        }
    }

    fn memory_limit(&self) -> Option<(u64, &'static str)> {
        self.docker.memory_mib.map(|mib| (mib << 20, "docker.memory_mib"))
    }

    fn no_shell(&self) -> Option<&'static str> {
        match self.image {
            Some(_) => None,
            None => Some("the image that is built from this program"),
        }
    }

    fn check(&self, at: &mut Place<'_>) {
        let Docker { socket, network, gpus, .. } = &self.docker;
        at.refuse("image", self.image.as_deref().and_then(text::image));
        at.refuse("docker.socket", socket.as_deref().and_then(text::path));
        at.refuse("docker.network", network.as_deref().and_then(text::host));
        self.docker.check_mounts(at);
        if let Some(Gpus::All(word)) = gpus
            && word != "all"
        {
            let message = format!("`{}` cannot be {}", at.key("docker.gpus"), quoted(word));
            at.add("docker.gpus", message, "write a number, or `all`");
        }
    }
}

/// How the Docker engine is reached, and what containers have of its machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Docker {
    /// The engine's socket; `/var/run/docker.sock` when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket: Option<String>,
    /// Network of the containers; the engine's own when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// Folders and files of this machine that containers see: `HERE:THERE`, or `HERE:THERE:ro` to
    /// be read alone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<String>,
    /// Graphics processors of each container: how many, or `all`; none when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpus: Option<Gpus>,
    /// Processors that each container may use, `1.5` say; as many as there are when left out.
    #[cfg_attr(test, schemars(range(min = 0.01, max = 4096.0)))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<f64>,
    /// Memory of each container, in MiB; as much as there is when left out. The
    /// system ends a process that needs more.
    #[cfg_attr(test, schemars(range(min = 64, max = 1073741824)))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_mib: Option<u64>,
    /// Processes and threads of each container at a time; 4096 when left out.
    #[cfg_attr(test, schemars(range(min = 64, max = 4194304)))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pids: Option<u32>,
}

/// Processes and threads of a container at a time, where a recipe does not say.
pub const PIDS_DEFAULT: u32 = 4096;

impl Docker {
    /// What each container may use, in words.
    fn limits(&self) -> Vec<String> {
        let cpus = self.cpus.map(|cpus| format!("{cpus} processors"));
        let memory = self.memory_mib.map(|mib| format!("{mib} MiB of memory"));
        let pids = self.pids.map(|pids| match pids {
            1 => "1 process".to_owned(),
            pids => format!("{pids} processes"),
        });
        [cpus, memory, pids].into_iter().flatten().collect()
    }

    /// What containers see of this machine. Whether it is there is for the provider to say.
    fn check_mounts(&self, at: &mut Place<'_>) {
        let mut targets: Vec<String> = Vec::new();
        for (number, text) in self.mounts.iter().enumerate() {
            let key = format!("docker.mounts.{number}");
            match Mount::parse(text) {
                Err(why) => {
                    let message = format!("the mount {} {why}", quoted(text));
                    at.add(&key, message, "write `/data/images:/data:ro`, say");
                }
                Ok(mount) if targets.contains(&mount.target) => {
                    let message = format!("two mounts lead to `{}`", mount.target);
                    at.add(&key, message, "give one of them another place");
                }
                Ok(mount) => targets.push(mount.target),
            }
        }
    }
}

/// Graphics processors of a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Gpus {
    /// A fixed number.
    Count(#[cfg_attr(test, schemars(range(min = 1, max = 64)))] u32),
    /// `all` that there are.
    All(String),
}

/// Something of this machine that containers see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// A folder or file here.
    pub source: String,
    /// Where it is in a container.
    pub target: String,
    /// Whether it is read alone.
    pub is_read_only: bool,
}

impl Mount {
    /// As it was written, or what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split(':').collect();
        let (source, target, is_read_only) = match parts[..] {
            [source, target] | [source, target, "rw"] => (source, target, false),
            [source, target, "ro"] => (source, target, true),
            [_, _, how] => return Err(format!("ends in `{how}`, which is neither `ro` nor `rw`")),
            _ => return Err("is not of the form `HERE:THERE`".into()),
        };
        if source.is_empty() || source.contains('\0') {
            return Err("names nothing here".into());
        }
        if !target.starts_with('/') || target.split('/').any(|part| part == "..") {
            return Err(format!("leads to `{target}`, which is no absolute path of a container"));
        }
        let target = match target.trim_end_matches('/') {
            "" => return Err("leads to `/`, which holds all else".into()),
            target => target.to_owned(),
        };
        Ok(Self { source: source.to_owned(), target, is_read_only })
    }
}
