//! Processes that need more memory than there is.

use super::*;

#[test]
fn processes_that_are_short_of_memory_each_time_end_the_run() {
    let starved = Ending::OutOfMemory { limit_mib: 96 };
    for agent in [Worker(1), Server(0)] {
        let mut world = World::new(1, 2);
        world.all_ready();
        // As often as it may be, with steps between.
        for _ in 0..5 {
            world.tell(RunInput::Progress);
            world.wait(31.0);
            world.end(agent, starved);
            world.wait(31.0);
            world.ready(agent);
        }
        assert_eq!(world.failed, None);
        world.tell(RunInput::Progress);
        for _ in 0..3 {
            world.wait(31.0);
            world.end(agent, starved);
        }
        let loss = world.failed.clone().unwrap();
        assert_eq!(loss.agent, agent);
        let expect = "killed for want of memory: limit 96 MiB, 3 times in a row without a step";
        assert!(loss.message.contains(expect), "{loss:?}");
    }
}
