//! Data of ten times the memory that a process may have: every process of a run keeps within its
//! limit, and learns the same.

use crate::binary::{Place, talk};
use crate::live::figures;
use serde_json::Value;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;

/// What each process may allocate.
const LIMIT_BYTES: u64 = 80 << 20;
const PIXELS: u64 = 28 * 28;
/// Ten times as much.
const IMAGES: u64 = 10 * LIMIT_BYTES / PIXELS + 1;

const RECIPE: &str = "
name: larger
seed: 3
data:
  train: set
  examples: 3000
  validation: 0.1
model:
  layers:
    - Flatten
    - Dense: {units: 10}
train:
  epochs: 2
  batch: 100
  optimizer: {sgd: {learning_rate: 0.1}}
";

/// Most images are holes in the file, which take no room on the disk; some hold something.
fn place() -> Place {
    let place = Place::new();
    fs::write(place.path().join("larger.yaml"), RECIPE).unwrap();
    fs::create_dir(place.path().join("set")).unwrap();
    let create = |name: &str, dimensions: &[u32]| {
        let file = File::create(place.path().join("set").join(name)).unwrap();
        let mut header = vec![0, 0, 8, dimensions.len() as u8];
        dimensions.iter().for_each(|d| header.extend(d.to_be_bytes()));
        file.write_all_at(&header, 0).unwrap();
        (file, header.len() as u64)
    };
    let (images, start) = create("train-images-idx3-ubyte", &[IMAGES as u32, 28, 28]);
    images.set_len(start + IMAGES * PIXELS).unwrap();
    for id in (0..IMAGES).step_by(16) {
        let image: Vec<u8> = (0..PIXELS).map(|i| (i * (id / 16 + 1) % 256) as u8).collect();
        images.write_all_at(&image, start + id * PIXELS).unwrap();
    }
    let (labels, start) = create("train-labels-idx1-ubyte", &[IMAGES as u32]);
    let classes: Vec<u8> = (0..IMAGES).map(|id| (id / 16 % 10) as u8).collect();
    labels.write_all_at(&classes, start).unwrap();
    place
}

fn train(place: &Place, options: &[&str], limit: Option<u64>) -> Value {
    let mut command = place.command(&["train", "larger.yaml", "--json", "-q"]);
    command.args(options);
    if let Some(bytes) = limit {
        // SAFETY: `setrlimit` may be called between fork and exec, and reads one value.
        unsafe {
            command.pre_exec(move || {
                let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
                match libc::setrlimit(libc::RLIMIT_DATA, &limit) {
                    0 => Ok(()),
                    _ => Err(std::io::Error::last_os_error()),
                }
            });
        }
    }
    let output = command.output().expect("the binary runs");
    assert_eq!(output.status.code(), Some(0), "{options:?}: {}", talk(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_data_set_of_ten_times_the_memory_trains() {
    let place = place();
    let one = train(&place, &["--threads", "1"], Some(LIMIT_BYTES));
    assert_eq!(one["outcome"], "completed");
    let many = ["--threads", "1", "--workers", "2", "--servers", "1"];
    assert_eq!(figures(&train(&place, &many, Some(LIMIT_BYTES))), figures(&one));
    assert_eq!(figures(&train(&place, &["--threads", "1"], None)), figures(&one));
}
