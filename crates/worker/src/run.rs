//! A worker's process: one session after another, until the run is over or this process cannot go
//! on. Data, engine and read-ahead are for life.

use crate::ahead::Wanted;
use crate::bench::Bench;
use crate::links::clear_up;
use crate::session::{End, Session, Setting};
use planaria_protocol::Passport;
use planaria_protocol::clock::Clock;
use planaria_protocol::launch::Launch;
use planaria_protocol::message::{Agent, Errand, Join, Trouble};
use std::sync::Arc;
use std::thread::Scope;
use std::time::Duration;

/// Where log lines go.
pub type Log = Arc<dyn Fn(&str) + Send + Sync>;

/// How long to wait before trying again to reach another process.
pub const RETRY: Duration = Duration::from_millis(20);

/// How long a worker goes without a word from any coordinator.
pub const LEASE: Duration = Duration::from_secs(30);

/// Works until the coordinator says that the run is over.
pub fn run(launch: &Launch, index: u32, clock: &dyn Clock, log: Log) -> Result<(), Trouble> {
    let passport = Passport::of(launch).map_err(Trouble::new)?;
    let setting = Setting {
        address: launch.coordinator.as_deref().unwrap_or_default(),
        passport: &passport,
        join: &join(launch, index),
        shards: launch.recipe.train.shards as u32,
        clock,
        log: &log,
    };
    // Threads of a session end with it.
    std::thread::scope(|scope| sessions(scope, launch, &setting))
}

/// One session after another.
fn sessions<'scope, 'env>(
    scope: &'scope Scope<'scope, 'env>,
    launch: &Launch,
    setting: &'env Setting<'env>,
) -> Result<(), Trouble> {
    let (log, clock) = (setting.log, setting.clock);
    let (wanted, mut bench) = (Wanted::default(), None);
    let mut heard_at = clock.now();
    let mut retrying = false;
    loop {
        let why = match Session::join(scope, setting, &wanted) {
            Ok(mut session) => {
                retrying = false;
                match work(&mut session, launch, setting, (&wanted, &mut bench)) {
                    Err(trouble) => {
                        session.fail(&trouble);
                        return Err(trouble);
                    }
                    Ok(End::Finished) => return Ok(()),
                    Ok(End::Again) => {}
                }
                if session.was_spoken_to() {
                    heard_at = clock.now();
                    log("this session is over; joining again");
                }
                "it hung up".to_owned()
            }
            Err(error) => {
                if !std::mem::replace(&mut retrying, true) {
                    log(&format!("cannot join the coordinator yet: {error}"));
                }
                error.to_string()
            }
        };
        if clock.now().saturating_sub(heard_at) > LEASE {
            let (address, seconds) = (setting.address, LEASE.as_secs());
            return Err(Trouble::new(format!(
                "no word from a coordinator at {address} for {seconds} seconds: {why}"
            )));
        }
        // The end of the last session's threads may end it early, once.
        std::thread::park_timeout(RETRY);
        clear_up(clock.now());
    }
}

/// Prepares, where that is still to be done, and works. Orders wait meanwhile.
fn work(
    session: &mut Session<'_, '_>,
    launch: &Launch,
    setting: &Setting<'_>,
    (wanted, bench): (&Wanted, &mut Option<Bench>),
) -> Result<End, Trouble> {
    let log = setting.log;
    let bench = match bench {
        Some(bench) => bench,
        None => {
            let (address, data) = (setting.address, &launch.recipe.data.train);
            log(&format!("joined the coordinator at {address}; opening `{data}`"));
            let prepared = Bench::prepare(launch, wanted)?;
            log(&format!("{} training examples; waiting for the servers", launch.facts.examples));
            bench.insert(prepared)
        }
    };
    session.work(bench)
}

/// What a worker says when it connects.
pub(crate) fn join(launch: &Launch, index: u32) -> Join {
    Join {
        agent: Agent::Worker(index),
        build: launch.build.clone(),
        pid: launch.station.pid(),
        machine: launch.station.machine.clone(),
        address: None,
        kept: None,
        errand: Errand::Work,
    }
}
