//! What faults do to processes and links.

use super::{Event, FATE, Timer, World};
use crate::faults::{Fault, Whom};
use crate::net::{Hole, Link, LinkId, Mishap, Pid};
use planaria_protocol::message::Agent;
use std::time::Duration;

/// Injects a fault. Returns its name, unless it found no target.
pub(super) fn inject(world: &mut World<'_>, fault: &Fault) -> Option<&'static str> {
    match fault {
        Fault::Kill(whom, fuse) => {
            let pid = find(world, *whom)?;
            if *fuse == 0 {
                world.kill(pid)
            } else {
                world.light(pid, *fuse)
            }
            Some("kill")
        }
        Fault::Pause(whom, time) => {
            let pid = find(world, *whom)?;
            world.pause(pid, *time);
            Some("pause")
        }
        Fault::Slow(times, time) => {
            let pid = find(world, Whom::Worker)?;
            world.slow(pid, *times, *time);
            Some("slow")
        }
        Fault::Frame(mishap) => {
            let (link, end) = link(world)?;
            world.mishap(link, end, *mishap);
            Some(match mishap {
                Mishap::Drop => "drop",
                Mishap::Double => "double",
                Mishap::Late => "reorder",
                Mishap::Delay(_) => "delay",
            })
        }
        Fault::Cut => {
            let (link, _) = link(world)?;
            world.cut(link);
            Some("cut")
        }
        Fault::Hole(whom, hole) => {
            let pid = find(world, *whom)?;
            let until = world.now + hole.until;
            world.dig(pid, Hole { until, ..*hole });
            Some("partition")
        }
        Fault::KillAll => {
            world.kill_everything();
            Some("kill all")
        }
        Fault::Stop => {
            world.ask(|foreground, world| foreground.stop(world));
            Some("stop")
        }
        Fault::Scale(workers) => {
            let workers = *workers;
            world.ask(|foreground, world| foreground.scale(world, workers));
            Some("scale")
        }
        Fault::FullDisk(_) => {
            world.disk.space.fill(true);
            Some("full disk")
        }
        Fault::EmptyDisk => {
            world.disk.space.fill(false);
            None
        }
        Fault::Damage(tears) => {
            let pick = world.coin.number();
            world.disk.damage(pick, *tears).then_some("damage")
        }
        Fault::DamageRecord => {
            let pick = world.coin.number();
            let struck = world.disk.damage_record(pick);
            world.verdict.record_lost();
            struck.then_some("damaged record")
        }
        Fault::Delete => {
            world.disk.delete_checkpoints();
            Some("deleted checkpoints")
        }
        Fault::LoseKept => {
            world.disk.lose_kept();
            world.verdict.record_lost();
            Some("lost state")
        }
    }
}

fn find(world: &mut World<'_>, whom: Whom) -> Option<Pid> {
    let is = |agent: &Agent| match whom {
        Whom::Coordinator => *agent == Agent::Coordinator,
        Whom::Server => matches!(agent, Agent::Server(_)),
        Whom::Worker => matches!(agent, Agent::Worker(_)),
        Whom::Foreground => *agent == Agent::Console,
    };
    let all: Vec<Pid> =
        world.everyone().into_iter().filter(|(_, a)| is(a)).map(|(pid, _)| pid).collect();
    (!all.is_empty()).then(|| all[world.coin.below(all.len() as u64) as usize])
}

fn link(world: &mut World<'_>) -> Option<(usize, usize)> {
    let open = world.open_links();
    if open.is_empty() {
        return None;
    }
    let link = open[world.coin.below(open.len() as u64) as usize];
    Some((link, world.coin.below(2) as usize))
}

impl World<'_> {
    /// Lets a process suffer.
    pub(super) fn dig(&mut self, pid: Pid, hole: Hole) {
        self.holes.insert(pid, hole);
    }

    /// Lets a process end after it has done so many more things that others see.
    pub(super) fn light(&mut self, pid: Pid, fuse: u32) {
        self.fuse(pid).light(fuse);
    }

    /// Suspends a process for a while.
    pub(super) fn pause(&mut self, pid: Pid, time: Duration) {
        if let Some(process) = self.processes.get_mut(&pid) {
            process.paused = true;
            self.schedule(self.now + time, FATE, Event::Continue(pid));
        }
    }

    /// Slows a process down for a while.
    pub(super) fn slow(&mut self, pid: Pid, times: u32, time: Duration) {
        if let Some(process) = self.processes.get_mut(&pid) {
            process.slow = times;
            self.schedule(self.now + time, FATE, Event::Hurry(pid));
        }
    }

    pub(super) fn hurry(&mut self, pid: Pid) {
        if let Some(process) = self.processes.get_mut(&pid) {
            process.slow = 1;
        }
    }

    pub(super) fn wake(&mut self, pid: Pid) {
        let Some(process) = self.processes.get_mut(&pid) else { return };
        if !std::mem::replace(&mut process.paused, false) {
            return;
        }
        // What has come is read before it is noticed that nothing had come for long.
        let is_silence = |event: &Event| matches!(event, Event::Timer(Timer::Silent(_)));
        let (silences, others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut process.backlog).into_iter().partition(is_silence);
        for event in others.into_iter().chain(silences) {
            self.happen(pid, event);
        }
    }

    /// Links that are open, with who made and who took them.
    pub(super) fn open_links(&self) -> Vec<LinkId> {
        let open = |link: &&Link| link.closed == [false, false];
        let links = self.links.iter().enumerate();
        links.filter(|(_, link)| open(link)).map(|(id, _)| id).collect()
    }

    pub(super) fn cut(&mut self, link: LinkId) {
        for pid in self.links[link].ends {
            let end = self.links[link].end(pid);
            if !self.links[link].closed[end] {
                self.schedule(self.now, pid, Event::Fin(link));
            }
        }
    }

    /// Lets something happen to the next frame of a link.
    pub(super) fn mishap(&mut self, link: LinkId, end: usize, mishap: Mishap) {
        self.links[link].mishap[end] = Some(mishap);
    }
}
