//! What processes of each framework are told.

use super::*;
use crate::jobs::script::layout::tests::{job, seats};

fn told(text: &str, framework: Framework, machines: u32) -> Vec<Told> {
    let job = job(text);
    let mut layout = Layout::new(&job, framework, seats(machines)).unwrap();
    for process in &mut layout.processes {
        process.port = 2000 + process.id as u16;
    }
    let telling = Telling {
        job: &job,
        framework,
        run: "x-1",
        round: 2,
        script: "train.py",
        data: &[],
        has_mpi4py: true,
        layout: &layout,
    };
    layout.processes.iter().map(|process| telling.told(process)).collect()
}

fn variable<'t>(told: &'t Told, name: &str) -> Option<&'t str> {
    told.env.iter().find(|(key, _)| key == name).map(|(_, value)| &**value)
}

#[test]
fn old_flags_are_filled_in() {
    let text = "script: {file: a/train.py, roles: {ps: 1, worker: 2}, epochs: 3, \
                args: [\"--ps_hosts={{ps_hosts}}\", \"--worker_hosts={{worker_hosts}}\", \
                \"--job_name={{role}}\", \"--task_index={{index}}\", 7]}";
    let all = told(text, Framework::Plain, 2);
    assert_eq!(
        all[1].command,
        [
            "python3",
            "train.py",
            "--ps_hosts=10.0.0.2:2002",
            "--worker_hosts=10.0.0.1:2000,10.0.0.2:2001",
            "--job_name=worker",
            "--task_index=1",
            "7",
            "--epochs=3"
        ]
    );
    assert_eq!(all[1].meeting, Some(Meeting::Listens(2001)));
}

#[test]
fn only_plain_processes_that_others_are_told_of_must_listen() {
    let listening = |args: &str| {
        let text = format!("script: {{file: a.py, roles: {{ps: 1, worker: 2}}, args: [{args}]}}");
        let all = told(&text, Framework::Plain, 2);
        all.iter().map(|told| told.meeting).collect::<Vec<_>>()
    };
    let at = |port| Some(Meeting::Listens(port));
    assert_eq!(listening("'{{rank}}', '{{port}}'"), [None, None, None]);
    assert_eq!(listening("'{{master_addr}}:{{ master_port }}'"), [at(2000), None, None]);
    assert_eq!(listening("'{{ps_hosts}}'"), [None, None, at(2002)]);
    assert_eq!(listening("'{{hosts}}'"), [at(2000), at(2001), at(2002)]);
}

#[test]
fn tensorflow_has_its_cluster() {
    let text = "script: {file: train.py, roles: {ps: 1, worker: 1, chief: 1}}";
    let all = told(text, Framework::Tensorflow, 2);
    let config: Value = serde_json::from_str(variable(&all[1], "TF_CONFIG").unwrap()).unwrap();
    assert_eq!(
        config,
        json!({"cluster": {"chief": ["10.0.0.1:2000"], "worker": ["10.0.0.1:2001"],
                           "ps": ["10.0.0.2:2002"]},
               "task": {"type": "worker", "index": 0}})
    );
    assert_eq!(all[0].meeting, None);
    assert_eq!(all[2].meeting, Some(Meeting::Listens(2002)));
    let alone = told("script: {file: train.py}", Framework::Tensorflow, 1);
    assert_eq!(variable(&alone[0], "TF_CONFIG"), None);
}

#[test]
fn clusters_of_tensorflow_1_have_their_roles() {
    let config = |text: &str, which: usize| -> Value {
        let all = told(text, Framework::Tensorflow, 1);
        serde_json::from_str(variable(&all[which], "TF_CONFIG").unwrap()).unwrap()
    };
    let master = config("script: {file: a.py, roles: {master: 1, worker: 1, ps: 1}}", 0);
    assert_eq!(
        master,
        json!({"cluster": {"master": ["10.0.0.1:2000"], "worker": ["10.0.0.1:2001"],
                           "ps": ["10.0.0.1:2002"]},
               "task": {"type": "master", "index": 0}})
    );
    let none = config("script: {file: a.py, roles: {worker: 2, ps: 1}}", 1);
    assert_eq!(none["cluster"]["worker"], json!(["10.0.0.1:2000", "10.0.0.1:2001"]));
    assert_eq!(none["task"], json!({"type": "worker", "index": 1}));
}

#[test]
fn who_computes_nothing_sees_no_gpu() {
    let seen = |text: &str, framework| {
        let all = told(text, framework, 1);
        let of = |told: &Told| variable(told, "CUDA_VISIBLE_DEVICES").map(str::to_owned);
        all.iter().map(of).collect::<Vec<_>>()
    };
    let (none, first) = (Some(String::new()), Some("0".to_owned()));
    let servers = "script: {file: a.py, per_machine: gpu, roles: {chief: 1, ps: 1}}";
    assert_eq!(seen(servers, Framework::Tensorflow), [none.clone(), none.clone(), first]);
    let counted = "script: {file: a.py, roles: {chief: 1, worker: 1, ps: 1}}";
    assert_eq!(seen(counted, Framework::Tensorflow), [none.clone(), None, none]);
    // Without parameter servers a chief computes as workers do.
    let mirrored = "script: {file: a.py, roles: {chief: 1, worker: 1}}";
    assert_eq!(seen(mirrored, Framework::Tensorflow), [None, None]);
    let asked = "script: {file: a.py, roles: {worker: 1, ps: 1}, env: {CUDA_VISIBLE_DEVICES: '1'}}";
    assert_eq!(seen(asked, Framework::Plain), [None, None], "as the recipe says");
}

#[test]
fn variables_of_the_recipe_have_fields() {
    let text = "script: {file: a.py, env: {SHARD: '{{rank}}/{{world_size}}', PLAIN: x}}, \
                pool: {workers: 2}";
    let all = told(text, Framework::Plain, 1);
    assert_eq!(variable(&all[1], "SHARD"), Some("1/2"));
    assert_eq!(variable(&all[1], "PLAIN"), None, "it is set with the others");
}

#[test]
fn pytorch_has_ranks() {
    let all = told("script: {file: train.py}, pool: {workers: 3}", Framework::Pytorch, 2);
    let of = |name| all.iter().map(|t| variable(t, name).unwrap()).collect::<Vec<_>>();
    assert_eq!(of("RANK"), ["0", "1", "2"]);
    assert_eq!(of("LOCAL_RANK"), ["0", "1", "0"]);
    assert_eq!(of("LOCAL_WORLD_SIZE"), ["2", "2", "1"]);
    assert_eq!(of("MASTER_ADDR"), ["10.0.0.1"; 3]);
    assert_eq!(all[0].meeting, Some(Meeting::Listens(2000)));
    assert_eq!(all[2].meeting, Some(Meeting::Connects(2000)));
}

#[test]
fn launchers_are_told_of_each_other() {
    let text = "script: {file: train.py, launcher: torchrun, max_restarts: 4}, \
                pool: {workers: {min: 2, max: 4}}";
    let all = told(text, Framework::Pytorch, 2);
    let line = all[1].command.join(" ");
    for words in [
        "python3 -m torch.distributed.run --nnodes=1:2 --nproc-per-node=2 --max-restarts=4",
        "--rdzv-id=x-1-2 --rdzv-backend=c10d --rdzv-endpoint=10.0.0.1:2000",
        "--rdzv-conf=is_host=0,keep_alive_interval=1",
        "--local-addr=10.0.0.2 train.py",
    ] {
        assert!(line.contains(words), "{line}");
    }
    let mpi = told("script: {file: train.py}, pool: {workers: 3}", Framework::Mpi, 2);
    assert_eq!(
        mpi[0].command.join(" "),
        "mpirun --host 10.0.0.1:2,10.0.0.2:1 -np 3 python3 -m mpi4py train.py"
    );
    let many = "script: {file: train.py, launcher_options: [--tag-output]}, pool: {workers: 9}";
    let line = told(many, Framework::Mpi, 2)[0].command.join(" ");
    assert!(line.contains(" -np 9 --oversubscribe --bind-to none --tag-output python3"), "{line}");
}

#[test]
fn horovod_knows_who_is_across() {
    let all = told("script: {file: train.py}, pool: {workers: 4}", Framework::Horovod, 2);
    let of = |name| all[..4].iter().map(|t| variable(t, name).unwrap()).collect::<Vec<_>>();
    assert_eq!(all[4].command, ["/proc/self/exe", "agent", "rendezvous", "2004"]);
    assert_eq!(of("HOROVOD_GLOO_RENDEZVOUS_PORT"), ["2004"; 4]);
    assert_eq!(of("HOROVOD_SIZE"), ["4"; 4]);
    assert_eq!(of("HOROVOD_LOCAL_RANK"), ["0", "1", "0", "1"]);
    assert_eq!(of("HOROVOD_CROSS_RANK"), ["0", "0", "1", "1"]);
    assert_eq!(of("HOROVOD_CROSS_SIZE"), ["2"; 4]);
}
