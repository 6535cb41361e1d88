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
            Command::Chaos => (
                "only runs of `planaria train` are broken on purpose",
                format!(
                    "kill one of its processes yourself; `planaria status {path}` tells where they \
                     are"
                ),
            ),
            Command::Evaluate => (
                "its model is in a form that only the script knows",
                format!("files that `script.outputs` names are in `{path}/outputs`"),
            ),
            Command::Resume => (
                "where it could go on, only the script knows",
                format!("`{again}` runs it once more"),
            ),
            Command::Scale(workers) => {
                let option = workers.map_or_else(String::new, |n| format!(" --workers {n}"));
                let stop = format!("stop it by `planaria stop {path} --wait`");
                (
                    "its processes are told how many they are when they begin",
                    format!("{stop}, then `{again}{option}`"),
                )
            }
        };
        Some(Refusal { why, instead })
    }
}
