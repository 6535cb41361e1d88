//! A server that takes nothing keeps no other waiting for ever: closing its link lets the sender go.

use planaria_protocol::link;
use planaria_protocol::message::{Agent, Push, ServerRange};
use planaria_protocol::{Credentials, Secret};
use planaria_worker::gradient::compute::Outlet;
use planaria_worker::gradient::servers::{Arrival, Links, Servers};
use std::net::TcpListener;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

#[test]
fn hanging_up_releases_a_worker_that_waits_for_a_server() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let secret = "cd".repeat(32);
    let theirs = Credentials::plain(Secret::from_hex(&secret).unwrap());
    // They take a link in, and never read.
    let accept = move || link::accept(listener.accept().unwrap().0, &theirs, 1).unwrap();
    let accepted = std::thread::spawn(accept);
    let credentials = Credentials::plain(Secret::from_hex(&secret).unwrap());
    let (server, _pulls) =
        link::connect(&address, &credentials, Agent::Server(0), Some(1)).unwrap();
    let _theirs = accepted.join().unwrap();

    let links = Links::default();
    let (report, reports) = mpsc::channel();
    let report = Mutex::new(report);
    let report = Arc::new(move |arrival| report.lock().unwrap().send(arrival).unwrap());
    links.add(server.clone());
    let server_range = ServerRange { server: 0, address, blocks: 0..1 };
    let servers = Servers::new(vec![server_range], vec![server.clone()], report);
    let sending = std::thread::spawn(move || {
        let bulk = vec![0u8; 8 << 20];
        // More than may wait, so it comes back only when the link has ended.
        for step in 0..32 {
            servers.tell_first(&Push::State { step }, &bulk);
        }
    });
    // A full queue: the next one waits.
    let limit = Duration::from_secs(30);
    let full = (0..1500).any(|_| {
        std::thread::park_timeout(limit / 1500);
        server.bytes_waiting() > 56 << 20
    });
    assert!(full && !sending.is_finished());
    links.hang_up();
    match reports.recv_timeout(Duration::from_secs(5)) {
        Ok(Arrival::Ended { server: 0, .. }) => {}
        other => panic!("{other:?}"),
    }
    sending.join().unwrap();
    assert!(reports.try_recv().is_err(), "it is told once");
}
