//! Who a certificate says that its holder is: role, number and machine.
//!
//! Owns how that is written into a certificate and read again. Never decides who is believed: that is
//! [`Standing`](crate::standing::Standing)'s.

use crate::agent::Agent;
use crate::error::Error;
use crate::message::Join;
use planaria_store::hash::hex;

/// Who a process is, as the run's authority says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pub agent: Agent,
    /// Its machine; nothing for the controller's own.
    pub machine: Option<String>,
    /// Counts the certificates of the authority: a later one has a larger number.
    pub number: u64,
}

/// What the name in a certificate begins with.
const SCHEME: &str = "planaria:";

impl Identity {
    /// As a URI of the certificate's names. Machines may have any name, so it is in hexadecimal.
    pub(crate) fn to_uri(&self) -> String {
        let machine = self.machine.as_deref().unwrap_or_default();
        let machine = hex(machine.as_bytes());
        format!("{SCHEME}{}/{}/{machine}", self.agent, self.number)
    }

    /// Parses a URI; `None` for one that is not ours.
    pub(crate) fn of_uri(uri: &str) -> Option<Self> {
        let mut parts = uri.strip_prefix(SCHEME)?.split('/');
        let (agent, number, machine) = (parts.next()?, parts.next()?, parts.next()?);
        if parts.next().is_some() {
            return None;
        }
        let agent = match agent {
            "console" => Agent::Console,
            "host" => Agent::Host,
            "controller" => Agent::Controller,
            other => Agent::named(other)?,
        };
        let machine = match machine {
            "" => None,
            digits => Some(unhex(digits)?),
        };
        Some(Self { agent, machine, number: number.parse().ok()? })
    }

    /// Refuses a process that says to be another than its certificate says.
    pub(crate) fn check(&self, join: &Join) -> Result<(), Error> {
        match (join.agent, &join.machine) == (self.agent, &self.machine) {
            true => Ok(()),
            false => Err(Error::Impostor {
                claimed: place(join.agent, join.machine.as_deref()),
                certified: self.to_string(),
            }),
        }
    }
}

impl std::fmt::Display for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&place(self.agent, self.machine.as_deref()))
    }
}

/// Longest name of a machine in a message: a stranger may say anything.
const SHOWN_CHARS_MAX: usize = 64;

fn place(agent: Agent, machine: Option<&str>) -> String {
    match machine {
        None => format!("{agent} on the controller's machine"),
        Some(machine) => {
            let machine: String = machine.chars().take(SHOWN_CHARS_MAX).collect();
            format!("{agent} on {machine:?}")
        }
    }
}

fn unhex(digits: &str) -> Option<String> {
    let value = |digit: u8| (digit as char).to_digit(16).map(|value| value as u8);
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    let bytes: Option<Vec<u8>> =
        pairs.iter().map(|[a, b]| Some(value(*a)? << 4 | value(*b)?)).collect();
    String::from_utf8(bytes?).ok().filter(|_| rest.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(agent: Agent, machine: Option<&str>) -> Identity {
        Identity { agent, machine: machine.map(str::to_owned), number: 7 }
    }

    #[test]
    fn a_certificate_says_who_it_is_of() {
        let agents = [
            Agent::Coordinator,
            Agent::Server(0),
            Agent::Worker(12),
            Agent::Console,
            Agent::Task(3),
            Agent::Host,
            Agent::Controller,
        ];
        for agent in agents {
            for machine in [None, Some("node1"), Some("lab@10.0.0.3:22"), Some("a/b:ö")] {
                let one = identity(agent, machine);
                assert_eq!(Identity::of_uri(&one.to_uri()), Some(one));
            }
        }
        for other in [
            "",
            "planaria:",
            "planaria:worker-1",
            "planaria:worker-1/7",
            "planaria:worker/7/",
            "planaria:worker-1/x/",
            "planaria:worker-1/7/6",
            "planaria:worker-1/7/zz",
            "planaria:worker-1/7/ff",
            "planaria:worker-1/7//",
            "https://worker-1/7/",
        ] {
            assert_eq!(Identity::of_uri(other), None, "{other}");
        }
    }

    #[test]
    fn no_process_is_believed_to_be_another() {
        let one = identity(Agent::Worker(1), Some("node1"));
        let join = |agent, machine: Option<&str>| Join {
            machine: machine.map(str::to_owned),
            ..Join::new(agent, "b", 1)
        };
        one.check(&join(Agent::Worker(1), Some("node1"))).expect("it is this one");
        for other in [
            join(Agent::Worker(2), Some("node1")),
            join(Agent::Server(1), Some("node1")),
            join(Agent::Console, Some("node1")),
            join(Agent::Worker(1), Some("node2")),
            join(Agent::Worker(1), None),
        ] {
            let error = one.check(&other).expect_err("another").to_string();
            assert!(error.contains("certificate is of worker-1 on \"node1\""), "{error}");
        }
    }
}
