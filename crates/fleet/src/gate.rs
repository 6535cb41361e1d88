//! The way from a machine that reaches nothing by itself to processes of the run.
//!
//! Owns a Unix socket on the controller's machine, for its user only, to which a provider leads what
//! comes from the machine. Each connection asks for an address; it is let through to the run's
//! coordinator and servers and to nothing else, so that the machine gains no way into the
//! controller's network. A server's machine may lie about its own address, so a server elsewhere
//! first has to show its certificate. Never reads what goes over a link.

use crate::provider::LOOPBACK;
use crate::sockets::folder::SocketFolder;
use crate::sockets::table;
use planaria_protocol::gate::{answer, asked};
use planaria_protocol::message::Agent;
use planaria_protocol::{Credentials, identify};
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::Builder;
use std::time::Duration;

/// Links through a gate at a time: each has two threads here.
const LINKS_MAX: usize = 512;
/// How long a connection may take to say where it wants to go.
const ASK_WITHIN: Duration = Duration::from_secs(5);
/// How long the other process may take to answer.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// Bytes that are passed on at a time.
const PIECE_BYTES: usize = 128 << 10;

/// A gate, opened when the first machine needs it and closed with this.
#[derive(Default)]
pub struct Gate {
    folder: SocketFolder,
    open: Mutex<Option<Open>>,
    servers: Servers,
    credentials: Arc<OnceLock<Credentials>>,
}

/// By the numbers of their processes.
type Servers = Arc<Mutex<BTreeMap<u32, Server>>>;

struct Open {
    path: PathBuf,
    listener: Arc<UnixListener>,
}

/// A server of the run on another machine.
struct Server {
    /// The machine's address, as it says itself.
    host: String,
    agent: Agent,
    machine: String,
}

/// Where links may lead.
struct Targets {
    /// The port of the run's coordinator, on this machine.
    coordinator: u16,
    servers: Servers,
    credentials: Arc<OnceLock<Credentials>>,
}

impl Gate {
    /// By what servers on other machines are asked who they are; without it no link leads to them.
    pub fn identify_by(&self, credentials: Credentials) {
        // A run's credentials stay: only the certificate in them is renewed.
        let _ = self.credentials.set(credentials);
    }

    /// The gate's socket; the run's coordinator listens on this port.
    pub fn open(&self, coordinator: u16) -> io::Result<PathBuf> {
        let mut open = self.open.lock().expect("no thread panics with the gate");
        if let Some(open) = &*open {
            return Ok(open.path.clone());
        }
        let path = self.folder.next()?;
        let listener = Arc::new(UnixListener::bind(&path)?);
        let waiting = listener.clone();
        let targets = Arc::new(self.targets(coordinator));
        Builder::new().name("gate".into()).spawn(move || keep(&waiting, &targets))?;
        *open = Some(Open { path: path.clone(), listener });
        Ok(path)
    }

    fn targets(&self, coordinator: u16) -> Targets {
        let (servers, credentials) = (self.servers.clone(), self.credentials.clone());
        Targets { coordinator, servers, credentials }
    }

    /// A server runs on another machine, which others reach at `host`.
    pub fn serves(&self, process: u32, host: &str, agent: Agent, machine: &str) {
        let server = Server { host: host.to_owned(), agent, machine: machine.to_owned() };
        self.servers.lock().expect("no thread panics with the servers").insert(process, server);
    }

    /// A process has ended.
    pub fn ended(&self, process: u32) {
        self.servers.lock().expect("no thread panics with the servers").remove(&process);
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        let open = self.open.get_mut().expect("no thread panics with the gate");
        if let Some(open) = open.take() {
            // The thread that waits for connections finds the end.
            let _ = rustix::net::shutdown(&*open.listener, rustix::net::Shutdown::Both);
        }
    }
}

/// Lets connections through until the gate is closed.
fn keep(listener: &UnixListener, targets: &Arc<Targets>) {
    let links = Arc::new(AtomicUsize::new(0));
    while let Ok((stream, _)) = listener.accept() {
        let (links, targets) = (links.clone(), targets.clone());
        if links.fetch_add(1, Ordering::SeqCst) >= LINKS_MAX {
            links.fetch_sub(1, Ordering::SeqCst);
            continue;
        }
        let counted = links.clone();
        let work = move || {
            // Why a link came to nothing is told to the process that asked for it.
            let _ = serve(stream, &targets);
            links.fetch_sub(1, Ordering::SeqCst);
        };
        if Builder::new().name("gate-link".into()).spawn(work).is_err() {
            counted.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

fn serve(mut stream: UnixStream, targets: &Targets) -> io::Result<()> {
    stream.set_read_timeout(Some(ASK_WITHIN))?;
    stream.set_write_timeout(Some(ASK_WITHIN))?;
    let address = asked(&mut stream)?;
    let there = match targets.of(&address).and_then(reach) {
        Ok(there) => there,
        Err(why) => return answer(&mut stream, Err(&why)),
    };
    answer(&mut stream, Ok(()))?;
    stream.set_read_timeout(None)?;
    stream.set_write_timeout(None)?;
    there.set_nodelay(true)?;
    pass_on(stream, there)
}

impl Targets {
    /// Where an address of a process of the run leads, or why it is let nowhere.
    fn of(&self, address: &str) -> Result<SocketAddr, String> {
        let no = || format!("no process of this run listens at `{address}`");
        let (host, port) = address.rsplit_once(':').ok_or_else(no)?;
        let port: u16 = port.parse().map_err(|_| no())?;
        let here = || SocketAddr::new(LOOPBACK.parse().expect("an address"), port);
        if port == self.coordinator {
            return Ok(here());
        }
        if let Some(there) = self.elsewhere(host, port) {
            return Ok(there);
        }
        match table::child_listens(port) {
            true => Ok(here()),
            false => Err(no()),
        }
    }

    /// The address of a server on another machine, where the process that listens there proves to be
    /// it.
    fn elsewhere(&self, host: &str, port: u16) -> Option<SocketAddr> {
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let ip: IpAddr = bare.parse().ok()?;
        if ip.is_loopback() || ip.is_unspecified() {
            return None;
        }
        let there = SocketAddr::new(ip, port);
        self.is_server(host, there).then_some(there)
    }

    /// Whether a server whose machine says to be `host` listens there, by its certificate.
    fn is_server(&self, host: &str, there: SocketAddr) -> bool {
        let is_one = |test: &dyn Fn(&Server) -> bool| {
            let servers = self.servers.lock().expect("no thread panics with the servers");
            servers.values().any(|server| server.host == host && test(server))
        };
        // Nothing is asked at an address where no server claims to be.
        if !is_one(&|_| true) {
            return false;
        }
        let Some(shown) = self.credentials.get().and_then(|ours| identify(there, ours).ok()) else {
            return false;
        };
        is_one(&|server| {
            (server.agent, Some(&server.machine)) == (shown.agent, shown.machine.as_ref())
        })
    }
}

fn reach(target: SocketAddr) -> Result<TcpStream, String> {
    TcpStream::connect_timeout(&target, CONNECT_WITHIN).map_err(|e| format!("{target}: {e}"))
}

/// Until both ends have said all.
fn pass_on(from: UnixStream, to: TcpStream) -> io::Result<()> {
    let (back_from, back_to) = (to.try_clone()?, from.try_clone()?);
    let back = move || {
        copy(&back_from, &back_to);
        let _ = back_to.shutdown(Shutdown::Write);
    };
    let back = Builder::new().name("gate-link".into()).spawn(back)?;
    copy(&from, &to);
    let _ = to.shutdown(Shutdown::Write);
    let _ = back.join();
    Ok(())
}

/// A reset is an end as well.
fn copy(mut from: impl Read, mut to: impl Write) {
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        match from.read(&mut piece) {
            Ok(0) => return,
            Ok(read) if to.write_all(&piece[..read]).is_ok() => {}
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use planaria_protocol::Secret;
    use planaria_protocol::tls::Authority;
    use std::net::TcpListener;

    fn through(gate: &std::path::Path, address: &str) -> (UnixStream, String) {
        let mut stream = UnixStream::connect(gate).unwrap();
        stream.write_all(&[&[address.len() as u8], address.as_bytes()].concat()).unwrap();
        let why = asked(&mut stream).unwrap();
        (stream, why)
    }

    #[test]
    fn a_gate_leads_to_the_coordinator_and_nowhere_else() {
        let gate = Gate::default();
        let (ours, others) = (TcpListener::bind("127.0.0.1:0"), TcpListener::bind("127.0.0.1:0"));
        let (ours, others) = (ours.unwrap(), others.unwrap());
        let port = ours.local_addr().unwrap().port();
        let path = gate.open(port).unwrap();
        use std::os::unix::fs::PermissionsExt;
        let folder = std::fs::metadata(path.parent().unwrap()).unwrap();
        assert_eq!(folder.permissions().mode() & 0o777, 0o700);
        // What a machine calls this one does not matter, only the process.
        let (mut stream, why) = through(&path, &format!("lab-1:{port}"));
        assert_eq!(why, "");
        let mut there = ours.accept().unwrap().0;
        stream.write_all(b"hello").unwrap();
        let mut said = [0; 5];
        there.read_exact(&mut said).unwrap();
        assert_eq!(&said, b"hello");
        drop(there);
        assert_eq!(stream.read(&mut said).unwrap(), 0, "an end is passed on");
        let other = others.local_addr().unwrap();
        for address in [other.to_string(), "10.0.0.1:22".into(), "lab".into(), "x:y".into()] {
            let (_, why) = through(&path, &address);
            assert_eq!(why, format!("no process of this run listens at `{address}`"));
        }
        drop(gate);
        assert!(UnixStream::connect(&path).is_err(), "it is closed");
    }

    #[test]
    fn a_machine_that_claims_the_address_of_another_leads_nowhere() {
        let authority = Authority::new("run", 1.8e9).unwrap();
        let credentials = |agent, machine| {
            let trust = authority.issue(agent, machine, Duration::ZERO).unwrap();
            Credentials::new(Secret::from_hex(&"ab".repeat(32)).unwrap(), Some(&trust), None)
                .unwrap()
        };
        let listening = |credentials: Option<Credentials>| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let there = listener.local_addr().unwrap();
            std::thread::spawn(move || {
                let (stream, _) = listener.accept().unwrap();
                credentials.map(|own| planaria_protocol::accept(stream, &own, 0).is_ok())
            });
            there
        };
        let gate = Gate::default();
        gate.identify_by(credentials(Agent::Console, None));
        gate.serves(7, "10.0.0.7", Agent::Server(0), "m1");
        let targets = gate.targets(1);
        let leads = |host: &str, own| targets.is_server(host, listening(own));
        let server = |machine| Some(credentials(Agent::Server(0), Some(machine)));
        assert!(leads("10.0.0.7", server("m1")));
        assert!(!leads("10.0.0.8", server("m1")), "an address where no server claims to be");
        assert!(!leads("10.0.0.7", server("m2")), "a server of another machine");
        assert!(!leads("10.0.0.7", Some(credentials(Agent::Worker(0), Some("m1")))));
        assert!(!leads("10.0.0.7", None), "another service of the controller's network");
        gate.ended(7);
        assert!(!leads("10.0.0.7", server("m1")), "a server that has ended");
    }

    #[test]
    fn a_gate_leads_to_processes_that_were_started_here() {
        let listens = "import socket,sys; s=socket.create_server(('127.0.0.1',0)); \
                       print(s.getsockname()[1],flush=True); s.accept(); sys.stdin.read()";
        let mut python = std::process::Command::new("python3");
        python.args(["-c", listens]);
        python.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        let Ok(mut child) = python.spawn() else { return };
        let mut port = String::new();
        io::BufRead::read_line(&mut io::BufReader::new(child.stdout.take().unwrap()), &mut port)
            .unwrap();
        let port: u16 = port.trim().parse().unwrap();
        let gate = Gate::default();
        let path = gate.open(1).unwrap();
        assert_eq!(through(&path, &format!("10.0.0.1:{port}")).1, "");
        child.kill().unwrap();
        child.wait().unwrap();
        let (_, why) = through(&path, &format!("10.0.0.1:{port}"));
        assert!(why.starts_with("no process of this run"), "{why}");
    }
}
