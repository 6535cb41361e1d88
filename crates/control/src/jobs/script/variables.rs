//! What each framework wants to be told: variables and arguments of a process. Pure.
//!
//! Owns the names that frameworks read. Never chooses a port or a machine.

use crate::jobs::script::layout::{Layout, MPIRUN, Process, RENDEZVOUS, TORCHRUN};
use crate::jobs::script::prepare::DataSet;
use planaria_fleet::setup::template::Template;
use planaria_recipe::pool::Workers;
use planaria_recipe::script::{CHIEF, Each, Framework, Job, MASTER, PS, PerMachine, WORKER};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Variables that are given the name of the interface by which machines reach each other: gloo,
/// TensorPipe and NCCL guess it from the machine's name otherwise.
const INTERFACES: [&str; 3] = ["GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"];

/// Names the GPUs that a process sees.
const VISIBLE: &str = "CUDA_VISIBLE_DEVICES";

/// How launchers of PyTorch see that one is lost: after three seconds of silence, not fifteen; and how
/// long those that are left wait for it to come back.
const LAUNCHERS: &str = "keep_alive_interval=1,keep_alive_max_attempt=3,last_call_timeout=10";

/// How a process is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// The program and its arguments.
    pub command: Vec<String>,
    pub env: Vec<(String, String)>,
    /// Variables for the interface of this address.
    pub interface: Option<(String, Vec<String>)>,
    /// How it is seen that it has found the others.
    pub meeting: Option<Meeting>,
}

/// What a process does to find the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meeting {
    /// It listens on this port.
    Listens(u16),
    /// It is connected to a process that listens on this port.
    Connects(u16),
}

/// A job whose processes are told.
pub struct Telling<'a> {
    pub job: &'a Job,
    /// What it is written for.
    pub framework: Framework,
    /// The run's name.
    pub run: &'a str,
    /// Rounds before this one.
    pub round: u32,
    /// The script, relative to the folder that it is started in.
    pub script: &'a str,
    /// Data that machines have.
    pub data: &'a [DataSet],
    /// Whether the script imports `mpi4py`.
    pub has_mpi4py: bool,
    /// Where each process is.
    pub layout: &'a Layout,
}

impl Telling<'_> {
    /// What a process is told.
    pub fn told(&self, process: &Process) -> Told {
        let mut told = Told {
            command: vec![self.job.python(), self.script_path()],
            env: vec![("PYTHONUNBUFFERED".into(), "1".into())],
            interface: None,
            meeting: None,
        };
        if process.role == RENDEZVOUS {
            // A guard is a process of this program, and so is what it starts by this name.
            let port = process.port.to_string();
            told.command = ["/proc/self/exe", "agent", RENDEZVOUS, &port].map(str::to_owned).into();
            told.meeting = Some(Meeting::Listens(process.port));
            return told;
        }
        match self.framework {
            Framework::Tensorflow => self.tensorflow(process, &mut told),
            Framework::Pytorch if process.role == TORCHRUN => self.torchrun(process, &mut told),
            Framework::Pytorch => self.pytorch(process, &mut told),
            Framework::Jax => self.jax(process, &mut told),
            Framework::Horovod => self.horovod(process, &mut told),
            Framework::Mpi => self.mpi(&mut told),
            Framework::Plain => self.plain(process, &mut told),
        }
        told.command.extend(self.arguments(process));
        told.env.extend(self.own_variables(process));
        told
    }

    /// Never what Python takes for an option.
    fn script_path(&self) -> String {
        match self.script.starts_with('-') {
            true => format!("./{}", self.script),
            false => self.script.to_owned(),
        }
    }

    /// The script's own arguments, filled in.
    fn arguments(&self, process: &Process) -> Vec<String> {
        let arguments = self.job.script.arguments();
        arguments.iter().map(|text| self.fill(process, text)).collect()
    }

    /// A text with its fields filled in.
    fn fill(&self, process: &Process, text: &str) -> String {
        let values = self.fields(process);
        let values: BTreeMap<&str, &str> = values.iter().map(|(k, v)| (&**k, &**v)).collect();
        let known: Vec<&str> = values.keys().copied().collect();
        match Template::parse(text, &known) {
            Ok(template) => template.fill(&values),
            // The recipe's check has seen every field.
            Err(_) => text.to_owned(),
        }
    }

    fn fields(&self, process: &Process) -> BTreeMap<String, String> {
        let Layout { processes, seats, .. } = self.layout;
        let head = &processes[0];
        let of_role = |role: &str| self.layout.places(role).join(",");
        let workers = self.layout.of_role(&process.role);
        let local = workers.filter(|other| other.seat == process.seat).count();
        let text = |value: &dyn ToString| value.to_string();
        let mut fields: BTreeMap<String, String> = [
            ("role", process.role.clone()),
            ("index", text(&process.index)),
            ("rank", text(&process.id)),
            ("world_size", text(&processes.len())),
            ("local_rank", text(&process.local_rank)),
            ("local_world_size", text(&local)),
            ("machine", self.layout.seat(process).name.clone()),
            ("machine_index", text(&process.seat)),
            ("machines", text(&seats.len())),
            ("address", self.layout.seat(process).address.clone()),
            ("port", text(&process.port)),
            ("master_addr", self.layout.seat(head).address.clone()),
            ("master_port", text(&head.port)),
            ("hosts", processes.iter().map(|p| self.layout.place(p)).collect::<Vec<_>>().join(",")),
            ("run", self.run.to_owned()),
            ("epochs", self.job.script.epochs.map_or_else(String::new, |n| text(&n))),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        for data in self.data {
            let place = match data.place.starts_with('/') {
                true => data.place.clone(),
                false => format!("{}/data/{}", self.layout.seat(process).home, data.place),
            };
            fields.insert(data.field.clone(), place);
        }
        for role in self.job.script.role_names() {
            let places = of_role(&role);
            fields.insert(format!("{role}_hosts"), places);
        }
        fields
    }

    fn tensorflow(&self, process: &Process, told: &mut Told) {
        self.one_gpu_each(process, told);
        if self.layout.processes.len() == 1 {
            return;
        }
        let mut cluster = Map::new();
        for role in [CHIEF, MASTER, WORKER, PS] {
            let places = self.layout.places(role);
            if !places.is_empty() {
                cluster.insert(role.to_owned(), json!(places));
            }
        }
        let task = json!({ "type": process.role, "index": process.index });
        let config: Value = json!({ "cluster": cluster, "task": task });
        told.env.push(("TF_CONFIG".into(), config.to_string()));
        // A chief over parameter servers listens on no port.
        let listens = !(leads(process) && self.layout.of_role(PS).next().is_some());
        if cluster_has(&config, &process.role) && listens {
            told.meeting = Some(Meeting::Listens(process.port));
        }
    }

    fn pytorch(&self, process: &Process, told: &mut Told) {
        let head = &self.layout.processes[0];
        let local = self.layout.on_seat(process.seat);
        let pairs = [
            ("MASTER_ADDR", self.layout.seat(head).address.clone()),
            ("MASTER_PORT", head.port.to_string()),
            ("RANK", process.id.to_string()),
            ("WORLD_SIZE", self.layout.processes.len().to_string()),
            ("LOCAL_RANK", process.local_rank.to_string()),
            ("LOCAL_WORLD_SIZE", local.to_string()),
            ("GROUP_RANK", process.seat.to_string()),
            ("NODE_RANK", process.seat.to_string()),
        ];
        told.env.extend(pairs.map(|(name, value)| (name.to_owned(), value)));
        told.interface = self.interface(process);
        told.meeting = self.meeting(process, head.port);
    }

    /// The first process listens, the others connect to it; one alone meets no other.
    fn meeting(&self, process: &Process, port: u16) -> Option<Meeting> {
        match (self.layout.processes.len(), process.id) {
            (1, _) => None,
            (_, 0) => Some(Meeting::Listens(port)),
            _ => Some(Meeting::Connects(port)),
        }
    }

    fn interface(&self, process: &Process) -> Option<(String, Vec<String>)> {
        let address = self.layout.seat(process).address.clone();
        Some((address, INTERFACES.map(str::to_owned).to_vec()))
    }

    fn torchrun(&self, process: &Process, told: &mut Told) {
        let script = told.command.split_off(1);
        let head = &self.layout.processes[0];
        let machines = self.layout.processes.len();
        let per_machine = self.layout.workers[process.seat];
        let least = match self.job.pool.workers {
            Workers::Count(_) => 1,
            Workers::Range(range) => range.min.div_ceil(per_machine.max(1)).min(machines),
        };
        let options = [
            "-m".to_owned(),
            "torch.distributed.run".to_owned(),
            format!("--nnodes={least}:{machines}"),
            format!("--nproc-per-node={per_machine}"),
            format!("--max-restarts={}", self.job.script.max_restarts),
            format!("--rdzv-id={}-{}", self.run, self.round),
            "--rdzv-backend=c10d".to_owned(),
            format!("--rdzv-endpoint={}", self.layout.place(head)),
            format!("--rdzv-conf=is_host={},{LAUNCHERS}", u8::from(process.id == 0)),
            format!("--local-addr={}", self.layout.seat(process).address),
        ];
        // Workers find each other anew in every round. Through the store that launchers share, one
        // that comes back would wait for an address that was said before it came (torch 2.15).
        if machines > 1 {
            told.env.push(("TORCH_DISABLE_SHARE_RDZV_TCP_STORE".into(), "1".into()));
        }
        told.command.extend(options);
        told.command.extend(self.job.script.launcher_options());
        told.command.extend(script);
        told.interface = self.interface(process);
        told.meeting = self.meeting(process, head.port);
    }

    fn jax(&self, process: &Process, told: &mut Told) {
        self.one_gpu_each(process, told);
        let head = &self.layout.processes[0];
        let pairs = [
            ("JAX_COORDINATOR_ADDRESS", self.layout.place(head)),
            ("JAX_COORDINATOR_PORT", head.port.to_string()),
            ("JAX_NUM_PROCESSES", self.layout.processes.len().to_string()),
            ("JAX_PROCESS_ID", process.id.to_string()),
        ];
        told.env.extend(pairs.map(|(name, value)| (name.to_owned(), value)));
        told.meeting = self.meeting(process, head.port);
    }

    fn horovod(&self, process: &Process, told: &mut Told) {
        let Some(place) = self.layout.of_role(RENDEZVOUS).next() else { return };
        let seat = self.layout.seat(process);
        let workers: Vec<&Process> = self.layout.of_role(WORKER).collect();
        let local = workers.iter().filter(|other| other.seat == process.seat).count();
        let same_local: Vec<&&Process> =
            workers.iter().filter(|other| other.local_rank == process.local_rank).collect();
        let cross = same_local.iter().position(|other| other.id == process.id).unwrap_or(0);
        let pairs = [
            ("HOROVOD_HOSTNAME", seat.address.clone()),
            ("HOROVOD_RANK", process.id.to_string()),
            ("HOROVOD_SIZE", workers.len().to_string()),
            ("HOROVOD_LOCAL_RANK", process.local_rank.to_string()),
            ("HOROVOD_LOCAL_SIZE", local.to_string()),
            ("HOROVOD_CROSS_RANK", cross.to_string()),
            ("HOROVOD_CROSS_SIZE", same_local.len().to_string()),
            ("HOROVOD_GLOO_RENDEZVOUS_ADDR", self.layout.seat(place).address.clone()),
            ("HOROVOD_GLOO_RENDEZVOUS_PORT", place.port.to_string()),
            ("HOROVOD_CONTROLLER", "gloo".to_owned()),
            ("HOROVOD_CPU_OPERATIONS", "gloo".to_owned()),
        ];
        told.env.extend(pairs.map(|(name, value)| (name.to_owned(), value)));
        let variables = ["HOROVOD_GLOO_IFACE", INTERFACES[0], INTERFACES[2]];
        told.interface = Some((seat.address.clone(), variables.map(str::to_owned).to_vec()));
    }

    fn mpi(&self, told: &mut Told) {
        let script = std::mem::take(&mut told.command);
        let hosts = self.layout.seats.iter().zip(&self.layout.workers).filter(|(_, n)| **n > 0);
        let hosts: Vec<String> = hosts.map(|(seat, n)| format!("{}:{n}", seat.address)).collect();
        let total: usize = self.layout.workers.iter().sum();
        told.command.extend(
            [MPIRUN, "--host", &hosts.join(","), "-np", &total.to_string()].map(str::to_owned),
        );
        let mut crowded = self.layout.seats.iter().zip(&self.layout.workers);
        if crowded.any(|(seat, ranks)| *ranks > seat.cores as usize) {
            // More ranks than cores cannot each have one to itself.
            told.command.extend(["--oversubscribe", "--bind-to", "none"].map(str::to_owned));
        }
        told.command.extend(self.job.script.launcher_options());
        let mut script = script.into_iter();
        told.command.extend(script.next());
        if self.has_mpi4py {
            // Else an exception in one rank leaves the others waiting for it.
            told.command.extend(["-m", "mpi4py"].map(str::to_owned));
        }
        told.command.extend(script);
        // It refuses to run as root otherwise; who may log in there as root is decided by the owner of the machine.
        for name in ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] {
            told.env.push((name.into(), "1".into()));
        }
    }

    fn plain(&self, process: &Process, told: &mut Told) {
        self.one_gpu_each(process, told);
        // The others expect nothing on a port that they do not know.
        let must_listen = self.job.script.must_listen(&process.role, process.id == 0);
        if must_listen && self.layout.processes.len() > 1 {
            told.meeting = Some(Meeting::Listens(process.port));
        }
    }

    /// Frameworks that take every GPU they see are shown one.
    fn one_gpu_each(&self, process: &Process, told: &mut Told) {
        let each = self.job.script.per_machine.as_ref().and_then(PerMachine::each);
        let has_gpus = self.layout.seat(process).gpus > 0;
        let visible = match each {
            // It would take the memory of one that a worker computes with.
            _ if self.computes_nothing(process) && has_gpus => String::new(),
            Some(Each::Gpu) => process.local_rank.to_string(),
            _ => return,
        };
        if !self.job.script.env.contains_key(VISIBLE) {
            told.env.push((VISIBLE.into(), visible));
        }
    }

    /// Whether a process only keeps parameters, or only tells workers what to do.
    fn computes_nothing(&self, process: &Process) -> bool {
        let is_told = self.framework == Framework::Tensorflow && process.role == CHIEF;
        process.role == PS || (is_told && self.layout.of_role(PS).next().is_some())
    }

    /// Variables of the recipe that have fields.
    fn own_variables(&self, process: &Process) -> Vec<(String, String)> {
        let own = self.job.script.filled_variables();
        own.map(|(name, text)| (name.to_owned(), self.fill(process, text))).collect()
    }
}

/// Whether a process is the one that tells the others what to do.
fn leads(process: &Process) -> bool {
    [CHIEF, MASTER].contains(&&*process.role)
}

fn cluster_has(config: &Value, role: &str) -> bool {
    config["cluster"].get(role).is_some()
}

#[cfg(test)]
mod tests;
