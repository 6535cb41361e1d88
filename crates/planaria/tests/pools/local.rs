//! Machines that are folders of this one.

use crate::conformance::{Bed, conformance};
use crate::talk::program;
use planaria_fleet::provider::Provider;
use planaria_fleet::providers::local::Local;

#[test]
fn local_machines_conform() {
    let root = tempfile::tempdir().expect("a folder");
    let program = program();
    conformance(&Bed {
        provider: &|| Box::new(Local::new(root.path())) as Box<dyn Provider>,
        program: &program,
        machines: 3,
        lose: &|_, pid| {
            // SAFETY: sends a signal to a host that this test has started.
            unsafe { libc::kill(pid as libc::pid_t, libc::SIGKILL) };
        },
        restore: &|_| {},
    });
    let left: Vec<_> = std::fs::read_dir(root.path()).expect("a folder").collect();
    assert!(left.is_empty(), "{left:?}");
}
