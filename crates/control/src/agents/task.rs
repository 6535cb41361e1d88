//! `planaria agent task N RUN`: the guard of one process of a user's script; `planaria agent command
//! RUN`: of any other program; and `planaria agent rendezvous PORT`, where processes of Horovod meet.

use planaria_fleet::{guard, guarded, rendezvous};
use planaria_runs::failure::{Context, Exit, Result};
use std::net::TcpListener;

/// Keeps the process, and ends as it ended.
pub fn run() -> Result<Option<Exit>> {
    let mut stdin = std::io::stdin();
    let orders = guard::orders(&mut stdin).context(|| "standard input holds no orders".into())?;
    guard::end_as(guard::run(&orders, stdin))
}

/// The same around a program whose output is the standard error.
pub fn command() -> Result<Option<Exit>> {
    guarded::take_streams().context(|| "standard error cannot be written to".into())?;
    run()
}

/// Serves processes of Horovod until it is ended.
pub fn rendezvous(port: u16) -> Result<Option<Exit>> {
    let listener = TcpListener::bind(("0.0.0.0", port));
    let listener = listener.context(|| format!("cannot listen on port {port}"))?;
    rendezvous::serve(&listener);
    Ok(None)
}
