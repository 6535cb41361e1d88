//! Python with the frameworks of users' scripts, as `./dev test` installs it.

use std::io::Write;
use std::process::{Command, Stdio};

/// One that has PyTorch, TensorFlow and JAX.
pub struct Python {
    /// Its full path.
    pub program: String,
    /// The folders that it consists of, besides `/usr`; at the same place on every machine.
    pub folders: Vec<String>,
}

impl Python {
    /// That of `PLANARIA_PYTHON`; nothing, with a word why, where it is not set. Where all tests
    /// must run that is an error.
    #[track_caller]
    pub fn find() -> Option<Self> {
        let Ok(program) = std::env::var("PLANARIA_PYTHON") else {
            let why = "PLANARIA_PYTHON is not set (`./dev test` installs PyTorch and sets it)";
            let must = std::env::var_os("PLANARIA_REQUIRE_FRAMEWORKS");
            assert!(
                must.is_none_or(|value| value != "1"),
                "PLANARIA_REQUIRE_FRAMEWORKS=1, but {why}"
            );
            let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
            return None;
        };
        let asked = Command::new(&program)
            .args(["-c", "import sys; print(sys.prefix); print(sys.base_prefix)"])
            .stdin(Stdio::null())
            .output()
            .unwrap_or_else(|error| panic!("PLANARIA_PYTHON={program}: {error}"));
        assert!(asked.status.success(), "{program}: {}", String::from_utf8_lossy(&asked.stderr));
        let said = String::from_utf8(asked.stdout).expect("paths are text");
        let mut folders: Vec<String> =
            said.lines().filter(|line| *line != "/usr").map(str::to_owned).collect();
        folders.dedup();
        Some(Self { program, folders })
    }

    /// As `docker` wants mounts to be written.
    pub fn mounts(&self) -> Vec<String> {
        self.folders.iter().map(|folder| format!("{folder}:{folder}:ro")).collect()
    }

    /// Options of `tests/hosts up`.
    pub fn options(&self) -> Vec<&str> {
        self.folders.iter().flat_map(|folder| ["--mount", folder.as_str()]).collect()
    }
}
