//! Outputs whose names meet: none takes another's place.

use super::*;

#[test]
fn a_folder_that_is_called_like_a_machine_keeps_its_files() {
    let mut scene = Scene::of(&["**"]);
    scene.one.made("out/x", "one", 5);
    scene.one.made("m2/out/x", "of one, in m2", 5);
    scene.two.made("out/x", "two", 5);
    scene.round(true);
    let all = [("out/x", "one"), ("m2/out/x", "of one, in m2"), ("m2~2/out/x", "two")];
    scene.holds(&all);
    assert_eq!(scene.outputs.files(), 3, "as many as there are");
    // The same the other way round: what comes later makes way.
    scene.one.made("out/z", "one", 5);
    scene.two.made("out/z", "two", 5);
    scene.round(true);
    scene.one.made("m2/out/z", "of one, in m2", 5);
    scene.round(true);
    let more = [("out/z", "one"), ("m2/out/z", "two"), ("m1/m2/out/z", "of one, in m2")];
    scene.holds(&[all, more].concat());
    assert_eq!(scene.outputs.files(), 6);
    assert!(scene.round(true).fetched.is_empty(), "nothing has changed since");
}

#[test]
fn a_file_that_is_called_like_a_machine_is_in_no_way() {
    let mut scene = Scene::of(&["**"]);
    scene.one.made("m2", "a file", 5);
    scene.one.made(".fetching", "a name of ours", 5);
    scene.one.made("out/x", "one", 5);
    scene.two.made("out/x", "two", 5);
    scene.round(true);
    let ours = ("m1/.fetching", "a name of ours");
    scene.holds(&[ours, ("m2", "a file"), ("out/x", "one"), ("m2~2/out/x", "two")]);
}
