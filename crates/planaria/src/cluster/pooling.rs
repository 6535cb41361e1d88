//! What a pool is made of, and how processes on its machines meet the others.
//!
//! Owns the way from a recipe's `pool` to machines: the provider, what goes there, and each
//! process' station. Never starts anything.

use crate::clock;
use crate::failure::{Context, Failure, Result};
use crate::training::run_loop::Job;
use planaria_fleet::pool::resources::Resources;
use planaria_fleet::pool::roster::Roster;
use planaria_fleet::pool::{Means, Pool, Spot};
use planaria_fleet::program::Program;
use planaria_fleet::provider::{Fault, Provider, Remedy, Tag};
use planaria_protocol::launch::{Launch, Parts};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a pool is made of.
pub struct Pooling {
    provider: Arc<dyn Provider>,
    run: Tag,
    program: Program,
    addresses: Vec<String>,
    resources: Resources,
    roster: Roster,
}

impl Pooling {
    /// Of a run's recipe; nothing where it is for this machine alone.
    pub fn of(_job: &Job, _program: &Path) -> Result<Option<Self>> {
        Ok(None)
    }

    /// The pool, with nothing raised yet, for a coordinator that listens on this port.
    pub fn pool(self, port: u16, logs: PathBuf) -> Result<Pool> {
        let means = Means {
            provider: self.provider,
            run: self.run,
            program: self.program,
            addresses: self.addresses,
            port,
            prepare: Box::new(|_, _| Ok(())),
            unix_seconds: clock::unix_seconds,
        };
        Ok(Pool::new(means, self.resources, self.roster, logs))
    }
}

/// The place where coordinators listen, and its port.
pub fn listen(everywhere: bool) -> Result<(TcpListener, u16)> {
    let address = if everywhere { "0.0.0.0" } else { "127.0.0.1" };
    let listener = TcpListener::bind((address, 0));
    let listener = listener.context(|| format!("cannot listen on {address}"))?;
    let port = listener.local_addr().context(|| format!("cannot listen on {address}"))?.port();
    Ok((listener, port))
}

/// Fills in where a process lives, and how it meets the others.
pub fn station(launch: &mut Launch, spot: &Spot) {
    let Spot::There(_, route) = spot else { return };
    let port = launch.coordinator.as_deref().and_then(|address| address.rsplit_once(':'));
    let port = port.map_or("0", |(_, port)| port).to_owned();
    launch.coordinator = Some(format!("{}:{port}", route.controller));
    launch.state = Some(format!("{}/state", route.folder));
    let station = &mut launch.station;
    station.machine = Some(route.machine.clone());
    station.bind = Some("0.0.0.0".to_owned());
    station.advertise = Some(route.advertise.clone());
    station.via.clone_from(&route.via);
    station.parts = Parts::Link;
}

/// A fault of a machine as the command's failure.
pub fn failure(fault: Fault) -> Failure {
    let failure = match fault.remedy {
        Remedy::Fix => Failure::user(&fault),
        Remedy::Replace | Remedy::Retry => Failure::failed(&fault),
    };
    match fault.hint.filter(|hint| !hint.is_empty()) {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}
