//! Who the processes of a run on several machines are: a certificate for each, made when it starts and
//! again every day, and none of machines that were given up.
//!
//! Owns the run's authority, whose key is in this process alone. Says what others are to be told; never
//! talks to them.

use planaria_protocol::launch::{Station, Trust};
use planaria_protocol::message::Agent;
use planaria_protocol::standing::Word;
use planaria_protocol::tls::{Authority, RENEW_EVERY};
use std::collections::BTreeMap;
use std::time::Duration;

/// Issues the certificates of a run. Times that it is given count from when the command started or
/// resumed the run.
pub struct Vouching {
    authority: Authority,
    /// By machine: certificates with smaller numbers are not believed any more.
    given_up: BTreeMap<String, u64>,
    renewed: Duration,
}

impl Vouching {
    /// Of a run that begins.
    pub fn new(authority: Authority) -> Self {
        Self { authority, given_up: BTreeMap::new(), renewed: Duration::ZERO }
    }

    /// A certificate for a process on a machine (nothing for the controller's own).
    pub fn trust(
        &self,
        agent: Agent,
        machine: Option<&str>,
        age: Duration,
    ) -> Result<Trust, String> {
        self.authority.issue(agent, machine, age).map_err(|e| e.to_string())
    }

    /// Gives a process that is to be started its certificate, and says who is not to be believed.
    pub fn vouch(&self, agent: Agent, station: &mut Station, age: Duration) -> Result<(), String> {
        station.trust = Some(self.trust(agent, station.machine.as_deref(), age)?);
        station.given_up.clone_from(&self.given_up);
        Ok(())
    }

    /// Whether processes are to be given new certificates; then they count as given.
    pub fn is_due(&mut self, age: Duration) -> bool {
        let is_due = age.saturating_sub(self.renewed) >= RENEW_EVERY;
        if is_due {
            self.renewed = age;
        }
        is_due
    }

    /// No certificate that a machine has had so far is believed from now on. What others are told.
    pub fn give_up(&mut self, machine: &str) -> Word {
        let before = self.authority.next_number();
        self.given_up.insert(machine.to_owned(), before);
        Word::GivenUp { machine: machine.to_owned(), before }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use planaria_protocol::tls::LIFETIME;

    fn vouching() -> Vouching {
        Vouching::new(Authority::new("run", 1.8e9).unwrap())
    }

    #[test]
    fn certificates_are_renewed_long_before_they_expire() {
        let mut vouching = vouching();
        assert!(RENEW_EVERY * 3 < LIFETIME);
        assert!(!vouching.is_due(RENEW_EVERY - Duration::from_secs(1)));
        assert!(vouching.is_due(RENEW_EVERY));
        assert!(!vouching.is_due(RENEW_EVERY + Duration::from_secs(1)));
        // A clock that jumps costs one renewal.
        assert!(vouching.is_due(RENEW_EVERY * 30));
        assert!(!vouching.is_due(RENEW_EVERY * 30));
        // A word for a pipe, whatever it says.
        let trust = vouching.trust(Agent::Worker(4095), Some(&"m".repeat(200)), LIFETIME).unwrap();
        assert!(Word::Trust(trust).line().is_some());
    }

    #[test]
    fn processes_that_start_later_know_who_was_given_up() {
        let mut vouching = vouching();
        let mut station = Station { machine: Some("node1".into()), ..Station::default() };
        vouching.vouch(Agent::Worker(0), &mut station, Duration::ZERO).unwrap();
        assert!(station.given_up.is_empty());
        let Word::GivenUp { before, .. } = vouching.give_up("node1") else { panic!() };
        vouching.vouch(Agent::Worker(1), &mut station, Duration::ZERO).unwrap();
        assert_eq!(station.given_up.get("node1"), Some(&before));
    }
}
