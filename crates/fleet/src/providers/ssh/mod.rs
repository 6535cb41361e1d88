//! Machines that are there already, by the OpenSSH client.
//!
//! Owns the connections to them, one for each machine whose channel is open: the same connection
//! carries the channel, commands beside it and the tunnel. Names, keys, agents, jump hosts and known
//! hosts are the client's own business. A machine is never made or ended, only what a run has on it:
//! a host process, and `~/.cache/planaria/runs/RUN`. Programs that were delivered stay.
//!
//! # Layout
//! - [`settings`]: which hosts; [`command`]: how `ssh` is called
//! - [`script`]: what runs there before anything of ours does; [`session`]: the talk with it
//! - [`needs`]: whether the program can run there; [`explain`]: what went wrong, in words
//! - `doctor`: what is needed on this machine

pub mod command;
mod doctor;
pub mod explain;
pub mod needs;
pub mod script;
pub mod session;
pub mod settings;

use settings::host_and_port;
pub use settings::{Host, HostKeys, Settings, machine};

use crate::carrier::{Carrier, End};
use crate::channel::{Channel, StderrTail};
use crate::finding::Finding;
use crate::messages::questions::{Peer, PeerState};
use crate::program::Program;
use crate::provider::{Call, Ends, Fault, Leak, Machine, Made, Provider, Ran, Tag};
use crate::providers::{Kind, Place, Purpose};
use crate::shell::quoted;
use crate::sockets::folder::SocketFolder;
use crate::sockets::table;
use command::Sharing;
use explain::Resolved;
use planaria_recipe::pool::providers::ssh as recipe;
use script::Line;
use session::{Opened, Patience, Trouble};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Hosts that are asked at a time.
const ASKED_AT_ONCE: usize = 32;
/// How long a command's connection may take to end after its output has.
const WORDS_WITHIN: Duration = Duration::from_secs(2);
/// How long a command of ours on this machine may take.
const HERE: Patience =
    Patience { connecting: Duration::from_secs(10), waiting: Duration::from_secs(10) };

/// Machines that are reached by ssh.
pub struct Ssh {
    settings: Settings,
    sockets: SocketFolder,
    /// The connection of each machine whose channel was opened, by the machine's name.
    open: Mutex<BTreeMap<String, Connection>>,
    /// The `ssh` of each machine whose channel is being opened, by the machine's name.
    opening: Mutex<BTreeMap<String, End>>,
}

#[derive(Clone)]
struct Connection {
    socket: PathBuf,
    end: End,
}

impl Ssh {
    /// Machines as the settings say. Nothing is tried yet.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            sockets: SocketFolder::default(),
            open: Mutex::default(),
            opening: Mutex::default(),
        }
    }

    /// The host that a machine is.
    fn host(&self, machine: &Machine) -> Host {
        let mut hosts = self.settings.hosts.iter();
        let known = hosts.find(|host| settings::machine(host) == *machine);
        known.cloned().unwrap_or_else(|| settings::host_of(machine))
    }

    /// The connection of a machine, if it is open.
    fn connection(&self, machine: &Machine) -> Option<Connection> {
        let open = self.open.lock().expect("no thread panics with the connections");
        open.get(&machine.name).filter(|connection| connection.end.is_running()).cloned()
    }

    fn patience(&self) -> Patience {
        let waiting = Duration::from_secs(self.settings.answer_seconds);
        let connecting = Duration::from_secs(self.settings.connect_seconds) + waiting;
        Patience { connecting, waiting }
    }

    fn start(&self, host: &Host, command: Command) -> Result<Carrier, Fault> {
        if let Some(fault) = settings::fault(host) {
            return Err(fault);
        }
        Carrier::start(command).map_err(|e| explain::not_started(&self.settings, &host.name, &e))
    }

    /// Starts `ssh` to run a script, on the machine's open connection where there is one.
    fn start_script(&self, machine: &Machine, host: &Host, script: &str) -> Result<Carrier, Fault> {
        let connection = self.connection(machine);
        let socket = connection.as_ref().map(|connection| connection.socket.as_path());
        let sharing = socket.map_or(Sharing::Apart, Sharing::Use);
        let command = command::ssh(&self.settings, host, sharing, &script::reading(script));
        self.start(host, command)
    }

    /// Runs a script to its end and gives what it said.
    fn ask(&self, machine: &Machine, script: String) -> Result<Vec<Line>, Fault> {
        let host = self.host(machine);
        let carrier = self.start_script(machine, &host, &script)?;
        let words = carrier.stderr_tail.clone();
        let said = session::ask(carrier, script, self.patience());
        let said = said.map_err(|trouble| self.fault(&host, trouble, &words))?;
        let lines: Vec<Line> =
            String::from_utf8_lossy(&said).lines().filter_map(script::read).collect();
        let ends = [Line::Counted, Line::Removed];
        if lines.iter().any(|line| ends.contains(line) || matches!(line, Line::Kept(_))) {
            return Ok(lines);
        }
        Err(self.fault(&host, Trouble::Ended, &words))
    }

    /// Asks all hosts which runs there are, several at a time.
    fn census(&self) -> Result<Vec<(Machine, Vec<Line>)>, Fault> {
        let hosts = &self.settings.hosts;
        let (next, found) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
        let work = || {
            while let Some((number, host)) = {
                let number = next.fetch_add(1, Ordering::Relaxed);
                hosts.get(number).map(|host| (number, host))
            } {
                let said = self.ask(&settings::machine(host), script::census());
                found.lock().expect("no thread panics with an answer").insert(number, said);
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..hosts.len().min(ASKED_AT_ONCE) {
                scope.spawn(work);
            }
        });
        let found = found.into_inner().expect("no thread panics with an answer");
        let mut counted = Vec::new();
        for (number, said) in found {
            counted.push((settings::machine(&hosts[number]), said?));
        }
        Ok(counted)
    }

    /// What a talk that came to nothing means.
    fn fault(&self, host: &Host, trouble: Trouble, words: &StderrTail) -> Fault {
        let name = host.name.as_str();
        match trouble {
            Trouble::Start(why) => explain::not_started(&self.settings, name, &why),
            Trouble::Ended => {
                let said = words.text();
                let resolved = self.resolve(host, &said);
                explain::explain(&self.settings, host, &resolved, &said)
            }
            Trouble::Silence(time, has_spoken) => {
                let whom = host.whom();
                let what = match has_spoken {
                    true => {
                        format!("{whom} answered and then hung: nothing for {} s", time.as_secs())
                    }
                    false => format!("{whom} did not answer within {} s", time.as_secs()),
                };
                let hint = "look at its load and its disks; log in by hand and see";
                Fault { hint: Some(hint.into()), ..Fault::retry(name, what) }
            }
            Trouble::Mismatch(found) => Fault::replace(name, found.what, found.hint),
            Trouble::Undelivered(kind, what) => explain::undelivered(host, &kind, &what),
            Trouble::Program(why) => {
                let what = format!("the program cannot be read here: {why}");
                Fault::fix(name, what, "do not remove the program's file while it is used")
            }
        }
    }

    /// How the user's configuration has a host, where that matters to what was said.
    fn resolve(&self, host: &Host, said: &str) -> Resolved {
        let asked = explain::is_about_key(said).then(|| {
            let carrier = self.start(host, command::resolve(&self.settings, host)).ok()?;
            session::ask(carrier, String::new(), HERE).ok()
        });
        let text = asked.flatten().unwrap_or_default();
        Resolved::parse(&self.settings, host, &String::from_utf8_lossy(&text))
    }

    /// Forgets a machine's connection, and ends it.
    fn hang_up(&self, machine: &Machine) {
        let mut open = self.open.lock().expect("no thread panics with the connections");
        if let Some(connection) = open.remove(&machine.name) {
            connection.end.kill();
            let _ = std::fs::remove_file(connection.socket);
        }
    }
}

impl Kind for Ssh {
    type Settings = recipe::Settings;
    const IS_ALWAYS_ASKED: bool = false;

    fn make(settings: &Self::Settings, purpose: Purpose) -> Result<Self, Fault> {
        Ok(Self::new(Settings::of(settings, purpose.hidden)?))
    }

    fn needs() -> Vec<Finding> {
        doctor::needs()
    }

    /// `SSH_CONNECTION` of sshd: `client port server port`.
    fn ends() -> Option<Ends> {
        Some(ends(&std::env::var("SSH_CONNECTION").ok()?))
    }

    /// Each host by itself.
    fn places(settings: &Self::Settings) -> Vec<Place<Self::Settings>> {
        let ssh = &settings.ssh;
        let place = |entry: &recipe::HostEntry| {
            let host = entry.spelled_out().ok()?;
            // The time it may take to connect does not make it another place.
            let way = (&ssh.config, &ssh.known_hosts, ssh.host_keys);
            let id = format!("{}\n{host:?} {way:?}", host.name);
            let settings = recipe::Settings { hosts: vec![entry.clone()], ssh: ssh.clone() };
            Some(Place { id, ..Place::new(host.name, settings) })
        };
        settings.hosts.iter().filter_map(place).collect()
    }
}

impl Provider for Ssh {
    fn name(&self) -> &'static str {
        "ssh"
    }

    fn check(&self) -> Result<(), Fault> {
        if let Some(fault) = self.settings.fault() {
            return Err(fault);
        }
        let started = Carrier::start(command::version(&self.settings));
        let carrier = started.map_err(|e| explain::not_started(&self.settings, "ssh", &e))?;
        let (end, words) = (carrier.end.clone(), carrier.stderr_tail.clone());
        drop(carrier);
        if end.wait(HERE.connecting).is_some_and(|ending| ending.is_well()) {
            return Ok(());
        }
        end.kill();
        let why = std::io::Error::other(words.text());
        Err(explain::not_started(&self.settings, "ssh", &why))
    }

    fn capacity(&self) -> Option<usize> {
        Some(self.settings.hosts.len())
    }

    fn plan(&self, _run: &Tag, number: u32) -> Option<Machine> {
        self.settings.hosts.get(number as usize).map(settings::machine)
    }

    fn create(&self, _run: &Tag, _machine: &Machine) -> Result<Made, Fault> {
        // It is there already; whether it can be reached is seen when it is opened.
        Ok(Made::There)
    }

    fn open(&self, run: &Tag, machine: &Machine, program: &Program) -> Result<Channel, Fault> {
        let host = self.host(machine);
        self.hang_up(machine);
        let socket = self.sockets.next().map_err(|e| {
            let what = format!("cannot make a folder for connections: {e}");
            Fault::fix("ssh", what, "check that the temporary folder can be written to")
        })?;
        let script = script::host(program, run);
        let remote = script::reading_host(&script, run);
        let command = command::ssh(&self.settings, &host, Sharing::Offer(&socket), &remote);
        let carrier = self.start(&host, command)?;
        let words = carrier.stderr_tail.clone();
        let opening = || self.opening.lock().expect("no thread panics with the attempts");
        opening().insert(machine.name.clone(), carrier.end.clone());
        let opened = session::open(carrier, script, program, self.patience(), true);
        let was_abandoned = opening().remove(&machine.name).is_none();
        let opened = opened.map_err(|trouble| match was_abandoned {
            true => {
                let what = format!("{} had not answered, and is not needed any more", host.whom());
                Fault { is_untouched: true, ..Fault::retry(&machine.name, what) }
            }
            false => self.fault(&host, trouble, &words),
        })?;
        let Opened { writing, reading, stderr_tail, end } = opened;
        let mut open = self.open.lock().expect("no thread panics with the connections");
        open.insert(machine.name.clone(), Connection { socket, end: end.clone() });
        Ok(end.channel(Box::new(reading), writing, stderr_tail))
    }

    fn run(&self, _run: &Tag, machine: &Machine, call: &Call<'_>) -> Result<Ran, Fault> {
        let Call { program, arguments, input, within } = *call;
        let host = self.host(machine);
        let script = script::command(program, arguments, within.as_secs().max(1));
        let carrier = self.start_script(machine, &host, &script)?;
        let (words, end) = (carrier.stderr_tail.clone(), carrier.end.clone());
        let fault = |trouble| self.fault(&host, trouble, &words);
        let opened = session::open(carrier, script, program, self.patience(), false);
        let opened = opened.map_err(fault)?;
        let patience = Patience { connecting: within, waiting: within };
        let said =
            session::feed(opened, input.to_vec(), patience).map_err(|trouble| match trouble {
                Trouble::Silence(..) => call.timed_out(&host.name),
                other => fault(other),
            })?;
        let (stdout, code) = script::ended(&said).ok_or_else(|| fault(Trouble::Ended))?;
        // What it wrote to standard error may come after the last of its output.
        end.wait(WORDS_WITHIN);
        Ok(Ran { code, stdout: stdout.to_vec(), stderr: words.text().into_bytes() })
    }

    fn list(&self, run: &Tag) -> Result<Vec<Machine>, Fault> {
        let is_of = |line: &Line| matches!(line, Line::Folder(tag) | Line::Host(tag) if tag == run);
        let census = self.census()?.into_iter();
        Ok(census
            .filter(|(_, lines)| lines.iter().any(is_of))
            .map(|(machine, _)| machine)
            .collect())
    }

    fn abandon(&self, machine: &Machine) {
        let mut opening = self.opening.lock().expect("no thread panics with the attempts");
        // One that is connected may have begun there.
        let is_silent = |end: &mut End| {
            let (peers, _) = table::peers(end.pid());
            let is_connecting = |peer: &Peer| peer.state == PeerState::Connecting;
            !peers.is_empty() && peers.iter().all(is_connecting)
        };
        if let Entry::Occupied(mut ssh) = opening.entry(machine.name.clone())
            && is_silent(ssh.get_mut())
        {
            ssh.remove().kill();
        }
    }

    fn destroy(&self, run: &Tag, machine: &Machine) -> Result<(), Fault> {
        let lines = self.ask(machine, script::removal(run))?;
        self.hang_up(machine);
        for line in lines {
            if let Line::Kept(why) = line {
                let what = format!("the run's folder there cannot be removed: {why}");
                let hint = format!("remove `~/{}/runs/{run}` there", crate::home::FOLDER);
                return Err(Fault { hint: Some(hint), ..Fault::retry(&machine.name, what) });
            }
        }
        Ok(())
    }

    fn leaks(&self) -> Result<Vec<Leak>, Fault> {
        let mut leaks = Vec::new();
        for (machine, lines) in self.census()? {
            let runs: BTreeSet<&Tag> = lines.iter().filter_map(tag).collect();
            for run in runs {
                let busy = lines.contains(&Line::Host(run.clone()));
                let state = if busy { "host running" } else { "folder left" };
                let what = format!("{run} on {} ({state})", machine.name);
                leaks.push(Leak { run: run.to_string(), what, machine: machine.clone(), busy });
            }
        }
        Ok(leaks)
    }

    fn tunnel(
        &self,
        _run: &Tag,
        machine: &Machine,
        there: &str,
        gate: &Path,
    ) -> Result<bool, Fault> {
        let gate = gate.display().to_string();
        let mut not_forwarded = [there, &gate].into_iter().filter_map(command::not_forwarded);
        if let Some(why) = not_forwarded.next() {
            let hint = "give the recipe a shorter `name`, or the machine a way to this one";
            return Err(Fault::replace(&machine.name, format!("no tunnel: {why}"), hint));
        }
        let host = self.host(machine);
        let no = |what: String| {
            let hint = "the machine's sshd must allow forwarding (`AllowTcpForwarding yes` and \
                        `AllowStreamLocalForwarding yes`), or the machine must reach this one by \
                        itself";
            Fault::replace(&machine.name, what, hint)
        };
        let Some(connection) = self.connection(machine) else {
            return Err(Fault::retry(&machine.name, "there is no open connection for a tunnel"));
        };
        let command = command::forward(&self.settings, &connection.socket, there, &gate);
        let carrier = self.start(&host, command)?;
        let (end, words) = (carrier.end.clone(), carrier.stderr_tail.clone());
        let asked = session::ask(carrier, String::new(), HERE);
        match asked.is_ok() && end.wait(HERE.waiting).is_some_and(|ending| ending.is_well()) {
            true => Ok(true),
            false => Err(no(format!("no tunnel: {}", words.text()))),
        }
    }

    fn leaves_with_host(&self, _machine: &Machine) -> bool {
        true
    }

    fn inventory(&self, machine: &Machine) -> String {
        let host = self.host(machine);
        let mut words = vec![format!("ansible_host={}", host.host)];
        words.extend(host.user.iter().map(|user| format!("ansible_user={user}")));
        words.extend(host.port.iter().map(|port| format!("ansible_port={port}")));
        // Words that need no quotes have none: ansible takes several strings in quotes, one after
        // another, for one of Python's.
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:@%+,~".contains(c);
        let options: Vec<String> = command::common(&self.settings, &host)
            .into_iter()
            .map(|word| match word.chars().all(is_plain) && !word.is_empty() {
                true => word,
                false => quoted(&word),
            })
            .collect();
        // In an inventory a value with spaces is in quotes, in which a backslash escapes.
        let options = options.join(" ").replace('\\', r"\\").replace('"', r#"\""#);
        words.push(format!("ansible_ssh_common_args=\"{options}\""));
        words.join(" ")
    }
}

fn ends(connection: &str) -> Ends {
    let words: Vec<&str> = connection.split(' ').collect();
    let address = |at: usize| words.get(at)?.parse::<IpAddr>().ok().map(|a| a.to_string());
    Ends { controller: address(0), own: address(2) }
}

fn tag(line: &Line) -> Option<&Tag> {
    match line {
        Line::Folder(run) | Line::Host(run) => Some(run),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sshd_tells_both_ends() {
        let known = |text: &str| {
            let Ends { controller, own } = ends(text);
            (controller.unwrap_or_default(), own.unwrap_or_default())
        };
        assert_eq!(known("10.0.0.1 4711 10.0.0.2 22"), ("10.0.0.1".into(), "10.0.0.2".into()));
        assert_eq!(known("fe80::1 4711 UNKNOWN 22"), ("fe80::1".into(), String::new()));
        assert_eq!(known(""), (String::new(), String::new()));
    }
}
