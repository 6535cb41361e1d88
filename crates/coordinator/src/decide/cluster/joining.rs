//! Processes that join, and what they are told first.

use super::{Action, Cluster};
use crate::decide::member::Standing;
use planaria_protocol::message::{Agent, Shelf, ToServer, ToWorker, Trouble};

impl Cluster {
    pub(super) fn joined(
        &mut self,
        agent: Agent,
        pid: u32,
        build: &str,
        address: Option<String>,
    ) -> Result<(), Trouble> {
        if build != self.config.build {
            let own = &self.config.build;
            return Err(Trouble {
                message: format!("{agent} runs build {build}, but the run began with {own}"),
                hint: Some("the program was replaced while it started; start the run again".into()),
                fix_input: true,
            });
        }
        self.members.join(agent, pid, address).map_err(Trouble::new)?;
        if matches!(agent, Agent::Server(_)) && self.members.servers_are(Standing::Joined) {
            for server in 0..self.config.servers {
                let blocks = self.config.blocks_of(server);
                let (checkpoint, step) = (self.config.checkpoint.clone(), self.course.state().step);
                let source = checkpoint.map_or(
                    planaria_protocol::message::Source::Seed,
                    planaria_protocol::message::Source::Checkpoint,
                );
                let begin = ToServer::Begin { blocks, source, step };
                self.decide(Action::ToServer(server, begin), "every server has joined");
            }
        }
        if let Agent::Worker(worker) = agent
            && self.members.servers_are(Standing::Ready)
        {
            self.begin_worker(worker);
        }
        Ok(())
    }

    pub(super) fn begin_worker(&mut self, worker: u32) {
        let shelf = |server| Shelf {
            server,
            address: self.members.address(server),
            blocks: self.config.blocks_of(server),
        };
        let servers = (0..self.config.servers).map(shelf).collect();
        let begin = ToWorker::Begin { servers };
        self.decide(Action::ToWorker(worker, begin), "every server is ready");
    }
}
