//! What the end of processes means, in words.

use super::{Member, PAUSE, PAUSE_MAX, Rules, Why, is_service};
use crate::jobs::script::layout::MPIRUN;
use planaria_recipe::script::CHIEF;

impl std::fmt::Display for Why {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::LeaderDone => "the first process had ended well, and would not be there again",
            Self::TorchrunTried => "torchrun has tried again as often as it may",
            Self::NotStarted => "it could not be started",
            Self::Restarted(0) => "`max_restarts` is 0",
            Self::Restarted(1) => "it was started again once",
            Self::Restarted(n) => return write!(f, "processes were started again {n} times"),
            Self::NeverMet => "it never found the others",
            Self::WentOn => "it went on for long after the first process had ended well",
            Self::MissingModule => "a module is missing on its machine, so it is not started again",
            Self::NotPython => {
                "its machine's Python does not understand it, so it is not started again"
            }
            Self::SamePlace => "it failed there before, so it is not started again",
            Self::TimedOut => "it took longer than `script.timeout`",
            Self::Silent => "no process wrote anything for as long as `script.silence`",
            Self::WrongArguments => "it does not take these arguments, so it is not started again",
        })
    }
}

impl Rules {
    /// When a job of these members is done.
    pub fn done_when(self, members: &[Member]) -> String {
        let services = roles(members.iter().filter(|member| is_service(member)));
        match members {
            _ if members.iter().any(|member| self.decides(member)) => {
                let who = members.iter().find(|member| self.decides(member));
                format!("{} 0 is done", who.map_or(CHIEF, |member| &member.role))
            }
            _ if self.is_torchrun() => "torchrun is done on all machines".into(),
            [one] if one.role == MPIRUN => "`mpirun` is done".into(),
            [one] => format!("{} {} is done", one.role, one.index),
            _ if !services.is_empty() => format!("all but {} are done", services.join(", ")),
            _ => "all are done".into(),
        }
    }

    /// Who is started again when a process fails.
    pub fn restarts(self, members: &[Member], max_restarts: u32) -> String {
        if max_restarts == 0 {
            return "none: a process that fails ends the job".into();
        }
        let most = match max_restarts {
            1 => "once".to_owned(),
            n => format!("{n} times"),
        };
        let pauses = format!("pauses from {} s to {} s", PAUSE.as_secs(), PAUSE_MAX.as_secs());
        let (alone, all): (Vec<_>, Vec<_>) =
            members.iter().partition(|member| self.restarts_alone(member));
        let (alone, all) = (roles(alone.into_iter()), roles(all.into_iter()));
        let who = match (alone.is_empty(), all.is_empty()) {
            _ if self.is_torchrun() => match self.is_elastic {
                true => {
                    "torchrun starts workers again; itself it is started again on the machine \
                         it was lost on"
                }
                false => "torchrun starts workers again; all, when it is lost on a machine",
            }
            .to_owned(),
            _ if members.len() == 1 => "it is started again when it fails".to_owned(),
            (true, _) => "all, when one fails".to_owned(),
            (false, true) => "a process that fails, it alone".to_owned(),
            (false, false) => format!(
                "it alone, when a process of {} fails; all, when one of {} does",
                alone.join(", "),
                all.join(", ")
            ),
        };
        format!("{who}; {most} at most, with {pauses}")
    }
}

fn roles<'m>(members: impl Iterator<Item = &'m Member>) -> Vec<String> {
    let mut roles: Vec<String> = members.map(|member| member.role.clone()).collect();
    roles.dedup();
    roles
}

#[cfg(test)]
mod tests {
    use super::*;
    use planaria_recipe::script::{Framework, Launcher};

    #[test]
    fn every_framework_has_its_words() {
        let members = |roles: &[(&str, usize)]| -> Vec<Member> {
            let member = |(role, index): &(&str, usize)| Member {
                role: (*role).into(),
                index: *index,
                meets: false,
            };
            roles.iter().map(member).collect()
        };
        let servers = &[("chief", 0), ("worker", 0), ("worker", 1), ("ps", 0)][..];
        let workers = &[("worker", 0), ("worker", 1)][..];
        let torchrun = &[("torchrun", 0), ("torchrun", 1)][..];
        use Framework::{Mpi, Plain, Pytorch, Tensorflow};
        for (framework, launcher, roles, done, restarts) in [
            (
                Tensorflow,
                Launcher::Direct,
                servers,
                "chief 0 is done",
                "it alone, when a process of worker fails; all, when one of chief, ps does",
            ),
            (Pytorch, Launcher::Direct, workers, "all are done", "all, when one fails"),
            (
                Pytorch,
                Launcher::Torchrun,
                torchrun,
                "torchrun is done on all machines",
                "torchrun starts workers again",
            ),
            (
                Mpi,
                Launcher::Direct,
                &[("mpirun", 0)][..],
                "`mpirun` is done",
                "it is started again",
            ),
            (
                Plain,
                Launcher::Direct,
                workers,
                "all are done",
                "a process that fails, it alone; 3 times at most, with pauses from 1 s to 30 s",
            ),
            (
                Plain,
                Launcher::Direct,
                &[("worker", 0), ("ps", 0)][..],
                "all but ps are done",
                "a process that fails, it alone",
            ),
            (
                Plain,
                Launcher::Direct,
                &[("worker", 0)][..],
                "worker 0 is done",
                "it is started again",
            ),
        ] {
            let members = members(roles);
            let policy = Rules::new(framework, launcher, &members, false);
            assert_eq!(policy.done_when(&members), done);
            let said = policy.restarts(&members, 3);
            assert!(said.starts_with(restarts), "{said}");
            assert!(policy.restarts(&members, 0).starts_with("none"));
        }
    }
}
