//! The provider that a recipe names.
//!
//! Owns how the words of a recipe become a provider's settings. Never asks a provider for anything.

use crate::cluster::pooling::{self, failure};
use planaria_fleet::host::tasks::user_home;
use planaria_fleet::program::{FOLDER, Program};
use planaria_fleet::provider::Provider;
use planaria_fleet::providers::docker::{self, Docker};
use planaria_fleet::providers::local::Local;
use planaria_fleet::providers::ssh::{self, Ssh};
use planaria_recipe::pool::{self, Gpus, HostEntry, HostKeys, Mount, Pool};
use planaria_recipe::{Job, Recipe};
use planaria_runs::failure::{Failure, Result};
use std::path::PathBuf;
use std::sync::Arc;

/// The provider of a pool, for machines that run this program; whoever only gives machines back
/// needs none.
pub fn of(pool: &Pool, program: Option<&Program>) -> Result<Arc<dyn Provider>> {
    made(pool, program, false, Vec::new())
}

/// The provider of a recipe's pool, for machines that a run is done on, and which may outlive the
/// command. Nothing that it starts inherits variables with the recipe's secrets.
pub fn for_run(recipe: &Recipe, program: &Program, detached: bool) -> Result<Arc<dyn Provider>> {
    made(&recipe.pool, Some(program), detached, pooling::secrets(recipe))
}

/// The same for a script.
pub fn for_job(job: &Job, program: &Program) -> Result<Arc<dyn Provider>> {
    made(&job.pool, Some(program), false, job.variables())
}

fn made(
    pool: &Pool,
    program: Option<&Program>,
    detached: bool,
    hidden: Vec<String>,
) -> Result<Arc<dyn Provider>> {
    Ok(match pool.provider {
        pool::Provider::Local => {
            Arc::new(Local::new(&user_home().join(FOLDER).join("machines")).hiding(hidden))
        }
        pool::Provider::Ssh => Arc::new(Ssh::new(ssh::Settings { hidden, ..ssh_settings(pool)? })),
        pool::Provider::Docker => {
            let settings = docker::Settings {
                image: pool.image.clone(),
                socket: pool.docker.socket.clone(),
                network: pool.docker.network.clone(),
                mounts: mounts(pool)?,
                gpus: pool.docker.gpus.as_ref().map(gpus),
                program: program.cloned(),
                detached,
                ..docker::Settings::default()
            };
            Arc::new(Docker::new(settings).map_err(failure)?)
        }
    })
}

/// Whether all of this machine that containers are to see is there.
pub fn check_mounts(pool: &Pool) -> Result<()> {
    let settings = docker::Settings { mounts: mounts(pool)?, ..docker::Settings::default() };
    settings.check_mounts().map_err(failure)
}

/// What containers see of this machine: paths without links or what they are relative to, where they
/// lead anywhere.
fn mounts(pool: &Pool) -> Result<Vec<docker::Mount>> {
    let mount = |text: &String| {
        // The checker has seen it before; a run's folder may have been changed by hand.
        let mount = Mount::parse(text).map_err(|why| Failure::user(format!("`{text}` {why}")))?;
        let source = at_home(&mount.source);
        let source = source.canonicalize().or_else(|_| std::path::absolute(&source));
        let source = source.map_err(|e| Failure::user(format!("`{text}`: {e}")))?;
        let Mount { target, is_read_only, .. } = mount;
        Ok(docker::Mount { source, target, is_read_only })
    };
    pool.docker.mounts.iter().map(mount).collect()
}

fn gpus(gpus: &Gpus) -> i32 {
    match gpus {
        Gpus::Count(count) => i32::try_from(*count).unwrap_or(i32::MAX),
        Gpus::All(_) => -1,
    }
}

fn ssh_settings(pool: &Pool) -> Result<ssh::Settings> {
    let hosts = pool.hosts.iter().map(host).collect::<Result<_>>()?;
    let host_keys = match pool.ssh.host_keys {
        HostKeys::Strict => ssh::HostKeys::Known,
        HostKeys::AcceptNew => ssh::HostKeys::AcceptNew,
    };
    Ok(ssh::Settings {
        hosts,
        config: pool.ssh.config.as_deref().map(at_home),
        known_hosts: pool.ssh.known_hosts.as_deref().map(at_home),
        host_keys,
        connect_seconds: u64::from(pool.ssh.connect_seconds),
        ..ssh::Settings::default()
    })
}

fn host(entry: &HostEntry) -> Result<ssh::Host> {
    // The checker has seen it before; a run's folder may have been changed by hand.
    let host = entry.spelled_out().map_err(|why| Failure::user(format!("a host: {why}")))?;
    Ok(ssh::Host {
        name: host.name,
        host: host.host,
        user: host.user,
        port: host.port,
        key: host.key.as_deref().map(at_home),
        jump: host.jump,
        groups: host.groups,
    })
}

/// `~/x` is in the user's home.
fn at_home(path: &str) -> PathBuf {
    match path.strip_prefix("~/") {
        Some(rest) => user_home().join(rest),
        None => PathBuf::from(path),
    }
}
