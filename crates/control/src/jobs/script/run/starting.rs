//! From machines that are there to processes that run.

use super::{REPLACED_WITHIN, Running, UNREADY_MAX, UNREADY_PAUSE, ordered, sources};
use crate::jobs::pooling::failure;
use crate::jobs::script::layout::Layout;
use crate::jobs::script::machines::seat;
use crate::jobs::script::policy::{JobInput, Member};
use crate::jobs::script::round::{Made, Readying, Unready};
use crate::jobs::script::variables::{Telling, Told};
use planaria_fleet::guard;
use planaria_fleet::home::user_home;
use planaria_fleet::supervise::Input;
use planaria_protocol::event::What;
use planaria_protocol::message::Agent;
use planaria_runs::failure::{Failure, Result};
use std::time::Duration;

impl Running<'_> {
    /// Begins a round once the machines are there.
    pub(super) fn gather(&mut self, now: Duration) -> Result<()> {
        if let Some(readying) = &self.readying {
            let Some(ready) = readying.take() else { return Ok(()) };
            self.readying = None;
            match ready {
                Ok(readied) => {
                    readied.note.iter().for_each(|note| self.progress.note(note));
                    self.start_all(now, readied.layout);
                }
                Err(Unready::Never(fault)) => return Err(failure(fault)),
                // The pool sees to a machine that is lost; one that stays, and cannot, ends it.
                Err(Unready::Lost(fault)) => {
                    self.unready += 1;
                    if self.unready == 1 {
                        self.progress.note(&format!("{fault}; trying again"));
                    }
                    if self.unready >= UNREADY_MAX {
                        return Err(failure(fault));
                    }
                    self.not_before = now + UNREADY_PAUSE;
                }
            }
            return Ok(());
        }
        let Some(since) = self.gathering.filter(|_| now >= self.not_before) else {
            return Ok(());
        };
        let standing = self.machines.pool().standing();
        let (wanted, coming) = (self.prepared.job.machine_count(), self.machines.pool().coming());
        // Machines that are being set up are waited for; one that never answered is not, after some tries.
        let is_late = match self.round {
            0 => self.machines.pool().hopeful() == 0,
            _ => now.saturating_sub(since) > REPLACED_WITHIN,
        };
        let is_enough = standing.len() >= wanted || coming == 0 || is_late;
        if standing.is_empty() || !is_enough {
            return Ok(());
        }
        if is_late && coming > 0 {
            let have = standing.len();
            self.progress.note(&format!("going on with {have} of {wanted} machines"));
        }
        let seats = standing.iter().map(|one| seat(one, self.machines.are_here)).collect();
        let layout = Layout::new(&self.prepared.job, self.prepared.framework, seats);
        let layout = layout.map_err(Failure::user)?;
        let outputs = self.fetching.outputs.clone();
        let made = match self.round {
            0 => Made::Nothing,
            _ if self.supervisor.policy.trains_together() => Made::Same(outputs, self.clock),
            _ => Made::Own(outputs),
        };
        let port = self.prepared.job.script.port;
        self.readying = Some(Readying::new(layout, sources(&standing), port, made));
        Ok(())
    }

    fn start_all(&mut self, now: Duration, layout: Layout) {
        if self.supervisor.places.is_ending() {
            return;
        }
        let standing = self.machines.pool().standing();
        // A machine may have been lost meanwhile: then it is gathered once more.
        let is_there = |number: u32| standing.iter().any(|one| one.number == number);
        if !layout.seats.iter().all(|seat| is_there(seat.number)) {
            return;
        }
        self.gathering = None;
        self.unready = 0;
        self.round += 1;
        self.transcript.begin(&layout, self.machines.are_here);
        self.told = self.tell(&layout);
        self.restarting.clear();
        let members = layout.processes.iter().zip(&self.told).map(|(process, told)| Member {
            role: process.role.clone(),
            index: process.index,
            meets: told.meeting.is_some(),
        });
        let members = members.collect();
        self.on(now, JobInput::Began(members));
        self.fetching.from(ordered(&layout, &standing));
        self.layout = Some(layout);
        (self.round_began, self.unmet_told) = (Some(now), false);
        self.first_start.get_or_insert(self.since_command.seconds());
        for id in 0..self.told.len() as u32 {
            self.start(now, id);
        }
    }

    /// What every process of a layout is told.
    pub(super) fn tell(&self, layout: &Layout) -> Vec<Told> {
        let run = self.folder.id();
        let telling = Telling {
            job: &self.prepared.job,
            framework: self.prepared.framework,
            run: &run,
            round: self.round.saturating_sub(1),
            script: &self.prepared.script,
            data: &self.prepared.data,
            has_mpi4py: self.prepared.has_mpi4py,
            layout,
        };
        layout.processes.iter().map(|process| telling.told(process)).collect()
    }

    pub(super) fn start(&mut self, now: Duration, id: u32) {
        let Some(layout) = &self.layout else { return };
        let process = layout.processes[id as usize].clone();
        let machine = layout.seat(&process).clone();
        let orders = self.orders(id, &machine.name);
        let orders = serde_json::to_vec(&orders).expect("plain strings");
        let agent = Agent::Task(id);
        let pool = self.machines.sites.pool_mut().expect("a script has a pool");
        match pool.start(machine.number, agent, orders) {
            Ok(pid) => {
                self.on(now, Input::Started { agent, pid });
                self.record(What::Joined {
                    agent: process.slug(),
                    pid,
                    engine: None,
                    threads: None,
                    machine: Some(machine.name),
                    downloaded: None,
                });
            }
            Err(why) => self.on(now, Input::NotStarted { agent, why }),
        }
    }

    /// Where the script is started on a machine.
    fn folder_on(&self, machine: &str) -> String {
        let folder = self.machines.folder(machine).unwrap_or_default();
        match self.prepared.workdir.as_str() {
            "" => folder,
            inside => format!("{folder}/{inside}"),
        }
    }

    fn orders(&self, id: u32, machine: &str) -> guard::Orders {
        let (job, told) = (&self.prepared.job, &self.told[id as usize]);
        let mut env = told.env.clone();
        let (mut command, mut python) = (told.command.clone(), job.python());
        if self.machines.are_here {
            // The script is at home where its user is, not in the machine's folder.
            env.push(("HOME".into(), user_home().display().to_string()));
            if let (Some(_), Some(rest)) = (&job.script.python, python.strip_prefix("~/")) {
                let here = user_home().join(rest).display().to_string();
                let told = command.iter_mut().find(|text| **text == python);
                told.into_iter().for_each(|text| text.clone_from(&here));
                python = here;
            }
        }
        let filled: Vec<&str> = job.script.filled_variables().map(|(name, _)| name).collect();
        let own = self.prepared.env.iter().filter(|(name, _)| !filled.contains(&name.as_str()));
        env.extend(own.map(|(name, secret)| (name.clone(), secret.reveal().to_owned())));
        guard::Orders {
            command,
            python,
            env,
            without: job.variables(),
            folder: self.folder_on(machine),
            terminal: self.transcript.terminal(),
            interface: told.interface.clone(),
            stop_seconds: job.script.stop_seconds,
            secrets: self.prepared.secrets.reveal(),
            leaves_daemons: false,
        }
    }
}
