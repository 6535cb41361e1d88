//! What a pool is made of, and how processes on its machines meet the others.
//!
//! Owns the way from a recipe's `pool` to machines: the provider, what goes there, and each
//! process' station. Never starts anything.

use crate::jobs::steps;
use crate::machine::interfaces;
use planaria_fleet::gate::Gate;
use planaria_fleet::guarded::Guards;
use planaria_fleet::pool::raise::{Prepare, Reach};
use planaria_fleet::pool::resources::Resources;
use planaria_fleet::pool::roster::Roster;
use planaria_fleet::pool::{Means, Pool, Spot};
use planaria_fleet::program::Program;
use planaria_fleet::provider::{Fault, Machine, Provider, Remedy, Tag};
use planaria_fleet::providers::{self, Purpose};
use planaria_fleet::remote::Remote;
use planaria_fleet::setup::{self, Setup};
use planaria_fleet::sites::Sites;
use planaria_protocol::launch::{Launch, Parts, Trust};
use planaria_protocol::message::Agent;
use planaria_protocol::tls::Authority;
use planaria_recipe::Recipe;
use planaria_recipe::setup::Step;
use planaria_runs::clock::{self, SystemClock};
use planaria_runs::failure::{Context, Failure, Result};
use planaria_runs::run_dir::{LOGS, run_id};
use std::fs::OpenOptions;
use std::net::TcpListener;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The program that plays playbooks.
const ANSIBLE: &str = "ansible-playbook";

/// All addresses of a machine.
const EVERYWHERE: &str = "0.0.0.0";

/// What a pool is made of.
pub struct Pooling {
    authority: Authority,
    means: Means,
    resources: Resources,
    roster: Roster,
    folder: PathBuf,
}

/// What is asked of a pool.
pub struct Need<'a> {
    /// The run's folder, whose name is the run's.
    pub folder: &'a Path,
    /// What goes to machines.
    pub program: &'a Path,
    /// Where machines come from, and how many processes there are.
    pub pool: &'a planaria_recipe::pool::Pool,
    /// What is done on machines first.
    pub steps: &'a [Step],
    /// Variables with secrets, which nothing inherits.
    pub hidden: Vec<String>,
    /// Machines to begin with.
    pub machine_count: usize,
    /// Workers to begin with.
    pub worker_count: usize,
    /// Machines that are there already, of a detached run.
    pub machines: Option<Arc<dyn Provider>>,
    /// Whether machines outlive the command.
    pub is_detached: bool,
    /// Whom machines must reach.
    pub reach: Reach,
    /// Done on each machine after the steps.
    pub last: Option<Prepare>,
}

impl Pooling {
    /// Creates nothing, and reports all faults that show before anything is created.
    pub fn new(need: Need<'_>) -> Result<Self> {
        let Need { folder, pool, hidden, is_detached, reach, last, .. } = need;
        let id = run_id(folder);
        let run = Tag::new(&id).ok_or_else(|| {
            Failure::user(format!("`{id}` cannot name machines"))
                .hint("letters, digits, `-`, `_` and `.` can be in the `name` of such a recipe")
        })?;
        let program = read(need.program)?;
        let is_elsewhere = need.machines.is_some();
        let provider = match need.machines {
            Some(machines) => machines,
            None => {
                let purpose = Purpose { program: Some(program.clone()), is_detached, hidden };
                providers::of(pool, &purpose).map_err(failure)?
            }
        };
        let setup = Setup::prepare(need.steps).map_err(failure)?;
        provider.check().map_err(failure)?;
        let resources = Resources::open(folder);
        let resources = resources.context(|| format!("cannot write in `{}`", folder.display()))?;
        let slots = pool.slots.map(|slots| slots as u32);
        let roster = Roster::new(need.machine_count, need.worker_count as u32, slots);
        let roster = roster.needing(pool.workers.min() as u32);
        let address = pool.address.clone().filter(|_| !is_elsewhere);
        let addresses = address.map_or_else(interfaces, |address| vec![address]);
        let guards = Guards::new(need.program, &id);
        let steps = prepare(setup, provider.clone(), run.clone(), guards, folder.to_path_buf());
        let prepare: Prepare = match last {
            None => steps,
            Some(last) => Box::new(move |machine, remote, tell| {
                steps(machine, remote, tell)?;
                last(machine, remote, tell)
            }),
        };
        let unix_seconds = clock::unix_seconds;
        let (gate, first) = (Gate::default(), Mutex::default());
        let means =
            Means { provider, run, program, addresses, reach, gate, first, prepare, unix_seconds };
        let authority = Authority::new(&id, clock::unix_seconds()).map_err(Failure::failed)?;
        let folder = folder.to_path_buf();
        Ok(Self { authority, means, resources, roster, folder })
    }

    /// A certificate for consoles.
    pub fn console_trust(&self) -> Result<Trust> {
        self.authority.issue(Agent::Console, None, Duration::ZERO).map_err(Failure::failed)
    }

    /// The pool, with nothing raised yet, whose machines must reach a coordinator on this port.
    pub fn reaching(mut self, port: u16) -> Self {
        self.means.reach = Reach::Coordinator(port);
        self
    }

    /// The pool, with nothing raised yet; and the authority of its certificates.
    pub fn pool(self) -> (Pool, Authority) {
        let logs = self.folder.join(LOGS);
        (Pool::new(self.means, self.resources, self.roster, logs), self.authority)
    }
}

/// The provider of a recipe's pool, for machines that a run is done on, and which may outlive the
/// command. Nothing that it starts inherits variables with the recipe's secrets.
pub fn provider(
    recipe: &Recipe,
    program: &Program,
    is_detached: bool,
) -> Result<Arc<dyn Provider>> {
    let (program, hidden) = (Some(program.clone()), secrets(recipe));
    providers::of(&recipe.pool, &Purpose { program, is_detached, hidden }).map_err(failure)
}

/// The program, by the name of its file where that is still what runs.
pub fn read(program: &Path) -> Result<Program> {
    let path = program.canonicalize().unwrap_or_else(|_| program.to_path_buf());
    Program::read(&path, crate::program::build())
        .context(|| format!("cannot read `{}`", path.display()))
}

/// Does the set-up of one machine after another, or of many at the same time.
fn prepare(
    setup: Setup,
    provider: Arc<dyn Provider>,
    run: Tag,
    guards: Guards,
    folder: PathBuf,
) -> Prepare {
    Box::new(move |machine: &Machine, remote: &Remote, tell: &(dyn Fn(String) + Sync)| {
        if setup.is_empty() {
            return Ok(());
        }
        let path = folder.join(LOGS).join(format!("setup-{}.log", machine.name));
        let log = OpenOptions::new().create(true).append(true).mode(0o600).open(&path);
        let mut log = log.map_err(|e| {
            let what = format!("cannot write `{}`: {e}", path.display());
            Fault::fix(&machine.name, what, "make room for the run's folder")
        })?;
        let machines = [(machine.clone(), provider.inventory(machine))];
        steps::followed(&machine.name, tell, |on_step| {
            let job = setup::Job {
                run: &run,
                machine,
                machines: &machines,
                folder: &folder,
                clock: &SystemClock::start(),
                is_cancelled: &|| remote.is_closed(),
                on_step,
                pause: None,
                ansible: ANSIBLE,
                guards: &guards,
            };
            let mut hands = remote;
            let applied = setup.apply(&job, &mut hands, &mut log).map(drop);
            applied.map_err(|fault| Fault { is_everywhere: provider.is_here(machine), ..fault })
        })
    })
}

/// Variables of this machine that a recipe takes secrets from: no process inherits them.
pub fn secrets(recipe: &Recipe) -> Vec<String> {
    recipe.setup.iter().flat_map(Step::variables).map(str::to_owned).collect()
}

/// The place where coordinators listen, and its port.
pub fn listen(everywhere: bool) -> Result<(TcpListener, u16)> {
    let address = if everywhere { EVERYWHERE } else { "127.0.0.1" };
    let listener = TcpListener::bind((address, 0));
    let listener = listener.context(|| format!("cannot listen on {address}"))?;
    let port = listener.local_addr().context(|| format!("cannot listen on {address}"))?.port();
    Ok((listener, port))
}

/// Fills in where a process lives, and how it meets the others.
pub fn station(launch: &mut Launch, spot: &Spot, sites: &Sites) {
    let Spot::There(_, route) = spot else {
        // Beside the controller, and yet reached from elsewhere.
        if let Some(address) = sites.controller() {
            launch.station.bind = Some(EVERYWHERE.to_owned());
            launch.station.advertise = Some(address);
        }
        return;
    };
    let port = launch.coordinator.as_deref().and_then(|address| address.rsplit_once(':'));
    let port = port.map_or("0", |(_, port)| port).to_owned();
    launch.coordinator = Some(format!("{}:{port}", route.controller));
    launch.state = Some(format!("{}/state", route.folder));
    if launch.recipe.pool.threads == 0 {
        let slots = launch.recipe.pool.slot_count().max(1) as u32;
        let shards = (launch.recipe.train.shards as u32).div_ceil(launch.size.workers.max(1));
        launch.size.threads = (route.cores / slots).clamp(1, shards.max(1));
    }
    let station = &mut launch.station;
    station.machine = Some(route.machine.clone());
    station.bind = Some(EVERYWHERE.to_owned());
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
