//! Which machines are raised, replaced and given up, and who lives where. Pure: time is an
//! argument.
//!
//! Owns the machines of a run by their numbers, the pauses between attempts, and the places on
//! them. Never creates anything; the pool acts and reports what came of it.

mod placing;
mod streak;

use crate::backoff::Backoff;
use crate::provider::{Fault, Machine, Remedy};
use planaria_protocol::message::Agent;
use planaria_recipe::words::counted;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use streak::Streak;

/// Pause before the second attempt in a row; each further one waits twice as long.
const PAUSE: Duration = Duration::from_secs(1);
/// Longest pause between attempts.
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// Attempts at one machine before any of the pool was ready.
const FIRST_ATTEMPTS_MAX: u32 = 3;
/// Attempts in a row at one machine that was ready before, or while others work.
const ATTEMPTS_MAX: u32 = 20;
/// How long the others are waited for once machines for enough workers have answered.
const OTHERS_WITHIN: Duration = Duration::from_millis(500);
/// A provider that has a machine so far beyond the last has no end of them.
const FAR: u32 = 1000;

#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// Time has passed.
    Look,
    /// A machine's host answers, and the machine reaches the controller by itself or not.
    Opened {
        number: u32,
        /// Whether without a tunnel.
        is_direct: bool,
    },
    /// A machine is set up.
    Ready { number: u32 },
    /// A machine could not be raised, and nothing of it is left.
    Failed { number: u32, fault: Fault },
    /// A machine that was ready is lost.
    Lost { number: u32 },
    /// A machine that was ready lacks what work needs, and is being given back.
    Unfit { number: u32, fault: Fault },
    /// A machine is about to go.
    Leaving { number: u32 },
    /// So many machines are wanted from now on.
    Resize { machines: usize },
    /// A machine that was to be released is given back.
    Released { number: u32 },
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Create a machine and make it ready.
    Raise { number: u32, machine: Machine },
    /// Give a machine back that is no longer wanted.
    Release { number: u32 },
    /// A machine is not tried again, for this reason.
    GiveUp { machine: String, why: String },
    /// To be told to people.
    Note(String),
    /// Too few machines are available.
    Fail(Fault),
}

/// Where a process goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Where {
    /// To the controller's machine.
    Here,
    /// To this machine.
    There(u32),
    /// There is no room yet.
    Nowhere,
}

/// The machines of a run.
pub struct Roster {
    wanted: usize,
    workers: u32,
    workers_min: u32,
    slots: Option<u32>,
    members: BTreeMap<u32, Member>,
    /// Numbers that were planned, in order; those that were given up are not planned again.
    next: u32,
    /// Numbers of machines that were released, and can be raised again.
    released: BTreeSet<u32>,
    was_ready: bool,
    first_fault: Option<Fault>,
    /// Machines that were given up one after another.
    streak: Option<Streak>,
    /// When the first machine answered.
    opened: Option<Duration>,
    /// Whether the machines that have not answered were named.
    told_late: bool,
    servers_here: Option<bool>,
    is_over: bool,
}

struct Member {
    machine: Machine,
    stage: Stage,
    /// Attempts in a row that came to nothing.
    attempts: u32,
    /// When the last attempt began.
    begun: Duration,
    was_ready: bool,
    is_direct: Option<bool>,
    agents: BTreeSet<Agent>,
    /// When it may be tried again although it was given up, where there is no other.
    returns: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Due(Duration),
    Raising,
    Ready,
    /// It still works, but not for long: nothing is started there, and another takes its place.
    Leaving,
    /// It is no longer wanted, and being given back.
    Releasing,
    GivenUp,
}

impl Member {
    fn new(machine: Machine, now: Duration) -> Self {
        let (stage, agents) = (Stage::Due(now), BTreeSet::new());
        Self {
            machine,
            stage,
            attempts: 0,
            begun: now,
            was_ready: false,
            is_direct: None,
            agents,
            returns: None,
        }
    }

    /// Whether it counts among those that are wanted.
    fn counts(&self) -> bool {
        !matches!(self.stage, Stage::GivenUp | Stage::Leaving | Stage::Releasing)
    }
}

impl Roster {
    /// For so many machines and workers; at most `slots` workers on each, where it is given.
    pub fn new(wanted: usize, workers: u32, slots: Option<u32>) -> Self {
        Self {
            wanted,
            workers,
            workers_min: 1,
            slots,
            members: BTreeMap::new(),
            next: 0,
            released: BTreeSet::new(),
            was_ready: false,
            first_fault: None,
            streak: None,
            opened: None,
            told_late: false,
            servers_here: None,
            is_over: false,
        }
    }

    /// The same, where fewer workers than this are of no use.
    pub fn needing(self, workers_min: u32) -> Self {
        Self { workers_min, ..self }
    }

    /// So many workers are wanted from now on.
    pub fn set_workers(&mut self, workers: u32) {
        self.workers = workers;
    }

    /// No more machines are raised.
    pub fn end(&mut self) {
        self.is_over = true;
    }

    /// The first fault there was.
    pub fn first_fault(&self) -> Option<&Fault> {
        self.first_fault.as_ref()
    }

    /// A machine's name.
    pub fn name(&self, number: u32) -> Option<String> {
        self.machine(number).map(|machine| machine.name.clone())
    }

    /// What a number stands for.
    pub fn machine(&self, number: u32) -> Option<&Machine> {
        self.members.get(&number).map(|member| &member.machine)
    }

    /// Machines that are ready.
    pub fn ready(&self) -> usize {
        self.members.values().filter(|m| m.stage == Stage::Ready).count()
    }

    /// Machines that are not ready and have not been given up.
    pub fn coming(&self) -> usize {
        let is_coming = |m: &&Member| m.counts() && m.stage != Stage::Ready;
        self.members.values().filter(is_coming).count()
    }

    /// Those of them that have not failed more often than is usual at the beginning.
    pub fn hopeful(&self) -> usize {
        let is_hopeful =
            |m: &&Member| m.counts() && m.stage != Stage::Ready && m.attempts < FIRST_ATTEMPTS_MAX;
        self.members.values().filter(is_hopeful).count()
    }

    /// Takes in what happened. `plan` says what a machine of a number would be, as the provider does.
    pub fn step(
        &mut self,
        now: Duration,
        input: Input,
        plan: &dyn Fn(u32) -> Option<Machine>,
    ) -> Vec<Action> {
        let mut actions = Vec::new();
        match input {
            Input::Look => {}
            Input::Opened { number, is_direct } => {
                if let Some(member) = self.members.get_mut(&number) {
                    member.is_direct = Some(is_direct);
                    self.opened.get_or_insert(now);
                }
            }
            Input::Ready { number } => {
                if let Some(member) = self.members.get_mut(&number) {
                    if member.stage == Stage::Releasing {
                        return vec![Action::Release { number }];
                    }
                    (member.stage, member.attempts) = (Stage::Ready, 0);
                    member.was_ready = true;
                    self.was_ready = true;
                    self.streak.take_if(|streak| streak.ends_with_ready());
                }
            }
            Input::Failed { number, .. } if self.is_releasing(number) => self.forget(number),
            Input::Released { number } => self.forget(number),
            Input::Failed { number, fault } => {
                // Another machine is better than waiting for one that may not come back.
                let has_spare = plan(self.next).is_some();
                self.failed(now, number, fault, has_spare, &mut actions);
            }
            Input::Lost { number } => {
                if let Some(member) = self.members.get_mut(&number) {
                    member.agents.clear();
                    member.stage = match member.stage {
                        Stage::Releasing => return Vec::new(),
                        Stage::Leaving => Stage::GivenUp,
                        _ => Stage::Due(now + PAUSE),
                    };
                }
            }
            Input::Unfit { number, fault } => self.unfit(now, number, fault, &mut actions),
            Input::Leaving { number } => {
                let ready = |m: &&mut Member| m.stage == Stage::Ready;
                if let Some(member) = self.members.get_mut(&number).filter(ready) {
                    member.stage = Stage::Leaving;
                }
            }
            Input::Resize { machines } => self.resize(machines, &mut actions),
        }
        if !self.is_over {
            self.fill(now, plan, &mut actions);
            self.tell_late(now, &mut actions);
        }
        actions
    }

    fn failed(
        &mut self,
        now: Duration,
        number: u32,
        fault: Fault,
        has_spare: bool,
        actions: &mut Vec<Action>,
    ) {
        let Some(member) = self.members.get_mut(&number) else { return };
        self.first_fault.get_or_insert_with(|| fault.clone());
        member.attempts += 1;
        member.agents.clear();
        let is_patient = self.was_ready && !has_spare;
        let most = if is_patient { ATTEMPTS_MAX } else { FIRST_ATTEMPTS_MAX };
        let is_last = fault.remedy != Remedy::Retry || member.attempts >= most;
        member.stage = match is_last {
            true => Stage::GivenUp,
            false => Stage::Due(now + pause(member.attempts)),
        };
        let may_return = fault.remedy == Remedy::Retry && member.attempts < ATTEMPTS_MAX;
        member.returns = may_return.then(|| now + pause(member.attempts));
        let hint = fault.hint.as_deref().filter(|hint| !hint.is_empty());
        let hint = hint.map_or_else(String::new, |hint| format!(" ({hint})"));
        let then = match is_last {
            true => "it is given up".to_owned(),
            false => format!("trying again in {} s", pause(member.attempts).as_secs()),
        };
        actions.push(Action::Note(format!("{fault}{hint}; {then}")));
        if is_last {
            self.give_up(now, number, &fault, false, actions);
        }
        if fault.remedy == Remedy::Fix && !self.was_ready {
            self.is_over = true;
            actions.push(Action::Fail(fault));
        }
    }

    /// A machine that was ready will not do.
    fn unfit(&mut self, now: Duration, number: u32, fault: Fault, actions: &mut Vec<Action>) {
        let Some(member) = self.members.get_mut(&number) else { return };
        member.agents.clear();
        match member.stage {
            Stage::Releasing => return self.forget(number),
            _ => member.stage = Stage::GivenUp,
        }
        self.first_fault.get_or_insert_with(|| fault.clone());
        let hint = fault.hint.as_deref().map_or_else(String::new, |hint| format!(" ({hint})"));
        actions.push(Action::Note(format!("{fault}{hint}; it is given up")));
        self.give_up(now, number, &fault, true, actions);
    }

    fn give_up(
        &mut self,
        now: Duration,
        number: u32,
        fault: &Fault,
        was_ready: bool,
        actions: &mut Vec<Action>,
    ) {
        let Some(member) = self.members.get(&number) else { return };
        let (machine, why) = (member.machine.name.clone(), fault.what.clone());
        let was_over = self.streak.as_ref().is_some_and(|streak| streak.is_over(self.wanted));
        let streak = Streak::after(self.streak.take(), now, &member.machine, fault, was_ready);
        if !was_over && streak.is_over(self.wanted) {
            actions.push(Action::Note(format!("{machine}: {}", streak.words())));
        }
        self.streak = Some(streak);
        actions.push(Action::GiveUp { machine, why });
    }

    /// Raises what is due, and others for those that were given up.
    fn fill(
        &mut self,
        now: Duration,
        plan: &dyn Fn(u32) -> Option<Machine>,
        actions: &mut Vec<Action>,
    ) {
        while self.alive() < self.wanted {
            let number = self.released.first().copied().unwrap_or(self.next);
            let Some(machine) = plan(number) else {
                self.readmit(now);
                break;
            };
            let is_endless = || plan(self.next.saturating_add(FAR)).is_some();
            let mut due = now;
            if let Some(streak) = self.streak.as_ref().filter(|_| is_endless()) {
                if streak.is_enough(machine.supply, self.wanted) {
                    break;
                }
                // The first few may have been at the same time.
                let beyond = streak.beyond(self.wanted);
                due += if beyond > 0 { pause(beyond) } else { Duration::ZERO };
            }
            if !self.released.remove(&number) {
                self.next += 1;
            }
            self.members.insert(number, Member::new(machine, due));
        }
        for (&number, member) in &mut self.members {
            if matches!(member.stage, Stage::Due(at) if at <= now) {
                (member.stage, member.begun) = (Stage::Raising, now);
                member.is_direct = None;
                actions.push(Action::Raise { number, machine: member.machine.clone() });
            }
        }
        if let Some(fault) = self.shortage() {
            self.is_over = true;
            actions.push(Action::Fail(fault));
        }
    }

    /// Tries machines again that were given up and may have returned, as many as are wanted, once
    /// others work.
    fn readmit(&mut self, now: Duration) {
        let missing = self.wanted.saturating_sub(self.alive());
        let may_return = |m: &&mut Member| {
            m.stage == Stage::GivenUp && m.returns.is_some_and(|returns| returns <= now)
        };
        let returning = self.members.values_mut().filter(may_return);
        for member in returning.take(if self.was_ready { missing } else { 0 }) {
            member.stage = Stage::Due(now);
        }
    }

    /// Why the machines that are there or may come are too few, where they are.
    fn shortage(&self) -> Option<Fault> {
        let there = |m: &&Member| m.counts() || m.stage == Stage::Leaving;
        let machines = self.members.values().filter(there).count() as u32;
        let need = self.workers_min.min(self.workers);
        let room = self.slots.map(|slots| machines.saturating_mul(slots.max(1)));
        if machines > 0 && room.is_none_or(|room| room >= need) {
            return None;
        }
        let none = || Fault::fix("the pool", "it has no machines", "add some to `pool`");
        let mut fault = self.first_fault.clone().unwrap_or_else(none);
        let is_over = |streak: &&Streak| streak.is_over(self.wanted) && !fault.is_everywhere;
        if let Some(streak) = self.streak.as_ref().filter(is_over) {
            fault.what += &format!("; {}", streak.words());
        }
        if let Some(room) = room.filter(|_| machines > 0) {
            fault.what += &format!(
                "; the machines that are left have room for {}, and `workers.min` is {need}",
                counted(room as usize, "worker")
            );
        }
        Some(fault)
    }

    /// Names once the machines that have not answered while others have.
    fn tell_late(&mut self, now: Duration, actions: &mut Vec<Action>) {
        let Some(opened) = self.opened.filter(|opened| now >= *opened + OTHERS_WITHIN) else {
            return;
        };
        if self.told_late {
            return;
        }
        let silent = |m: &&Member| {
            // One that is raised later, in the place of another, is not what the run begins without.
            let is_new = m.stage == Stage::Raising && !m.was_ready && m.begun <= opened;
            is_new && m.is_direct.is_none() && now >= m.begun + OTHERS_WITHIN
        };
        let names: Vec<&str> =
            self.members.values().filter(silent).map(|m| m.machine.name.as_str()).collect();
        if names.is_empty() {
            return;
        }
        self.told_late = true;
        let then = match self.has_opened_enough() {
            true => "without one that stays silent the run begins, and takes it in when it comes",
            false => "the run waits, for `workers.min` needs more than have answered",
        };
        actions.push(Action::Note(format!("no answer yet from {}; {then}", names.join(", "))));
    }

    /// Whether the machines that have answered can take the fewest workers that are of use.
    fn has_opened_enough(&self) -> bool {
        let opened = self.members.values().filter(|m| m.counts() && m.is_direct.is_some()).count();
        let even = self.workers.div_ceil(self.alive().max(1) as u32).max(1);
        let room = opened as u32 * self.slots.unwrap_or(even).max(1);
        opened > 0 && room >= self.workers_min.min(self.workers)
    }

    /// Machines that count among those that are wanted.
    fn alive(&self) -> usize {
        self.members.values().filter(|member| member.counts()).count()
    }

    /// Has as many from now on. Those go first that are not ready yet, then those with the fewest
    /// processes, the last first.
    fn resize(&mut self, machines: usize, actions: &mut Vec<Action>) {
        self.wanted = machines.max(1);
        // A machine that was refused before may be available now.
        self.streak = None;
        for member in self.members.values_mut().filter(|m| m.stage == Stage::GivenUp) {
            (member.attempts, member.returns) = (0, Some(Duration::ZERO));
        }
        while self.alive() > self.wanted {
            let counting = self.members.iter().filter(|(_, member)| member.counts());
            let rank = |(number, m): &(&u32, &Member)| {
                (m.stage == Stage::Ready, m.agents.len(), std::cmp::Reverse(**number))
            };
            let Some(number) = counting.min_by_key(rank).map(|(number, _)| *number) else { break };
            match self.members.get_mut(&number) {
                Some(member) if matches!(member.stage, Stage::Due(_)) => self.forget(number),
                Some(member) => {
                    member.agents.clear();
                    member.stage = Stage::Releasing;
                    actions.push(Action::Release { number });
                }
                None => {}
            }
        }
    }

    fn is_releasing(&self, number: u32) -> bool {
        self.members.get(&number).is_some_and(|member| member.stage == Stage::Releasing)
    }

    /// Forgets a machine that was released: it can be raised again.
    fn forget(&mut self, number: u32) {
        if self.members.remove(&number).is_some() {
            self.released.insert(number);
        }
    }

    fn ready_members(&self) -> impl Iterator<Item = (u32, &Member)> {
        let ready = self.members.iter().filter(|(_, member)| member.stage == Stage::Ready);
        ready.map(|(number, member)| (*number, member))
    }
}

fn pause(attempts: u32) -> Duration {
    Backoff { first: PAUSE, longest: PAUSE_MAX }.pause(attempts.max(1))
}

#[cfg(test)]
mod tests;
