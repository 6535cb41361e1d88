//! `planaria agent coordinator`: the process that decides what a run does next.
//!
//! Owns where it listens and what serves the rows of a coded run. How it begins, the decisions and the
//! shell around them are in the coordinator's crate.

use super::Log;
use crate::jobs::train::kept::boot_id;
use planaria_coordinator::serve::start::{Machine, start};
use planaria_coordinator::serve::{self, Leave};
use planaria_fleet::local::inherited;
use planaria_protocol::Credentials;
use planaria_protocol::clock::Clock;
use planaria_protocol::durable::Space;
use planaria_protocol::launch::Launch;
use planaria_protocol::message::Trouble;
use planaria_runs::clock::{SystemClock, machine_seconds};
use planaria_worker::methods::serving;
use std::io::Write;
use std::net::TcpListener;
use std::sync::Arc;

/// Coordinates a run to its end, or until another is to take this one's place.
pub fn run(launch: Launch, log: &Log) -> Result<Leave, Trouble> {
    let course = launch.course.as_ref().ok_or_else(|| Trouble::new("there is no course"))?;
    let credentials = Credentials::of(&launch).map_err(Trouble::new)?;
    // One that takes the place of another is reached where that one was: the port is the same.
    let listener = listen(&launch, course.listen.as_deref())?;
    let address = launch.station.address(listener.local_addr().map_err(Trouble::new)?);
    let told = writeln!(std::io::stdout(), "{address}").and_then(|()| std::io::stdout().flush());
    told.map_err(|e| Trouble::new(format!("cannot say where it listens: {e}")))?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
    let seconds = machine_seconds();
    let machine = Machine { boot: boot_id(), space: Space::default(), seconds };
    let start = start(&launch, machine, log)?;
    let rows = serving(&launch, log)?;
    serve::run(serve::Shell { start, listener, credentials, rows, clock })
}

/// Listens where the command does that started it, which holds the place while coordinators come and
/// go; else on a port of its own.
fn listen(launch: &Launch, place: Option<&str>) -> Result<TcpListener, Trouble> {
    let address = launch.station.listen(0);
    let listener = match place.and_then(inherited) {
        Some(listener) => listener,
        None => TcpListener::bind(&address),
    };
    listener.map_err(|e| Trouble::new(format!("cannot listen on {address}: {e}")))
}
