//! `planaria agent task N RUN`: the guard of one process of a user's script; and `planaria agent
//! rendezvous PORT`, where those of Horovod meet.

use planaria_fleet::{guard, rendezvous};
use planaria_runs::failure::{Context, Exit, Result};
use std::net::TcpListener;

/// Keeps the process, and ends as it ended.
pub fn run() -> Result<Option<Exit>> {
    let mut stdin = std::io::stdin();
    let orders = guard::orders(&mut stdin).context(|| "standard input holds no orders".into())?;
    guard::end_as(guard::run(&orders, stdin))
}

/// Serves processes of Horovod until it is ended.
pub fn rendezvous(port: u16) -> Result<Option<Exit>> {
    let listener = TcpListener::bind(("0.0.0.0", port));
    let listener = listener.context(|| format!("cannot listen on port {port}"))?;
    rendezvous::serve(&listener);
    Ok(None)
}
