//! What belongs to a folder of code.

use super::*;

#[test]
fn a_folder_holds_what_git_would_keep() {
    let folder = temporary();
    let root = folder.path();
    for (path, text) in [
        ("train.py", "x"),
        (".env.example", "hidden files count"),
        (".gitignore", "*.bin\nbuild/\n!keep.bin\n"),
        ("a.bin", "ignored"),
        ("keep.bin", "kept all the same"),
        ("build/x", "ignored"),
        ("lib/.gitignore", "local.txt\n"),
        ("lib/local.txt", "ignored"),
        ("lib/m.py", "m"),
        (".planariaignore", "big/\n"),
        ("big/x", "left out"),
        ("lib/__pycache__/m.pyc", "never"),
        ("env/pyvenv.cfg", "never"),
        ("env/bin/python", "never"),
        ("runs/one/events.jsonl", "ours"),
        (".git/config", "never"),
        (".git/info/exclude", "excluded.txt\n"),
        ("excluded.txt", "ignored"),
    ] {
        write(root, path, text);
    }
    fs::create_dir_all(root.join("checkpoints")).unwrap();
    let code = Code::read(root, &[root.join("runs")]).unwrap();
    let expect = [
        ".env.example",
        ".gitignore",
        ".planariaignore",
        "checkpoints",
        "keep.bin",
        "lib/.gitignore",
        "lib/m.py",
        "train.py",
    ];
    assert_eq!(paths(&code), expect);
    // Without a repository the same, but for what only it excludes; and nothing from above counts.
    fs::remove_dir_all(root.join(".git")).unwrap();
    write(root, "sub/.gitignore", "");
    write(root, "sub/a.bin", "x");
    let code = Code::read(&root.join("sub"), &[]).unwrap();
    assert_eq!(paths(&code), [".gitignore", "a.bin"]);
    fs::create_dir(root.join(".git")).unwrap();
    let code = Code::read(&root.join("sub"), &[]).unwrap();
    assert_eq!(paths(&code), [".gitignore"], "in a repository what is above counts");
}

#[test]
fn git_itself_sees_the_same_files() {
    let folder = temporary();
    let root = folder.path();
    write(root, ".gitignore", "/out\n*.log\ndata/**\n!data/small/\n!data/small/**\n# x\n\\#y\n");
    for path in ["out/x", "a/out/x", "a/b.log", "data/big/x", "data/small/y", "#y", "a b/ü.py"] {
        write(root, path, path);
    }
    let git = |arguments: &[&str]| {
        let ran = Command::new("git").arg("-C").arg(root).args(arguments).output().unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        String::from_utf8(ran.stdout).unwrap()
    };
    git(&["init", "-q"]);
    let listed = git(&["ls-files", "-z", "--others", "--exclude-standard"]);
    let mut expect: Vec<&str> = listed.split('\0').filter(|path| !path.is_empty()).collect();
    expect.sort_unstable();
    let code = Code::read(root, &[]).unwrap();
    let files = code.bundle.entries.iter().filter(|e| matches!(e.what, What::File { .. }));
    assert_eq!(files.map(|entry| entry.path.as_str()).collect::<Vec<_>>(), expect);
}

#[test]
fn links_stay_inside_or_are_told_of() {
    let (folder, elsewhere) = (temporary(), temporary());
    let root = folder.path();
    write(root, "a/real.py", "r");
    write(elsewhere.path(), "small.txt", "small");
    write(elsewhere.path(), "data/deep/x", "x");
    symlink(".", elsewhere.path().join("data/circle")).unwrap();
    write(root, ".gitignore", "ignored");
    write(root, "ignored/y", "y");
    symlink("ignored", root.join("to-ignored")).unwrap();
    symlink("real.py", root.join("a/link.py")).unwrap();
    symlink(root.join("a"), root.join("absolute")).unwrap();
    symlink(elsewhere.path().join("small.txt"), root.join("small")).unwrap();
    symlink(elsewhere.path().join("data"), root.join("data")).unwrap();
    symlink("missing", root.join("broken")).unwrap();
    let listing = Listing::read(root, &[]).unwrap();
    let notes = listing.notes.join("\n");
    assert!(notes.contains("`broken`") && notes.contains("`to-ignored`"), "{notes}");
    assert!(!notes.contains("`data`"), "{notes}");
    let code = listing.hash(&mut |_, _| {}).unwrap();
    let all = [".gitignore", "a/link.py", "a/real.py", "absolute", "data/deep/x", "small"];
    assert_eq!(paths(&code)[..6], all);
    let what = |at: usize| &code.bundle.entries[at].what;
    assert_eq!(*what(1), What::Link { to: "real.py".into() });
    assert_eq!(*what(3), What::Link { to: "a".into() });
    assert!(matches!(what(5), What::File { bytes: 5, .. }));
    // More than can be meant as code is data.
    let big = File::create(elsewhere.path().join("data/big")).unwrap();
    big.set_len(1 << 30).unwrap();
    let notes = Listing::read(root, &[]).unwrap().notes.join("\n");
    assert!(notes.contains("`data` is a link") && notes.contains("`script.data`"), "{notes}");
    drop(big);
    fs::remove_file(elsewhere.path().join("data/big")).unwrap();

    let home = temporary();
    let place = Place::open("m1", home.path());
    place.lay(root);
    for (path, text) in
        [("a/link.py", "r"), ("absolute/real.py", "r"), ("data/deep/x", "x"), ("small", "small")]
    {
        assert_eq!(place.reads(path), text);
    }
    place.end();
}

#[test]
fn what_is_no_file_is_refused_by_name() {
    let folder = temporary();
    let _socket = std::os::unix::net::UnixListener::bind(folder.path().join("s.sock")).unwrap();
    let error = Code::read(folder.path(), &[]).unwrap_err();
    let said = error.to_string();
    assert!(matches!(error, Unlisted::Special { .. }) && said.contains("s.sock"), "{said}");
    assert!(said.contains("a socket") && said.contains(".planariaignore"), "{said}");
    let said = Code::read(&folder.path().join("no"), &[]).unwrap_err().to_string();
    assert!(said.starts_with("cannot read `") && said.contains("/no`"), "{said}");
}

#[test]
fn a_large_folder_is_told_of_before_it_is_read() {
    let folder = temporary();
    write(folder.path(), "train.py", "x");
    assert_eq!(Listing::read(folder.path(), &[]).unwrap().warning(), None);
    // With a hole: it takes no room.
    write(folder.path(), "data/train.bin", "");
    let file = File::options().write(true).open(folder.path().join("data/train.bin")).unwrap();
    file.set_len(3 << 30).unwrap();
    let listing = Listing::read(folder.path(), &[]).unwrap();
    let said = listing.warning().expect("it is large");
    for part in ["2 files, 3.0 GiB", "`data/train.bin` (3.0 GiB)", "`data` (", ".planariaignore"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert_eq!(listing.largest()[0], ("data/train.bin".to_owned(), 3 << 30));
}

#[test]
fn too_many_files_are_an_error_that_names_folders() {
    let folder = temporary();
    write(folder.path(), "train.py", "");
    for n in 0..100 {
        write(folder.path(), &format!("many/{n}"), "");
    }
    let error = Listing::read_up_to(50, folder.path(), &[]).unwrap_err().to_string();
    assert!(error.contains("more than 50 files") && error.contains("`many` ("), "{error}");
    assert!(Listing::read_up_to(102, folder.path(), &[]).is_ok());
}
