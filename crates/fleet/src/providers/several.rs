//! Machines of several providers, used as those of one.
//!
//! Owns which of them a machine comes from: it is written down with the machine. Never knows what
//! any of them is.

use crate::channel::Channel;
use crate::program::Program;
use crate::provider::{Call, Fault, Leak, Machine, Made, Notice, Provider, Ran, Tag};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

/// Machines that are made have names of numbers: those of each provider begin so much later.
const NUMBERS_APART: u32 = 10_000;

/// One of the providers, and how many machines it is to have.
pub struct Part {
    pub provider: Arc<dyn Provider>,
    pub count: usize,
}

/// Machines of several providers: first as many of each as it is to have, in order; then more of
/// those that have more, in turn.
pub struct Several {
    parts: Vec<Part>,
}

impl Several {
    /// Machines of these, in this order.
    pub fn new(parts: Vec<Part>) -> Self {
        Self { parts }
    }

    /// The provider of a machine, and the machine as that one knows it.
    fn whose(&self, machine: &Machine) -> Result<(&dyn Provider, Machine), Fault> {
        match self.parts.get(machine.supply) {
            Some(part) => Ok((&*part.provider, Machine { supply: 0, ..machine.clone() })),
            None => {
                let what = format!(
                    "it comes from provider {} of the pool, which has {}",
                    machine.supply + 1,
                    self.parts.len()
                );
                Err(Fault::fix(&machine.name, what, "write the provider into the recipe again"))
            }
        }
    }

    /// Machine `number` of one of the providers.
    fn of_part(&self, supply: usize, run: &Tag, number: usize) -> Option<Machine> {
        let provider = &self.parts[supply].provider;
        let number = u32::try_from(number).ok()?;
        let machine = match provider.capacity() {
            Some(_) => provider.plan(run, number)?,
            None => {
                let is_made = |part: &&Part| part.provider.capacity().is_none();
                let before = self.parts[..supply].iter().filter(is_made).count() as u32;
                let taken = self.listed(run);
                let free = (before * NUMBERS_APART..)
                    .map_while(|number| provider.plan(run, number))
                    .filter(|machine| !taken.contains(&machine.name));
                free.into_iter().nth(number as usize)?
            }
        };
        Some(Machine { supply, ..machine })
    }

    /// Names of machines that are there already.
    fn listed(&self, run: &Tag) -> BTreeSet<String> {
        let names = |part: &Part| {
            let count = part.provider.capacity().unwrap_or(0) as u32;
            let machines = (0..count).filter_map(|number| part.provider.plan(run, number));
            machines.map(|machine| machine.name).collect::<Vec<_>>()
        };
        self.parts.iter().flat_map(names).collect()
    }

    fn check_names(&self) -> Result<(), Fault> {
        let mut names = BTreeSet::new();
        let run = Tag::new("check").expect("letters alone");
        for part in &self.parts {
            for number in 0..part.provider.capacity().unwrap_or(0) as u32 {
                let Some(machine) = part.provider.plan(&run, number) else { break };
                if !names.insert(machine.name.clone()) {
                    let what = "two providers of the pool have a machine of that name";
                    return Err(Fault::fix(machine.name, what, "give one of them another name"));
                }
            }
        }
        Ok(())
    }

    fn each<T>(
        &self,
        ask: impl Fn(&dyn Provider) -> Result<Vec<T>, Fault>,
        machine: impl Fn(&mut T) -> &mut Machine,
    ) -> Result<Vec<T>, Fault> {
        let mut found = Vec::new();
        for (supply, part) in self.parts.iter().enumerate() {
            let mut of_part = ask(&*part.provider)?;
            of_part.iter_mut().for_each(|one| machine(one).supply = supply);
            found.extend(of_part);
        }
        Ok(found)
    }
}

impl Provider for Several {
    fn name(&self) -> &'static str {
        "several"
    }

    fn check(&self) -> Result<(), Fault> {
        self.check_names()?;
        self.parts.iter().try_for_each(|part| part.provider.check())
    }

    fn remarks(&self) -> Vec<String> {
        self.parts.iter().flat_map(|part| part.provider.remarks()).collect()
    }

    fn capacity(&self) -> Option<usize> {
        self.parts.iter().map(|part| part.provider.capacity()).sum()
    }

    fn plan(&self, run: &Tag, number: u32) -> Option<Machine> {
        let mut left = number as usize;
        for (supply, part) in self.parts.iter().enumerate() {
            if left < part.count {
                return self.of_part(supply, run, left);
            }
            left -= part.count;
        }
        for turn in 0.. {
            let mut has_more = false;
            for (supply, part) in self.parts.iter().enumerate().filter(|(_, p)| p.count > 0) {
                let Some(machine) = self.of_part(supply, run, part.count + turn) else { continue };
                has_more = true;
                match left {
                    0 => return Some(machine),
                    _ => left -= 1,
                }
            }
            if !has_more {
                break;
            }
        }
        None
    }

    fn create(&self, run: &Tag, machine: &Machine) -> Result<Made, Fault> {
        let (provider, machine) = self.whose(machine)?;
        provider.create(run, &machine)
    }

    fn create_many(
        &self,
        run: &Tag,
        machines: &[Machine],
        told: &(dyn Fn(&Machine, Result<Made, Fault>) + Sync),
    ) {
        std::thread::scope(|scope| {
            for (supply, part) in self.parts.iter().enumerate() {
                let own = machines.iter().filter(|machine| machine.supply == supply);
                let own: Vec<Machine> =
                    own.map(|machine| Machine { supply: 0, ..machine.clone() }).collect();
                let told = move |machine: &Machine, made: Result<Made, Fault>| {
                    told(&Machine { supply, ..machine.clone() }, made);
                };
                scope.spawn(move || part.provider.create_many(run, &own, &told));
            }
        });
    }

    fn gives_notice(&self) -> bool {
        self.parts.iter().any(|part| part.provider.gives_notice())
    }

    fn notices(&self, run: &Tag) -> Result<Vec<Notice>, Fault> {
        let mut notices = Vec::new();
        for part in self.parts.iter().filter(|part| part.provider.gives_notice()) {
            notices.extend(part.provider.notices(run)?);
        }
        Ok(notices)
    }

    fn open(&self, run: &Tag, machine: &Machine, program: &Program) -> Result<Channel, Fault> {
        let (provider, machine) = self.whose(machine)?;
        provider.open(run, &machine, program)
    }

    fn run(&self, run: &Tag, machine: &Machine, call: &Call<'_>) -> Result<Ran, Fault> {
        let (provider, machine) = self.whose(machine)?;
        provider.run(run, &machine, call)
    }

    fn list(&self, run: &Tag) -> Result<Vec<Machine>, Fault> {
        self.each(|provider| provider.list(run), |machine| machine)
    }

    fn abandon(&self, machine: &Machine) {
        if let Ok((provider, machine)) = self.whose(machine) {
            provider.abandon(&machine);
        }
    }

    fn destroy(&self, run: &Tag, machine: &Machine) -> Result<(), Fault> {
        let (provider, machine) = self.whose(machine)?;
        provider.destroy(run, &machine)
    }

    fn leaks(&self) -> Result<Vec<Leak>, Fault> {
        self.each(|provider| provider.leaks(), |leak| &mut leak.machine)
    }

    fn tunnel(
        &self,
        run: &Tag,
        machine: &Machine,
        there: &str,
        gate: &Path,
    ) -> Result<bool, Fault> {
        let (provider, machine) = self.whose(machine)?;
        provider.tunnel(run, &machine, there, gate)
    }

    fn is_here(&self, machine: &Machine) -> bool {
        self.whose(machine).is_ok_and(|(provider, machine)| provider.is_here(&machine))
    }

    fn leaves_with_host(&self, machine: &Machine) -> bool {
        self.whose(machine).is_ok_and(|(provider, machine)| provider.leaves_with_host(&machine))
    }

    fn inventory(&self, machine: &Machine) -> String {
        self.whose(machine)
            .map_or_else(|_| String::new(), |(provider, machine)| provider.inventory(&machine))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::local::Local;
    use crate::providers::ssh::{Host, Settings, Ssh};

    fn ssh(hosts: &[&str]) -> Arc<dyn Provider> {
        let hosts = hosts.iter().map(|host| Host::new(host)).collect();
        Arc::new(Ssh::new(Settings { hosts, ..Settings::default() }))
    }

    #[test]
    fn machines_come_first_of_each_and_then_in_turn() {
        let folder = tempfile::tempdir().unwrap();
        let made = || Arc::new(Local::new(folder.path()));
        let several = Several::new(vec![
            Part { provider: ssh(&["a", "m2", "c"]), count: 1 },
            Part { provider: made(), count: 2 },
            Part { provider: made(), count: 1 },
        ]);
        let run = Tag::new("r").unwrap();
        let names = |count| -> Vec<(String, usize)> {
            let planned = (0..count).filter_map(|number| several.plan(&run, number));
            planned.map(|machine| (machine.name, machine.supply)).collect()
        };
        let expect = [
            ("a", 0),
            ("m1", 1),
            ("m3", 1),
            ("m10001", 2),
            ("m2", 0),
            ("m4", 1),
            ("m10002", 2),
            ("c", 0),
            ("m5", 1),
        ];
        assert_eq!(names(9), expect.map(|(name, supply)| (name.to_owned(), supply)));
        assert_eq!((several.capacity(), several.check_names()), (None, Ok(())));
    }

    #[test]
    fn machines_that_are_listed_have_an_end_and_one_name_each() {
        let several = Several::new(vec![
            Part { provider: ssh(&["a"]), count: 1 },
            Part { provider: ssh(&["b", "c"]), count: 1 },
        ]);
        let run = Tag::new("r").unwrap();
        let planned = (0..9).map_while(|number| several.plan(&run, number));
        assert_eq!(planned.map(|m| m.name).collect::<Vec<_>>(), ["a", "b", "c"]);
        assert_eq!(several.capacity(), Some(3));
        let stray = Machine { supply: 7, ..Machine::new("a", "a", vec![]) };
        assert!(several.destroy(&run, &stray).is_err(), "no provider has it");
        let twice = Several::new(vec![
            Part { provider: ssh(&["a"]), count: 1 },
            Part { provider: ssh(&["a"]), count: 1 },
        ]);
        assert!(twice.check_names().is_err_and(|fault| fault.what.contains("of that name")));
    }
}
