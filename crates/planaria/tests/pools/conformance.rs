//! What every provider must do, whatever its machines are.
//!
//! `conformance(&Bed)` runs all of it, each part with a run of its own, and leaves nothing.

use crate::talk::{Host, LONG, run};
use planaria_fleet::program::Program;
use planaria_fleet::provider::{Call, Machine, Made, Notice, Provider, Tag, is_name};
use std::collections::BTreeSet;
use std::time::Duration;

/// Seconds that a machine may be pending.
const PENDING_MAX: u32 = 60;

/// What is tested, and how it is broken.
pub struct Bed<'a> {
    /// A provider over the same machines, as another process would have it.
    pub provider: &'a dyn Fn() -> Box<dyn Provider>,
    /// What goes to machines.
    pub program: &'a Program,
    /// Machines that may be had at a time; two at least.
    pub machines: u32,
    /// Takes a machine away, or all that runs on it, without a word; the pid is its host's there.
    pub lose: &'a dyn Fn(&Machine, u32),
    /// Makes a machine that was taken away possible again.
    pub restore: &'a dyn Fn(&Machine),
}

/// All of it.
pub fn conformance(bed: &Bed<'_>) {
    plans_are_names_alone(bed);
    machines_come_and_go(bed);
    many_are_asked_for_at_once(bed);
    a_command_runs(bed);
    one_is_replaced(bed);
    one_is_lost(bed);
    fewer_remain(bed);
    what_was_left_half_way_is_cleaned_up(bed);
    hanging_up_ends_the_host(bed);
}

fn plans_are_names_alone(bed: &Bed<'_>) {
    let (provider, run) = ((bed.provider)(), run("plan"));
    provider.check().expect("the provider works here");
    assert!(provider.capacity().is_none_or(|most| most >= bed.machines as usize));
    let machines = planned(&*provider, &run, bed.machines);
    let names: BTreeSet<&str> = machines.iter().map(|machine| machine.name.as_str()).collect();
    assert_eq!(names.len(), machines.len(), "each has a name of its own: {names:?}");
    assert!(names.iter().all(|name| is_name(name)), "{names:?}");
    assert_eq!(planned(&*(bed.provider)(), &run, bed.machines), machines, "the same for everybody");
    assert_eq!(provider.list(&run).expect("a list"), []);
    assert!(!provider.inventory(&machines[0]).contains('\n'));
}

fn machines_come_and_go(bed: &Bed<'_>) {
    let (provider, run) = ((bed.provider)(), run("come-and-go"));
    let machines = planned(&*provider, &run, bed.machines);
    let (program, over, of) = (bed.program, &*provider, &run);
    let mut hosts: Vec<Host> = std::thread::scope(|scope| {
        let raise = |machine| scope.spawn(move || raise(program, over, of, machine));
        let raising: Vec<_> = machines.iter().map(raise).collect();
        raising.into_iter().map(|one| one.join().expect("a host")).collect()
    });
    for host in &mut hosts {
        assert_eq!(host.hello.build, bed.program.build);
        host.answers();
    }
    assert_eq!(names(&provider.list(&run).expect("a list")), names(&machines));
    let leaks = (bed.provider)().leaks().expect("leaks");
    let ours: BTreeSet<String> = leaks
        .iter()
        .filter(|leak| leak.run == run.as_str())
        .map(|leak| leak.machine.name.clone())
        .collect();
    assert_eq!(ours, names(&machines), "{leaks:?}");
    for machine in &machines {
        // Making one that exists does nothing.
        provider.create(&run, machine).expect("created again");
    }
    hosts.iter_mut().for_each(Host::answers);
    for (machine, host) in machines.iter().zip(&hosts) {
        provider.destroy(&run, machine).expect("destroyed");
        host.ends(LONG);
        provider.destroy(&run, machine).expect("destroyed twice");
    }
    nothing_is_left(bed, &run);
}

fn many_are_asked_for_at_once(bed: &Bed<'_>) {
    let (provider, run) = ((bed.provider)(), run("at-once"));
    let machines = planned(&*provider, &run, bed.machines);
    let told = std::sync::Mutex::new(Vec::new());
    provider.create_many(&run, &machines, &|machine, made| {
        made.unwrap_or_else(|fault| panic!("{fault} ({:?})", fault.hint));
        told.lock().expect("no thread panics with it").push(machine.clone());
    });
    let told = told.into_inner().expect("no thread panics with it");
    assert_eq!((told.len(), names(&told)), (machines.len(), names(&machines)), "each once");
    let of = |notice: &Notice| machines.iter().any(|machine| machine.name == notice.machine);
    let notices = provider.notices(&run).expect("it can be asked");
    assert!(!notices.iter().any(of), "no machine is about to go: {notices:?}");
    let mut host = raise(bed.program, &*provider, &run, &machines[0]);
    host.answers();
    give_back(&*provider, &run, &machines);
    nothing_is_left(bed, &run);
}

fn a_command_runs(bed: &Bed<'_>) {
    let (provider, run) = ((bed.provider)(), run("command"));
    let machine = &planned(&*provider, &run, 1)[0];
    let mut host = raise(bed.program, &*provider, &run, machine);
    let ask = |arguments: &[&str]| {
        let call = Call { program: bed.program, arguments, input: b"unread", within: LONG };
        provider.run(&run, machine, &call)
    };
    let ran = ask(&["agent", "build"]).expect("it runs");
    assert_eq!((ran.code, String::from_utf8_lossy(&ran.stdout).trim()), (0, planaria::BUILD));
    let ran = ask(&["no such $(command) 'at all'"]).expect("it runs and fails");
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(ran.code != 0 && said.contains("no such $(command) 'at all'"), "{} {said}", ran.code);
    host.answers();
    provider.destroy(&run, machine).expect("destroyed");
    nothing_is_left(bed, &run);
}

fn one_is_replaced(bed: &Bed<'_>) {
    let (provider, run) = ((bed.provider)(), run("replace"));
    let machines = planned(&*provider, &run, 2);
    let first = raise(bed.program, &*provider, &run, &machines[0]);
    let mut other = raise(bed.program, &*provider, &run, &machines[1]);
    provider.destroy(&run, &machines[0]).expect("destroyed");
    first.ends(LONG);
    let mut again = raise(bed.program, &*provider, &run, &machines[0]);
    again.answers();
    other.answers();
    give_back(&*provider, &run, &machines);
    nothing_is_left(bed, &run);
}

fn one_is_lost(bed: &Bed<'_>) {
    let (provider, run) = ((bed.provider)(), run("lose"));
    let machines = planned(&*provider, &run, 2);
    let lost = raise(bed.program, &*provider, &run, &machines[0]);
    let mut other = raise(bed.program, &*provider, &run, &machines[1]);
    (bed.lose)(&machines[0], lost.hello.pid);
    lost.ends(LONG);
    other.answers();
    drop(lost);
    (bed.restore)(&machines[0]);
    provider.destroy(&run, &machines[0]).expect("given back");
    let mut again = raise(bed.program, &*provider, &run, &machines[0]);
    again.answers();
    give_back(&*provider, &run, &machines);
    nothing_is_left(bed, &run);
}

fn fewer_remain(bed: &Bed<'_>) {
    let (provider, run) = ((bed.provider)(), run("fewer"));
    let machines = planned(&*provider, &run, 2);
    let mut stays = raise(bed.program, &*provider, &run, &machines[0]);
    let goes = raise(bed.program, &*provider, &run, &machines[1]);
    provider.destroy(&run, &machines[1]).expect("destroyed");
    goes.ends(LONG);
    assert_eq!(names(&provider.list(&run).expect("a list")), names(&machines[..1]));
    stays.answers();
    give_back(&*provider, &run, &machines);
    nothing_is_left(bed, &run);
}

/// A controller that was killed knows at most the names that it had written down.
fn what_was_left_half_way_is_cleaned_up(bed: &Bed<'_>) {
    let run = run("half-way");
    let machines = planned(&*(bed.provider)(), &run, 2);
    let provider = (bed.provider)();
    let left = raise(bed.program, &*provider, &run, &machines[0]);
    provider.create(&run, &machines[1]).expect("created");
    let after = (bed.provider)();
    let listed = names(&after.list(&run).expect("a list"));
    assert!(
        listed.contains(&machines[0].name) && listed.is_subset(&names(&machines)),
        "{listed:?}"
    );
    give_back(&*after, &run, &machines);
    left.ends(LONG);
    nothing_is_left(bed, &run);
    // One that was written down and never made.
    let never = (bed.provider)().plan(&run, 0).expect("a machine");
    after.destroy(&run, &never).expect("gone already");
}

fn hanging_up_ends_the_host(bed: &Bed<'_>) {
    let (provider, run) = ((bed.provider)(), run("hang-up"));
    let machine = &planned(&*provider, &run, 1)[0];
    let host = raise(bed.program, &*provider, &run, machine);
    host.leave();
    if provider.leaves_with_host(machine) {
        nothing_is_left(bed, &run);
    }
    provider.destroy(&run, machine).expect("destroyed");
    nothing_is_left(bed, &run);
}

#[track_caller]
fn raise(program: &Program, provider: &dyn Provider, run: &Tag, machine: &Machine) -> Host {
    let make = || provider.create(run, machine);
    let mut made = make().unwrap_or_else(|fault| panic!("{fault} ({:?})", fault.hint));
    // A queue may have to be waited for.
    for _ in 0..PENDING_MAX {
        let Made::Pending { why } = made else { break };
        assert!(!why.is_empty(), "it says what it waits for");
        std::thread::park_timeout(Duration::from_secs(1));
        made = make().unwrap_or_else(|fault| panic!("{fault} ({:?})", fault.hint));
    }
    assert_eq!(made, Made::There);
    let opened = provider.open(run, machine, program);
    Host::meet(opened.unwrap_or_else(|fault| panic!("{fault} ({:?})", fault.hint)))
}

fn give_back(provider: &dyn Provider, run: &Tag, machines: &[Machine]) {
    for machine in machines {
        provider.destroy(run, machine).expect("destroyed");
    }
}

#[track_caller]
fn nothing_is_left(bed: &Bed<'_>, run: &Tag) {
    let provider = (bed.provider)();
    assert_eq!(provider.list(run).expect("a list"), []);
    let leaks = provider.leaks().expect("leaks");
    assert!(!leaks.iter().any(|leak| leak.run == run.as_str()), "{leaks:?}");
}

fn planned(provider: &dyn Provider, run: &Tag, count: u32) -> Vec<Machine> {
    let plan = |number| provider.plan(run, number).expect("so many machines");
    (0..count).map(plan).collect()
}

fn names(machines: &[Machine]) -> BTreeSet<String> {
    machines.iter().map(|machine| machine.name.clone()).collect()
}
