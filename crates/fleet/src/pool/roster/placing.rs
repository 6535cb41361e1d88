//! Which machine a process goes to. Pure.

use super::{Member, OTHERS_WITHIN, Roster, Stage, Where};
use planaria_protocol::message::Agent;
use std::time::Duration;

/// How long servers wait to know whether all machines can reach each other.
pub(super) const SETTLING: Duration = Duration::from_secs(10);

impl Roster {
    /// Where a process goes, which takes the place; see [`Roster::left`].
    pub fn place(&mut self, now: Duration, agent: Agent) -> Where {
        let found = match agent {
            Agent::Worker(_) => self.room_for_worker(),
            Agent::Server(_) => self.room_for_server(now),
            Agent::Coordinator | Agent::Console => Where::Here,
            // The script's controller says where each of its processes goes; the rest have theirs.
            Agent::Task(_) | Agent::Host | Agent::Controller => Where::Nowhere,
        };
        if let Where::There(number) = found
            && let Some(member) = self.members.get_mut(&number)
        {
            member.agents.insert(agent);
        }
        found
    }

    /// A process has ended, and its place is free.
    pub fn left(&mut self, agent: Agent) {
        for member in self.members.values_mut() {
            member.agents.remove(&agent);
        }
    }

    fn room_for_worker(&self) -> Where {
        let is_server = |m: &Member| has(m, "server") && !has(m, "worker");
        let all_serve = self.members.values().all(is_server);
        let takes = |m: &Member| all_serve || !is_server(m);
        let taking = self.members.values().filter(|m| m.counts() && takes(m));
        let even = self.workers.div_ceil(taking.count().max(1) as u32);
        let slots = self.slots.unwrap_or(even).max(1) as usize;
        let ready = self.ready_members().filter(|(_, m)| takes(m));
        let workers =
            |m: &Member| m.agents.iter().filter(|a| matches!(a, Agent::Worker(_))).count();
        let free = ready.filter(|(_, m)| workers(m) < slots);
        match free.min_by_key(|(number, m)| (workers(m), *number)) {
            Some((number, _)) => Where::There(number),
            None => Where::Nowhere,
        }
    }

    fn room_for_server(&mut self, now: Duration) -> Where {
        if self.servers_here.is_none() {
            // One that could not be had at first is not waited for: it may never come.
            let is_open = |m: &Member| m.is_direct.is_some() || m.attempts > 0;
            let settled = now >= SETTLING
                || self.goes_on_without_silent(now)
                || self.members.values().all(is_open);
            if settled && self.members.values().any(|m| m.is_direct.is_some()) {
                let tunnelled = self.members.values().any(|m| m.is_direct == Some(false));
                self.servers_here = Some(tunnelled);
            }
        }
        match self.servers_here {
            None => return Where::Nowhere,
            Some(true) => return Where::Here,
            Some(false) => {}
        }
        // A machine that is meant for servers is waited for, unless it does not come.
        let is_meant = |m: &&Member| m.counts() && has(m, "server");
        let mut meant = self.members.values().filter(is_meant).peekable();
        let without_silent = self.goes_on_without_silent(now);
        let is_silent = |m: &Member| without_silent && m.is_direct.is_none();
        let may_come = |m: &Member| m.stage != Stage::Ready && m.attempts == 0 && !is_silent(m);
        if now < SETTLING && meant.peek().is_some() && meant.all(may_come) {
            return Where::Nowhere;
        }
        let servers =
            |m: &Member| m.agents.iter().filter(|a| matches!(a, Agent::Server(_))).count();
        let best = self
            .ready_members()
            .filter(|(_, m)| m.is_direct == Some(true))
            .min_by_key(|(number, m)| (!has(m, "server"), servers(m), *number));
        match best {
            Some((number, _)) => Where::There(number),
            None => Where::Nowhere,
        }
    }

    /// Whether machines that have not answered yet are not waited for: the others suffice.
    fn goes_on_without_silent(&self, now: Duration) -> bool {
        let waited = self.opened.is_some_and(|opened| now >= opened + OTHERS_WITHIN);
        waited && self.has_opened_enough()
    }
}

fn has(member: &Member, group: &str) -> bool {
    member.machine.groups.iter().any(|known| known == group)
}
