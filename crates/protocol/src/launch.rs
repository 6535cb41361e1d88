//! What a process is told when it is started: one line of JSON on its standard input.
//!
//! The pipe stays open for the life of the process that started it; its end ends the process. So
//! the secret is in no argument, environment or file that others can read.

use crate::checkpoint::Manifest;
use crate::error::Error;
use crate::secret::Secret;
use crate::standing::Standing;
use crate::terms::Loss;
pub use crate::trust::Trust;
use planaria_numerics::digest::Digest;
use planaria_numerics::regression::TargetScale;
use planaria_recipe::Recipe;
use planaria_recipe::shape::Shape;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// What every process of a run is told.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Launch {
    /// A secret in hexadecimal: of the coordinator the consoles', of all others the members', which
    /// follows from it.
    pub secret: String,
    /// How many times the run was started or resumed, from 1.
    pub generation: u64,
    /// Which build all processes must be.
    pub build: String,
    /// Where the coordinator listens; nothing for the coordinator itself.
    pub coordinator: Option<String>,
    /// The resolved recipe.
    pub recipe: Recipe,
    /// What is known of its data and network.
    pub facts: Facts,
    /// Processes of the run.
    pub size: Size,
    /// Folder in which processes keep what another of their kind goes on from when they are lost.
    pub state: Option<String>,
    /// Where the process lives, and how it meets the others.
    #[serde(default)]
    pub station: Station,
    /// For the coordinator.
    pub course: Option<CourseLaunch>,
}

impl Launch {
    /// Of what decides a run's values: two launches of one tag may go on with each other's. On how
    /// many processes is no part of that.
    pub fn tag(&self) -> [u8; 32] {
        use planaria_store::hash::Hasher;
        let mut tag = Hasher::new();
        let recipe = self.recipe.of_steps();
        for part in [serde_json::to_vec(&recipe), serde_json::to_vec(&self.facts)] {
            let part = part.expect("a launch has string keys only");
            tag.update((part.len() as u64).to_le_bytes());
            tag.update(part);
        }
        tag.update(&self.build);
        tag.finish()
    }

    /// What a server or worker is told: nothing of the coordinator's, and the members' secret.
    pub fn for_member(&self) -> Result<Self, Error> {
        let secret = Secret::from_hex(&self.secret)?.for_members().to_hex();
        Ok(Self { secret, course: None, ..self.clone() })
    }

    /// What a coordinator is told that takes the place of the one that was told this.
    pub fn again(&self, generation: u64, after: Option<Loss>, workers: u32) -> Self {
        let mut launch = Self { generation, ..self.clone() };
        launch.size.workers = workers;
        if let Some(course) = &mut launch.course {
            course.after = after;
        }
        launch
    }
}

/// Where a process lives, and how it meets the others. The default is this machine alone.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Station {
    /// The machine's name; nothing for the controller's own.
    pub machine: Option<String>,
    /// The number that the controller knows the process by; its own on its machine otherwise.
    pub process: Option<u32>,
    /// The address to listen on; 127.0.0.1 otherwise.
    pub bind: Option<String>,
    /// The address, without port, under which others reach what listens; the one it is bound to
    /// otherwise.
    pub advertise: Option<String>,
    /// A gate on the process' machine (the path of a Unix socket), through which it connects to
    /// all processes.
    pub via: Option<String>,
    /// What links are made with; without it they are plain, on one machine.
    pub trust: Option<Trust>,
    /// Machines that were given up: certificates of theirs with smaller numbers are not believed.
    #[serde(default)]
    pub given_up: BTreeMap<String, u64>,
    /// How a server's part of a checkpoint gets to the run's folder.
    pub parts: Parts,
    /// Changes to this while the process lives.
    #[serde(skip)]
    pub standing: Standing,
}

impl Station {
    /// Where to listen, on this port (0 is any that is free).
    pub fn listen(&self, port: u16) -> String {
        joined(self.bind.as_deref().unwrap_or("127.0.0.1"), port)
    }

    /// Where others reach what listens at `bound`.
    pub fn address(&self, bound: SocketAddr) -> String {
        match &self.advertise {
            Some(host) => joined(host, bound.port()),
            // Nothing can connect to the unspecified address.
            None if bound.ip().is_unspecified() => joined("127.0.0.1", bound.port()),
            None => bound.to_string(),
        }
    }

    /// The number that the controller knows this process by.
    pub fn pid(&self) -> u32 {
        self.process.unwrap_or_else(std::process::id)
    }
}

/// Host and port; an IPv6 address gets its brackets.
fn joined(host: &str, port: u16) -> String {
    match host.contains(':') && !host.starts_with('[') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}

/// How a server's part of a checkpoint gets to the run's folder, and back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Parts {
    /// The server writes and reads the folder itself: it is on the same machine.
    #[default]
    Folder,
    /// Over a link of its own to the coordinator.
    Link,
}

/// What is known of a run's data and network.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    /// Shape of one example.
    pub input: Shape,
    /// Classes told apart; 0 for regression.
    pub classes: u32,
    pub examples: u64,
    /// Digest of their ids, which each epoch's must equal.
    pub digest: Digest,
    /// Examples held out for validation.
    pub validation: u64,
    /// Examples held out for the final test.
    pub test: u64,
    pub parameters: u64,
    /// Names and marks of the data's content.
    pub marks: Vec<(String, String)>,
    /// Of a coded run.
    #[serde(default)]
    pub coding: Option<Coding>,
}

/// What the workers of a coded run, which never see its data, have to know of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Coding {
    /// Tells the coding (data, how it is read, and the code) from others.
    pub digest: String,
    /// Names of the classes in the order of their numbers; none where targets are numbers.
    pub class_names: Vec<String>,
    /// How numbers to predict were scaled to be learned.
    #[serde(default)]
    pub target: TargetScale,
}

/// How many processes, and what each has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    /// Workers to start with, and to have again when one is lost.
    pub workers: u32,
    /// Workers below which the run waits.
    pub workers_min: u32,
    pub servers: u32,
    /// Threads of each worker.
    pub threads: u32,
}

/// What the coordinator is told besides.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CourseLaunch {
    /// The run's folder.
    pub run_dir: String,
    pub run_id: String,
    /// How far the run has come, and what every checkpoint of this session says alike: all but
    /// step, state and parts.
    pub manifest: Manifest,
    /// Folder of the checkpoint it goes on from.
    pub checkpoint: Option<String>,
    /// When the command was given, in seconds by the clock that processes of its machine share.
    pub commanded: f64,
    /// Where to listen; a free port where left out. A coordinator that takes the place of another
    /// listens where that one did.
    pub listen: Option<String>,
    /// What was lost, where this coordinator takes the place of another in the same session.
    pub after: Option<Loss>,
    /// Names of the columns of a coded run's data, for messages about one.
    #[serde(default)]
    pub columns: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_station_says_where_it_listens_and_where_it_is_reached() {
        let check =
            |bind: Option<&str>, advertise: Option<&str>, bound: &str, expect: [&str; 2]| {
                let (bind, advertise) = (bind.map(str::to_owned), advertise.map(str::to_owned));
                let station = Station { bind, advertise, ..Station::default() };
                let found =
                    [station.listen(7), station.address(bound.parse().expect("an address"))];
                assert_eq!(found, expect);
            };
        check(None, None, "127.0.0.1:9", ["127.0.0.1:7", "127.0.0.1:9"]);
        check(Some("0.0.0.0"), None, "0.0.0.0:9", ["0.0.0.0:7", "127.0.0.1:9"]);
        check(Some("0.0.0.0"), Some("lab-1"), "0.0.0.0:9", ["0.0.0.0:7", "lab-1:9"]);
        check(Some("::"), Some("fd00::1"), "[::]:9", ["[::]:7", "[fd00::1]:9"]);
        check(Some("10.0.0.1"), None, "10.0.0.1:9", ["10.0.0.1:7", "10.0.0.1:9"]);
    }
}
