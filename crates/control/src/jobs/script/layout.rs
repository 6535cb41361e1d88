//! Which process of a script goes where, with which rank. Pure.
//!
//! Owns the order of ranks: roles in the order of `Job::role_counts`, and within a role machine by
//! machine, so that processes of one machine have neighbouring ranks.

use planaria_recipe::pool::{SERVER, WORKER as WORKER_GROUP, is_in};
use planaria_recipe::script::{Each, Framework, Job, Launcher, PS, PerMachine, WORKER};

/// The role of `torchrun`, one on each machine.
pub const TORCHRUN: &str = "torchrun";
/// The role of `mpirun`, on the first machine.
pub const MPIRUN: &str = "mpirun";

/// The role of where processes of Horovod meet, on the first machine.
pub const RENDEZVOUS: &str = "rendezvous";

/// A machine, as far as it matters here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seat {
    /// Its number in the pool.
    pub number: u32,
    pub name: String,
    /// Where the others reach it.
    pub address: String,
    pub cores: u32,
    /// Its graphics processors.
    pub gpus: u32,
    /// Groups that it is in.
    pub groups: Vec<String>,
    /// All that is ours on it.
    pub home: String,
}

/// A process of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its number in the job.
    pub id: u32,
    pub role: String,
    /// Which of its role.
    pub index: usize,
    /// Place of its machine among the seats.
    pub seat: usize,
    /// Which of its role on its machine.
    pub local_rank: usize,
    /// Where it may listen.
    pub port: u16,
}

impl Process {
    /// As people read it.
    pub fn title(&self) -> String {
        format!("{} {}", self.role, self.index)
    }

    /// As files and events have it.
    pub fn slug(&self) -> String {
        format!("{}-{}", self.role, self.index)
    }
}

/// All processes of a job and their machines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    pub seats: Vec<Seat>,
    /// The processes, by their numbers.
    pub processes: Vec<Process>,
    /// Of a job by `torchrun` or `mpirun`: worker processes on each machine.
    pub workers: Vec<usize>,
}

impl Layout {
    /// Deals the processes of a job to machines; ports are given later. What is wrong is said.
    pub fn new(job: &Job, framework: Framework, seats: Vec<Seat>) -> Result<Self, String> {
        let mut layout = Self { seats, processes: Vec::new(), workers: Vec::new() };
        if layout.seats.is_empty() {
            return Err("there are no machines".into());
        }
        let launched = match (framework, job.script.launcher) {
            (Framework::Pytorch, Launcher::Torchrun) => Some(TORCHRUN),
            (Framework::Mpi, _) => Some(MPIRUN),
            _ => None,
        };
        layout.workers = layout.worker_shares(job)?;
        for (role, count) in job.role_counts() {
            match role.as_str() {
                WORKER if launched.is_some() => {}
                WORKER => layout.add(&role, &layout.workers.clone()),
                PS => layout.add(&role, &layout.spread(count, SERVER, true)),
                _ => layout.add(&role, &layout.spread(count, WORKER_GROUP, false)),
            }
        }
        // Workers that depend on machines are in no count.
        if launched.is_none() && !layout.processes.iter().any(|p| p.role == WORKER) {
            layout.add(WORKER, &layout.workers.clone());
        }
        let mut first = vec![0; layout.seats.len()];
        first[0] = 1;
        if framework == Framework::Horovod {
            layout.add(RENDEZVOUS, &first);
        }
        match launched {
            Some(MPIRUN) => layout.add(MPIRUN, &first),
            Some(role) => {
                let one_each: Vec<usize> = layout.workers.iter().map(|n| (*n).min(1)).collect();
                layout.add(role, &one_each);
            }
            None => {}
        }
        Ok(layout)
    }

    /// Processes of a role.
    pub fn of_role<'a>(&'a self, role: &'a str) -> impl Iterator<Item = &'a Process> {
        self.processes.iter().filter(move |process| process.role == role)
    }

    /// How many processes a machine has.
    pub fn on_seat(&self, seat: usize) -> usize {
        self.processes.iter().filter(|process| process.seat == seat).count()
    }

    /// The machine of a process.
    pub fn seat(&self, process: &Process) -> &Seat {
        &self.seats[process.seat]
    }

    /// Where a process listens, as others reach it.
    pub fn place(&self, process: &Process) -> String {
        format!("{}:{}", self.seat(process).address, process.port)
    }

    /// Where all processes of a role listen.
    pub fn places(&self, role: &str) -> Vec<String> {
        self.of_role(role).map(|process| self.place(process)).collect()
    }

    /// Worker processes on each machine.
    fn worker_shares(&self, job: &Job) -> Result<Vec<usize>, String> {
        let each = |count: &dyn Fn(&Seat) -> usize| {
            let takes = |seat: &Seat| is_in(WORKER_GROUP, &seat.groups);
            let shares = self.seats.iter().map(|seat| if takes(seat) { count(seat) } else { 0 });
            shares.collect::<Vec<usize>>()
        };
        let per_machine = job.script.per_machine.as_ref();
        match (per_machine, per_machine.and_then(PerMachine::each)) {
            (None, _) => Ok(self.spread(job.worker_count(), WORKER_GROUP, false)),
            (Some(PerMachine::Count(count)), _) => Ok(each(&|_| *count)),
            (_, Some(Each::Core) | None) => Ok(each(&|seat| seat.cores.max(1) as usize)),
            (_, Some(Each::Gpu)) => {
                // Those that take no workers need none.
                let lacks = |seat: &&Seat| seat.gpus == 0 && is_in(WORKER_GROUP, &seat.groups);
                if let Some(seat) = self.seats.iter().find(lacks) {
                    return Err(format!(
                        "{} has no GPU, but `per_machine` is `gpu`; in group `server` alone it would \
                         take parameter servers only",
                        seat.name
                    ));
                }
                Ok(each(&|seat| seat.gpus as usize))
            }
        }
    }

    /// So many processes over the machines of a group, in blocks; services from the last machine.
    fn spread(&self, count: usize, group: &str, from_last: bool) -> Vec<usize> {
        let mut places: Vec<usize> =
            (0..self.seats.len()).filter(|n| is_in(group, &self.seats[*n].groups)).collect();
        if places.is_empty() {
            places = (0..self.seats.len()).collect();
        }
        if from_last {
            places.reverse();
        }
        let mut shares = vec![0; self.seats.len()];
        for (turn, place) in places.iter().enumerate() {
            shares[*place] = count / places.len() + usize::from(turn < count % places.len());
        }
        shares
    }

    fn add(&mut self, role: &str, shares: &[usize]) {
        let mut index = 0;
        for (seat, count) in shares.iter().enumerate() {
            for local_rank in 0..*count {
                let id = self.processes.len() as u32;
                let role = role.to_owned();
                self.processes.push(Process { id, role, index, seat, local_rank, port: 0 });
                index += 1;
            }
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use planaria_recipe::JobSource;

    pub fn job(text: &str) -> Job {
        let text = format!("{{name: x, {text}}}");
        match JobSource::parse("x.yaml", text.as_bytes(), &[]) {
            Ok(source) => source.recipe().clone(),
            Err(mistakes) => panic!("{mistakes}"),
        }
    }

    pub fn seats(count: u32) -> Vec<Seat> {
        let seat = |number: u32| Seat {
            number,
            name: format!("h{}", number + 1),
            address: format!("10.0.0.{}", number + 1),
            cores: 4,
            gpus: number + 1,
            groups: Vec::new(),
            home: "/root/.cache/planaria".into(),
        };
        (0..count).map(seat).collect()
    }

    fn shown(layout: &Layout) -> String {
        let one = |p: &Process| format!("{}@{}.{}", p.slug(), layout.seat(p).name, p.local_rank);
        layout.processes.iter().map(one).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn processes_go_machine_by_machine() {
        for (text, machines, framework, expect) in [
            (
                "script: {file: a.py}, pool: {workers: 3}",
                2,
                Framework::Pytorch,
                "worker-0@h1.0 worker-1@h1.1 worker-2@h2.0",
            ),
            (
                "script: {file: a.py, roles: {ps: 1, worker: 2, chief: 1}}",
                2,
                Framework::Tensorflow,
                "chief-0@h1.0 worker-0@h1.0 worker-1@h2.0 ps-0@h2.0",
            ),
            (
                "script: {file: a.py, per_machine: gpu}",
                2,
                Framework::Jax,
                "worker-0@h1.0 worker-1@h2.0 worker-2@h2.1",
            ),
            (
                "script: {file: a.py, launcher: torchrun}, pool: {workers: 4}",
                3,
                Framework::Pytorch,
                "torchrun-0@h1.0 torchrun-1@h2.0 torchrun-2@h3.0",
            ),
            (
                "script: {file: a.py, framework: mpi}, pool: {workers: 4}",
                3,
                Framework::Mpi,
                "mpirun-0@h1.0",
            ),
            ("script: {file: a.py}", 3, Framework::Plain, "worker-0@h1.0"),
        ] {
            let layout = Layout::new(&job(text), framework, seats(machines)).unwrap();
            assert_eq!(shown(&layout), expect, "{text}");
        }
    }

    #[test]
    fn groups_are_heeded() {
        let mut seats = seats(3);
        seats[0].groups = vec!["server".into()];
        seats[1].groups = vec!["worker".into()];
        seats[2].groups = vec!["worker".into()];
        let job = job("script: {file: a.py, roles: {ps: 2, worker: 3}}");
        let layout = Layout::new(&job, Framework::Plain, seats).unwrap();
        let expect = "worker-0@h2.0 worker-1@h2.1 worker-2@h3.0 ps-0@h1.0 ps-1@h1.1";
        assert_eq!(shown(&layout), expect);
    }

    #[test]
    fn a_machine_without_what_was_asked_for_is_named() {
        let mut seats = seats(2);
        seats[1].gpus = 0;
        let job = job("script: {file: a.py, per_machine: gpu}");
        let wrong = Layout::new(&job, Framework::Pytorch, seats.clone()).unwrap_err();
        assert!(wrong.contains("h2 has no GPU"), "{wrong}");
        seats[1].groups = vec!["server".into()];
        let job =
            super::tests::job("script: {file: a.py, per_machine: gpu, roles: {chief: 1, ps: 1}}");
        let layout = Layout::new(&job, Framework::Tensorflow, seats).unwrap();
        assert_eq!(shown(&layout), "chief-0@h1.0 ps-0@h2.0 worker-0@h1.0");
    }
}
