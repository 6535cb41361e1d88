//! Machines that go back to what all had at one moment.

use super::*;

#[test]
fn after_a_loss_all_machines_go_back_to_the_newest_whole_set() {
    let mut scene = Scene::new();
    let home = temporary();
    let three = Place::open("m3", home.path());
    three.lay(scene._folders[0].path());
    let save = |place: &Place, rank: u32, epoch: u32, ago: i64| {
        place.made(&format!("out/ckpt-{rank}"), &epoch.to_string(), ago);
        place.made(&format!("out/step-{epoch}/{rank}.pt"), &epoch.to_string(), ago);
    };
    for (rank, place) in [(0, &scene.one), (1, &scene.two), (2, &three)] {
        save(place, rank, 4, 60);
        place.made(&format!("out/log-{rank}"), "4\n", 60);
    }
    let now = || Duration::from_secs(1000);
    let all = [("m1", &scene.one.remote), ("m2", &scene.two.remote), ("m3", &three.remote)];
    scene.outputs.round(&all, false, &now);
    for log in ["4\n5\n", "4\n5\n6\n"] {
        scene.one.made("out/log-0", log, 50);
        scene.outputs.round(&all, false, &now);
    }
    // The third has not written its next part yet, whether it is brought here or not.
    save(&scene.one, 0, 5, 3);
    save(&scene.two, 1, 5, 3);
    scene.outputs.round(&all, false, &now);
    scene.one.made("out/log-0", "4\n5\n6\n7\n", 1);
    // It is lost, and another takes its place.
    let home = temporary();
    let new = Place::open("m4", home.path());
    new.lay(scene._folders[0].path());
    let left = [("m1", &scene.one.remote), ("m2", &scene.two.remote), ("m4", &new.remote)];
    let levelled = scene.outputs.level(&left, &|| Duration::from_secs(1009)).unwrap();
    let loss = levelled.loss.expect("a part is lost");
    let lost = ["out/ckpt-2", "out/log-2", "out/step-4/2.pt"].map(str::to_owned).to_vec();
    assert_eq!(loss.lost, BTreeMap::from([("m3".to_owned(), lost)]));
    let age = Duration::from_secs(9);
    assert_eq!(loss.back, Some(outputs::Back { age, replaced: 2, removed: 2 }));
    for place in [&scene.one, &scene.two, &new] {
        for rank in 0..3 {
            assert_eq!(place.reads(&format!("out/ckpt-{rank}")), "4");
            assert_eq!(place.reads(&format!("out/step-4/{rank}.pt")), "4");
        }
        assert_eq!(place.reads("out/log-0"), "4\n5\n6\n7\n", "a log goes on");
        assert!(!place.work("out/step-5").exists(), "a later step without all of its parts");
    }
    // What was replaced or taken off is kept apart.
    for (path, text) in [
        ("out/ckpt-0", "4"),
        ("m1/out/ckpt-0", "5"),
        ("m2/out/ckpt-1", "5"),
        ("m1/out/step-5/0.pt", "5"),
        ("m2/out/step-5/1.pt", "5"),
    ] {
        assert_eq!(fs::read_to_string(scene.kept.join(path)).unwrap(), text, "{path}");
    }
    // The new one is lost as well, before anything of what it wrote was seen here.
    save(&scene.one, 0, 6, 1);
    save(&scene.two, 1, 6, 1);
    let left = [("m1", &scene.one.remote), ("m2", &scene.two.remote)];
    let levelled = scene.outputs.level(&left, &|| Duration::from_secs(1020)).unwrap();
    assert!(levelled.loss.is_some_and(|loss| loss.back.is_some()));
    assert_eq!(scene.one.reads("out/ckpt-0"), "4");
    assert!(!scene.two.work("out/step-6").exists());
    scene.outputs.end();
    assert!(!scene.kept.with_file_name(".whole").exists());
    three.end();
    new.end();
}
