//! Scripts checked by a real Python, where there is one.

use super::*;
use std::os::unix::fs::PermissionsExt;

/// What Python says of a script; nothing where there is no Python here.
fn asked(source: &[u8]) -> Option<Checked> {
    match ask(source.to_vec(), PYTHON, Duration::from_secs(30)) {
        Checked::NoPython(_) => None,
        checked => Some(checked),
    }
}

#[test]
fn imports_tell_the_framework() {
    let check = |source: &str, framework: &str, servers: bool| match asked(source.as_bytes()) {
        Some(Checked::Script(script)) => {
            assert_eq!((script.framework(None), script.parameter_servers), (framework, servers));
        }
        None => {}
        other => panic!("{source}: {other:?}"),
    };
    check("import torch.nn as nn, os\n", "pytorch", false);
    check("def main():\n  from tensorflow import keras\n", "tensorflow", false);
    check("try:\n  import keras\nexcept ImportError: pass", "tensorflow", false);
    check("import torch, horovod.torch as hvd\n", "horovod", false);
    check("import jax, tensorflow as tf\n", "jax", false);
    check("from mpi4py import MPI\n", "mpi", false);
    check("import os\nos.environ['KERAS_BACKEND'] = 'jax'\nimport keras\n", "jax", false);
    let torch =
        "import os\nos.environ.setdefault('KERAS_BACKEND', 'torch')\nfrom keras import ops\n";
    check(torch, "pytorch", false);
    check(
        "import os\nos.environ['KERAS_BACKEND'] = 'tensorflow'\nimport keras",
        "tensorflow",
        false,
    );
    check(
        "from . import torch\nfrom .torch import x\n# import jax\n'import keras'",
        "plain",
        false,
    );
    check(
        "import tensorflow as tf\ns = tf.distribute.ParameterServerStrategy(r)",
        "tensorflow",
        true,
    );
    check("from tensorflow.distribute import ParameterServerStrategy as S", "tensorflow", true);
    check("# ParameterServerStrategy\n'ParameterServerStrategy'", "plain", false);
    check("\u{feff}print('漢')\n", "plain", false);
}

#[test]
fn mistakes_are_shown_where_they_are() {
    let check = |source: &[u8], line: usize, text: &str| match asked(source) {
        Some(Checked::Mistake(mistake)) => {
            assert_eq!(mistake.line, line, "{mistake:?}");
            let shown = mistake.failure(Path::new("train.py")).to_string();
            assert!(
                shown.contains("`train.py` is not Python: ") && shown.contains(text),
                "{shown}"
            );
        }
        None => {}
        other => panic!("{other:?}"),
    };
    let shown = "  --> train.py:2:7\n   |\n 2 | def f(:\n   |       ^\n";
    check(b"x = 1\ndef f(:\n  pass\n", 2, shown);
    check(b"x = 1\nreturn 3\n", 2, "2 | return 3\n   | ^");
    check("x = 1\n漢 = )\n".as_bytes(), 2, "2 | 漢 = )");
    check(b"print 'x'\n", 1, "1 | print 'x'");
    check(b"if 1:\nx\n", 2, "2 | x");
    // Versions differ in where this is too much for them.
    let deep = [b"(".repeat(5000), b")".repeat(5000)].concat();
    assert!(!matches!(asked(&deep), Some(Checked::Script(_))));
}

#[test]
fn what_python_cannot_say_is_not_a_mistake() {
    let ask = |python: &str, millis| {
        ask(b"import torch\n".to_vec(), python, Duration::from_millis(millis))
    };
    let missing = "no-such-python";
    assert_eq!(ask(missing, 99), Checked::NoPython(missing.into()));
    assert!(matches!(ask("/", 99), Checked::Unknown(why) if why.contains("cannot start `/`")));
    assert_eq!(ask("/bin/false", 9999), Checked::Unknown("`/bin/false` cannot check it".into()));
    let dir = tempfile::tempdir().unwrap();
    let slow = dir.path().join("slow");
    // Through a shell that is not replaced, as some installations start Python.
    fs::write(&slow, "#!/bin/sh\nsleep 60\ntrue\n").unwrap();
    fs::set_permissions(&slow, fs::Permissions::from_mode(0o755)).unwrap();
    let slow = slow.to_str().unwrap();
    // Another test may have forked while the file was open for writing.
    let answer = (0..50)
        .map(|_| ask(slow, 200))
        .find(|a| !matches!(a, Checked::Unknown(why) if why.contains("busy")));
    assert_eq!(answer, Some(Checked::Unknown(format!("`{slow}` did not answer within 0.2 s"))));
}

#[test]
fn files_that_are_no_scripts_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let refused = |name: &str, expect: &str| {
        let failure = check(&path(name), Some("no-such-python")).unwrap_err();
        assert_eq!(failure.exit, planaria_runs::failure::Exit::User);
        let message = failure.to_string();
        let named = message.contains(&format!("`{}`", path(name).display()));
        assert!(named && message.contains(expect), "{message}");
    };
    refused("none.py", "there is no script");
    refused("", "is a folder");
    fs::write(path("empty.py"), "\n \t\n").unwrap();
    refused("empty.py", "is empty");
    fs::write(path("latin.py"), b"x = 1\ny = '\xe9'\n").unwrap();
    refused("latin.py", "line 2 is not UTF-8");
    fs::write(path("binary.py"), b"\x7fELF\0\0").unwrap();
    refused("binary.py", "zero byte in line 1");
    File::create(path("large.py")).unwrap().set_len(100 << 20).unwrap();
    refused("large.py", "has 104857600 bytes");
    fs::write(path("file"), "x").unwrap();
    refused("file/x.py", "cannot read script");
    std::os::unix::net::UnixListener::bind(path("socket.py")).unwrap();
    refused("socket.py", "is not a file");
    // Python knows the encoding that a script names.
    fs::write(path("cookie.py"), b"# -*- coding: latin-1 -*-\ny = '\xe9'\n").unwrap();
    let checked = check(&path("cookie.py"), None).unwrap();
    assert!(matches!(checked, Checked::Script(_) | Checked::NoPython(_)), "{checked:?}");
    // Root reads what other users may not.
    fs::write(path("closed.py"), "x = 1\n").unwrap();
    fs::set_permissions(path("closed.py"), fs::Permissions::from_mode(0o000)).unwrap();
    if File::open(path("closed.py")).is_err() {
        refused("closed.py", "cannot read script");
    }
}
