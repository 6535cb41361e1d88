//! What faults do to processes and links.

use super::{Event, FATE, Timer, World};
use crate::net::{Hole, Link, LinkId, Mishap, Pid};
use std::time::Duration;

impl World<'_> {
    /// Lets a process suffer.
    pub fn dig(&mut self, pid: Pid, hole: Hole) {
        self.holes.insert(pid, hole);
    }

    /// Lets a process end after it has done so many more things that others see.
    pub fn light(&mut self, pid: Pid, fuse: u32) {
        self.fuse(pid).light(fuse);
    }

    /// Suspends a process for a while.
    pub fn pause(&mut self, pid: Pid, time: Duration) {
        if let Some(process) = self.processes.get_mut(&pid) {
            process.paused = true;
            self.schedule(self.now + time, FATE, Event::Continue(pid));
        }
    }

    /// Slows a process down for a while.
    pub fn slow(&mut self, pid: Pid, times: u32, time: Duration) {
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
    pub fn open_links(&self) -> Vec<LinkId> {
        let open = |link: &&Link| link.closed == [false, false];
        let links = self.links.iter().enumerate();
        links.filter(|(_, link)| open(link)).map(|(id, _)| id).collect()
    }

    /// Cuts a link.
    pub fn cut(&mut self, link: LinkId) {
        for pid in self.links[link].ends {
            let end = self.links[link].end(pid);
            if !self.links[link].closed[end] {
                self.schedule(self.now, pid, Event::Fin(link));
            }
        }
    }

    /// Lets something happen to the next frame of a link.
    pub fn mishap(&mut self, link: LinkId, end: usize, mishap: Mishap) {
        self.links[link].mishap[end] = Some(mishap);
    }
}
