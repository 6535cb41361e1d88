//! Figures from lines: tables of what scripts write, and of what they must not be taken from.

use super::*;
use serde_json::{Value, json};

/// The figures of one line, as in the file but for time and process.
fn figures(line: &str) -> Option<Value> {
    let point = Figures::new("worker-0").read(line, 1.5)?;
    let mut value = serde_json::to_value(&point).unwrap();
    let object = value.as_object_mut().unwrap();
    assert_eq!(object.remove("unix_seconds"), Some(json!(1.5)));
    assert_eq!(object.remove("process"), Some(json!("worker-0")));
    Some(value)
}

#[track_caller]
fn check(line: &str, expect: Value) {
    assert_eq!(figures(line), Some(expect), "{line}");
}

#[test]
fn objects_tell_figures() {
    check(
        r#"{"loss": 0.31, "step": 12, "note": "ok", "done": false}"#,
        json!({"loss": 0.31, "step": 12}),
    );
    check(
        r#" {"val": {"loss": 1, "by": {"class": [1], "a": 2}}}"#,
        json!({"val.loss": 1, "val.by.a": 2}),
    );
    check(
        r#"{"loss": NaN, "lr": 1e-3, "x": -Infinity}"#,
        json!({"loss": null, "learning_rate": 0.001, "x": null}),
    );
    check("{'loss': 0.6, 'epoch': 0.1, 'it\\'s \"x\"': None}", json!({"loss": 0.6, "epoch": 0.1}));
    check("{'loss': '0.6021', 'grad_norm': nan}", json!({"loss": 0.6021, "grad_norm": null}));
    check("{'eval_loss': 1.5, 'eval_runtime': 2}", json!({"eval_loss": 1.5, "eval_runtime": 2}));
    check("{'epoch': 3, 'reward': 2.5}", json!({"epoch": 3, "reward": 2.5}));
    let many: String = (0..200).map(|n| format!("\"k{n}\":{n},")).collect();
    let many = figures(&format!("{{{many}\"end\":1}}")).unwrap();
    assert_eq!(many.as_object().unwrap().len(), FIGURES_MAX);
    let deep = "{\"a\":".repeat(60) + "1" + &"}".repeat(60);
    assert_eq!(figures(&deep), None);
}

#[test]
fn words_tell_figures() {
    check("step=10 loss=0.31, lr=1e-3", json!({"step": 10, "loss": 0.31, "learning_rate": 0.001}));
    check("[loss=0.31] (acc=91%)", json!({"loss": 0.31, "accuracy": 0.91}));
    check("epoch=3 loss=nan x=-inf", json!({"epoch": 3, "loss": null, "x": null}));
    check(
        "INFO:trainer: Epoch 3 | loss=.5 | train/acc=0.5",
        json!({"epoch": 3, "loss": 0.5, "train/acc": 0.5}),
    );
    check(
        "val_loss=0.25 val_mae=+2 val/f1=0.5",
        json!({"validation_loss": 0.25, "validation_mae": 2, "validation_f1": 0.5}),
    );
    check("MAE=0.25 EPOCH=2", json!({"MAE": 0.25, "epoch": 2}));
    check("test accuracy=0.97", json!({"accuracy": 0.97}));
    check("loss=0.3(avg 0.4)", json!({"loss": 0.3}));
    check(
        "Epoch 1: 100%|██████████| 938/938 [00:12<00:00, 75.31it/s, loss=0.0421, acc=98.5%]",
        json!({"epoch": 1, "loss": 0.0421, "accuracy": 0.985}),
    );
    check("2024-05-01 10:00:00,123 INFO train.py:33 step=5 loss=2", json!({"step": 5, "loss": 2}));
}

#[test]
fn keras_tells_figures() {
    check(
        "accuracy: 0.91 - loss: 0.2 - val_loss: 0.3",
        json!({"accuracy": 0.91, "loss": 0.2, "validation_loss": 0.3}),
    );
    check(
        "32/32 ━━━━━━━━━━━━━━━━━━━━ 1s 2ms/step - accuracy: 0.9100 - loss: 1.2e-05",
        json!({"accuracy": 0.91, "loss": 1.2e-5}),
    );
    check("5/32 [===>......] - ETA: 1s - loss: nan", json!({"loss": null}));
    check(
        "938/938 - 2s - loss: 0.25 - accuracy: 0.93 - 2s/epoch - 2ms/step",
        json!({"loss": 0.25, "accuracy": 0.93}),
    );
    check("938/938 - 2s - 2ms/step - loss: 0.25", json!({"loss": 0.25}));
}

#[test]
fn measures_are_known_by_their_names() {
    check("Loss: 2.3", json!({"loss": 2.3}));
    check("Train Epoch: 1 [0/60000 (0%)]\tLoss: 2.300039", json!({"epoch": 1, "loss": 2.300039}));
    check(
        "Test set: Average loss: 0.0515, Accuracy: 9830/10000 (98%)",
        json!({"loss": 0.0515, "accuracy": 0.983}),
    );
    check(
        "Epoch: [3][ 10/100]\tTime  0.108 ( 0.241)\tData  0.000 ( 0.112)\tLoss 6.9e+00 (7.0e+00)\t\
         Acc@1   0.00 (  0.10)\tAcc@5   3.12 (  1.20)",
        json!({"epoch": 3, "loss": 6.9, "Acc@1": 0.0, "Acc@5": 3.12}),
    );
    check(" * Acc@1 12.300 Acc@5 30.100", json!({"Acc@1": 12.3, "Acc@5": 30.1}));
    check("loss = 0.5, step = 100", json!({"loss": 0.5, "step": 100}));
    check("INFO:tensorflow:loss = 0.5, step = 100 (2.1 sec)", json!({"loss": 0.5, "step": 100}));
    check("epoch: 6, train_loss: 0.11", json!({"epoch": 6, "train_loss": 0.11}));
    check(
        "2024-05-01 10:00:00,123 INFO train.py:33 epoch: 6 val_loss: 0.11",
        json!({"epoch": 6, "validation_loss": 0.11}),
    );
    check("[1,   200] loss: 1.234", json!({"loss": 1.234}));
}

#[test]
fn the_users_own_expressions_come_first() {
    let own = |name: &str, text: &str| BTreeMap::from([(name.to_owned(), text.to_owned())]);
    let metrics = Metrics::new(&own("loss", r"cost is (\S+)")).unwrap();
    let mut figures = Figures::with("worker-0", metrics);
    let mut loss = |line: &str| figures.read(line, 0.0).map(|point| point.figures["loss"].clone());
    assert_eq!(loss("the cost is 0.25 now"), Some(Number::from_f64(0.25)));
    assert_eq!(loss("loss=3 cost is 0.5"), Some(Number::from_f64(0.5)));
    assert_eq!(loss("the cost is high"), None);
    assert_eq!(loss("loss=3"), Some(Some(3.into())));
    let (name, why) = Metrics::new(&own("loss", "(a")).unwrap_err();
    assert_eq!((name.as_str(), why.as_str()), ("loss", "unclosed group"));
    let (_, why) = Metrics::new(&own("loss", "cost is [0-9.]+")).unwrap_err();
    assert_eq!(why, "it has no group around the number");
    assert!(Metrics::new(&own("loss", "cost is (?:a|b) [0-9.]+")).is_err());
    assert!(Metrics::new(&own("x", "(((a{99}){99}){99}){99}")).is_err(), "it is too large");
}

#[test]
fn an_epoch_counts_for_the_lines_after_it() {
    let mut figures = Figures::new("chief-0");
    let mut read =
        |line| figures.read(line, 0.0).map(|point| (point.epoch, point.figures["loss"].clone()));
    assert_eq!(read("Epoch 3/10"), None);
    assert_eq!(read("1/1 ━━━━ 1s 2ms/step - loss: 2"), Some((Some(3.into()), Some(2.into()))));
    assert_eq!(read("loss=1"), Some((Some(3.into()), Some(1.into()))));
    assert_eq!(read("epoch=4 loss=1"), Some((Some(4.into()), Some(1.into()))));
    assert_eq!(read("loss=1"), Some((Some(4.into()), Some(1.into()))));
}

#[test]
fn ordinary_text_tells_none() {
    for line in [
        "",
        "downloading 3 files",
        "loaded 60000 examples in 1.3 s",
        "loss is 0.3 now",
        "error: 3 of 4 workers failed",
        "python train.py --lr=0.1 --epochs=3",
        "+ lr=0.1 python train.py",
        "$ OMP=1.5 ./x",
        "torchrun --nproc_per_node=2 train.py batch=32",
        "TF_CONFIG={\"cluster\": {\"worker\": [\"h1:2222\"]}, \"task\": {\"type\": \"worker\", \"index\": 0}}",
        "{\"cluster\": {\"worker\": [\"h1:2222\"]}, \"task\": {\"type\": \"worker\", \"index\": 0}}",
        "OMP_NUM_THREADS=1 WORLD_SIZE=4 RANK=0 CUDA_VISIBLE_DEVICES=0",
        "export MASTER_PORT=29500",
        "  restart_count=0",
        "  master_port=29500",
        "  group_rank=0",
        "  local_ranks=[0, 1]",
        "Namespace(batch_size=32, lr=0.1, epochs=3, seed=1)",
        "(conv1): Conv2d(1, 32, kernel_size=(3, 3), stride=1, padding=0.5)",
        "Adam(lr=0.001, betas=(0.9, 0.99))",
        "training with lr=0.1",
        "using dropout=0.5 and width=128 for all layers",
        "saved runs/lr=0.1/model.pt and runs/lr=0.1",
        "see https://example.org/page?a=1&b=2 or http://x/?lr=0.1",
        "GET /metrics?x=1 HTTP/1.1",
        "x == 3",
        "a=1&b=2",
        "/usr/lib/python3/x.py:12: UserWarning: call with axis=1 instead",
        "RuntimeError: size mismatch dim=1.5",
        "2024-05-01 10:00:00.1: I tensorflow/core/x.cc:12] Created device with memory: 12 -> device: 0, name: T4",
        "h1:12:34 [0] NCCL INFO Channel 00/02 : 0 1",
        "INFO - retries: 3",
        "ETA: 3",
        "time: 12:30 - zone: 2h",
        "{}",
        "{\"a\": \"b\"}",
        "{'a', 'b'}",
        "{'lr': 0.1, 'batch_size': 32, 'epochs': 10, 'name': 'x'}",
        "{'cat': 0, 'dog': 1}",
        "{not json: 3}",
        "[1, 2, 3]",
        "loss=0x1f",
        "loss=abc name=x",
        "=3 x= 3 -a=3 --=3",
        "--- step=3",
        "epoch=3",
        "timeout=30",
        "waiting for worker 1, connect_timeout=2.5 retries=3",
        "Epoch: 3",
        "the loss was 0.3 at the end",
        "using loss: 3 of them",
        "train.py:33: loss",
        "loss: computed in 3 s",
    ] {
        assert_eq!(figures(line), None, "{line}");
    }
}

#[test]
fn tracebacks_tell_none() {
    let mut figures = Figures::new("worker-1");
    let text = "Traceback (most recent call last):\n  File \"t.py\", line 3, in f\n    loss=0.5\nValueError loss=0.3\nloss=1";
    let all: Vec<Option<Point>> = text.lines().map(|line| figures.read(line, 0.0)).collect();
    assert_eq!(
        all.iter().map(Option::is_some).collect::<Vec<_>>(),
        [false, false, false, false, true]
    );
    assert_eq!(figures.read("[rank0]: Traceback (most recent call last):", 0.0), None);
    assert_eq!(figures.read("[rank0]:     loss=0.5", 0.0), None);
    assert_eq!(figures.read("[rank0]: KeyError loss=0.5", 0.0), None);
    assert!(figures.read("loss=0.5", 0.0).is_some());
}

#[test]
fn a_point_is_a_line_of_the_file() {
    let point =
        Figures::new("worker-0").read("epoch=2 step=7 loss=0.5 unix_seconds=3 process=4", 1.25);
    let expect =
        "{\"unix_seconds\":1.25,\"process\":\"worker-0\",\"epoch\":2,\"step\":7,\"loss\":0.5}\n";
    assert_eq!(point.unwrap().text(), expect);
}

#[test]
fn the_latest_is_told_in_order() {
    let (mut figures, mut latest) = (Figures::new("worker-0"), Latest::default());
    assert_eq!(latest.line(80), "");
    for line in
        ["Epoch 1", "b=2 loss=0.5 acc=0.25", "Epoch 2", "loss=0.123456 val_loss=nan", "step=9 a=1"]
    {
        figures.read(line, 0.0).iter().for_each(|point| latest.note(point));
    }
    let line =
        "epoch 2 · step 9 · loss 0.1235 · accuracy 0.25 · validation_loss not finite · a 1 · b 2";
    assert_eq!(latest.line(200), line);
    assert_eq!(latest.line(30), "epoch 2 · step 9 · loss 0.1235");
    assert_eq!(latest.figures()["accuracy"], Number::from_f64(0.25));
    for n in 0..500 {
        figures.read(&format!("k{n}=1"), 0.0).iter().for_each(|point| latest.note(point));
    }
    assert_eq!(latest.figures().len(), LATEST_MAX);
}
