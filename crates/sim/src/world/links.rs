//! What processes do with links.

use super::{Dial, Event, Timer, World};
use crate::net::{Hole, LinkId, Msg, Pid};
use std::time::Duration;

impl World<'_> {
    /// Connects a process to another, as soon as may be.
    pub fn dial(&mut self, pid: Pid, dial: Dial, generation: Option<u64>) {
        let after = self.coin.about(Duration::from_micros(300));
        self.schedule(self.now + after, pid, Event::Dialing(dial, generation));
    }

    /// Sends a frame; false if the link has ended as far as this end knows.
    pub fn send(&mut self, pid: Pid, link: LinkId, msg: Msg) -> bool {
        self.act(pid);
        self.deliver(pid, link, msg)
    }

    /// Sends a frame that the process's fuse has counted already.
    pub fn deliver(&mut self, pid: Pid, link: LinkId, msg: Msg) -> bool {
        if !self.lives(pid) || !self.is_open(pid, link) {
            return false;
        }
        let end = self.links[link].end(pid);
        let to = self.links[link].ends[1 - end];
        let holes = self.holes_between(pid, to);
        let flights = self.links[link].send(end, msg, self.now, &holes, &mut self.coin);
        for (at, number, msg) in flights {
            self.schedule(at, to, Event::Frame(link, number, msg));
        }
        true
    }

    /// Ends a link from one end.
    pub fn close(&mut self, pid: Pid, link: LinkId) {
        let end = self.links[link].end(pid);
        if std::mem::replace(&mut self.links[link].closed[end], true) {
            return;
        }
        let to = self.links[link].ends[1 - end];
        let holes = self.holes_between(pid, to);
        let soon = self.now + self.links[link].latency();
        let at = self.links[link].arrival(end, soon, &holes);
        self.schedule(at, to, Event::Fin(link));
    }

    fn holes_between(&self, from: Pid, to: Pid) -> Vec<Hole> {
        let out = self.holes.get(&from).filter(|hole| hole.out && hole.until > self.now);
        let into = self.holes.get(&to).filter(|hole| hole.into && hole.until > self.now);
        out.into_iter().chain(into).copied().collect()
    }

    /// Bytes that a process has sent over a link and that are not taken.
    pub fn waiting(&self, pid: Pid, link: LinkId) -> usize {
        self.links[link].waiting[self.links[link].end(pid)]
    }

    pub fn generation(&self, link: LinkId) -> u64 {
        self.links[link].generation
    }

    /// Whether a link has not ended, as far as a process knows.
    pub fn is_open(&self, pid: Pid, link: LinkId) -> bool {
        self.links.get(link).is_some_and(|held| !held.closed[held.end(pid)])
    }

    /// A link on which a process hears nothing for so long has ended.
    pub fn expect(&mut self, pid: Pid, link: LinkId, silence: Duration) {
        let end = self.links[link].end(pid);
        self.links[link].silence[end] = Some((silence, self.now));
        self.timer(pid, silence, Timer::Silent(link));
    }
}
