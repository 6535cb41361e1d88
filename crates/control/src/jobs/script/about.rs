//! What commands say of a script's run.

use crate::jobs::about::{About, Command, Refusal};

pub struct Script;

impl About for Script {
    fn stopping(&self) -> &'static str {
        "ending the script's processes, then bringing outputs back; Ctrl-C again quits at once"
    }

    fn quit(&self, path: &str) -> String {
        format!("quit at once; planaria down {path} gives back what is left")
    }

    fn stops(&self) -> &'static str {
        "ends its processes, brings outputs back and stops"
    }

    fn again(&self, path: &str) -> String {
        format!("planaria run {path}/recipe.yaml")
    }

    fn owner(&self) -> &'static str {
        "a script's"
    }

    fn refuses(&self, command: Command, path: &str) -> Option<Refusal> {
        let again = self.again(path);
        let (why, instead) = match command {
            Command::Audit => (
                "which examples it read, only the script knows",
                format!("`planaria logs {path}` prints all that it wrote"),
            ),
            Command::Chaos { is_live } => (
                "only runs of `planaria train` are broken on purpose",
                match is_live {
                    true => format!(
                        "kill one of its processes yourself; `planaria status {path}` tells where \
                         they are"
                    ),
                    false => format!(
                        "it has ended, and has no processes; `{again}` runs it once more, and they \
                         can then be killed by hand"
                    ),
                },
            ),
            Command::Evaluate => (
                "its model is in a form that only the script knows",
                format!("files that `script.outputs` names are in `{path}/outputs`"),
            ),
            Command::Resume => (
                "where it could go on, only the script knows",
                format!("`{again}` runs it once more"),
            ),
            Command::Scale { workers, is_live } => {
                let option = workers.map_or_else(String::new, |n| format!(" --workers {n}"));
                (
                    "its processes are told how many they are when they begin",
                    match is_live {
                        true => format!(
                            "stop it by `planaria stop {path} --wait`, then `{again}{option}`"
                        ),
                        false => format!("it has ended; `{again}{option}` runs it once more"),
                    },
                )
            }
        };
        Some(Refusal { why, instead })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_has_ended_is_neither_stopped_nor_has_processes_to_kill() {
        let hint = |command| Script.refuses(command, "runs/x").expect("not for scripts").instead;
        for (is_live, scale, chaos) in [
            (true, "stop it by `planaria stop runs/x --wait`, then", "kill one of its processes"),
            (
                false,
                "it has ended; `planaria run runs/x/recipe.yaml --workers 4` runs",
                "it has ended",
            ),
        ] {
            let said = hint(Command::Scale { workers: Some(4), is_live });
            assert!(said.starts_with(scale), "{said}");
            let said = hint(Command::Chaos { is_live });
            assert!(said.starts_with(chaos), "{said}");
        }
    }
}
