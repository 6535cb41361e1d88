//! Servers without blocks, and processes that go on in the place of others.

use super::*;

#[test]
fn servers_without_blocks_go_along() {
    for index in [0, 1] {
        let identity = Identity { tag: [0; 32], boot: [0; 16] };
        let place = Place { index, identity, backing: Backing::Shared(Shared::default()) };
        let log = || Arc::new(|_: &str| {});
        let server = Server::new(&recipe(false), &facts(), place.clone(), log()).unwrap();
        let heard = Heard::default();
        order(&server, ToServer::Begin { blocks: 0..0, source: Source::Seed, step: 0 }, &heard);
        round(&server, 0, 0..1, &heard);
        heard.said();
        push(&server, B, Push::Follow { step: 0 }, &[], &heard);
        let sha256 = sha256([]);
        assert_eq!(heard.said(), [FromServer::Pulled { worker: 1, step: 0, sha256 }]);
        for s in (0..2).filter(|_| index == 0) {
            let (message, values) = shard(0, s);
            push(&server, B, message, &values, &heard);
        }
        let said = heard.said();
        assert!(!said.contains(&FromServer::Applied { step: 0 }), "it has nothing to apply");
        order(&server, ToServer::Commit { step: 0 }, &heard);
        drop(server);
        let server = Server::new(&recipe(false), &facts(), place, log()).unwrap();
        let kept = Kept { blocks: 0..0, steps: vec![1], snapshot: None };
        assert_eq!(server.kept(), Some(kept));
    }
}

#[test]
fn a_server_without_blocks_goes_on_from_what_others_have_kept() {
    let identity = Identity { tag: [0; 32], boot: [0; 16] };
    let kept_at = |blocks| ToServer::Begin { blocks, source: Source::Kept, step: 5 };
    for index in [0, 1] {
        let place = Place { index, identity, backing: Backing::Shared(Shared::default()) };
        let log = Arc::new(|_: &str| {});
        let server = Server::new(&recipe(false), &facts(), place, log).unwrap();
        let heard = Heard::default();
        // Server 0 has a state to lose, and so has every server with blocks.
        assert!(server.order(&kept_at(2..3), &heard).is_err());
        assert_eq!(server.order(&kept_at(3..3), &heard).is_ok(), index == 1);
        let expected = if index == 1 { vec![FromServer::Ready] } else { vec![] };
        assert_eq!(heard.said(), expected);
    }
}

#[test]
fn another_process_goes_on_with_the_same_bits() {
    let (plain, heard) = (server(&Shared::default(), false), Heard::default());
    begin(&plain, Source::Seed, 0, &heard);
    let mut expected = vec![values(&plain, 0)];
    for step in 0..5 {
        take(&plain, step, &heard);
        expected.push(values(&plain, step + 1));
    }

    let shared = Shared::default();
    let first = server(&shared, false);
    begin(&first, Source::Seed, 0, &heard);
    take(&first, 0, &heard);
    take(&first, 1, &heard);
    let folder = tempfile::tempdir().unwrap();
    let folder_name = folder.path().to_str().unwrap().to_string();
    let save = ToServer::Save { step: 2, folder: folder_name };
    let unwritten = order(&first, save.clone(), &heard).unwrap();
    take(&first, 2, &heard);
    // Another copy is refused while this one is to be written, the same is not.
    heard.said();
    let other = ToServer::Save { step: 3, folder: String::new() };
    assert!(order(&first, other, &heard).is_none());
    assert!(matches!(heard.said()[..], [FromServer::NotSaved { step: 3, .. }]));
    assert!(order(&first, save.clone(), &heard).is_some());
    // Half of the next step, and it is killed.
    let (message, bulk) = gradient(3, 0, 1);
    push(&first, A, message, &bulk, &heard);
    drop((unwritten, first));

    let second = server(&shared, false);
    let kept = Kept { blocks: BLOCKS, steps: vec![3], snapshot: Some(2) };
    assert_eq!(second.kept(), Some(kept.clone()));
    heard.said();
    let kept_at = |step| ToServer::Begin { blocks: BLOCKS, source: Source::Kept, step };
    let trouble = second.order(&kept_at(2), &heard).unwrap_err();
    assert!(trouble.message.contains("there are those after 3"), "{}", trouble.message);
    begin(&second, Source::Kept, 3, &heard);
    // The checkpoint that was under way is written from the copy.
    let snapshot = order(&second, save, &heard).unwrap();
    let written = snapshot.write();
    assert!(matches!(written, FromServer::Saved { step: 2, .. }), "{written:?}");
    drop(snapshot);
    assert_eq!(second.kept(), Some(kept));
    // All that is left is that one region; a third process has what the second has.
    for (message, bulk) in [shard(3, 1), gradient(3, 1, 1), gradient(3, 0, 1), shard(3, 0)] {
        push(&second, B, message, &bulk, &heard);
    }
    drop(second);
    let third = server(&shared, false);
    assert_eq!(third.kept().unwrap().steps, [3, 4]);
    // The coordinator had committed it: other servers have.
    heard.said();
    begin(&third, Source::Kept, 4, &heard);
    assert_eq!(values(&third, 4), expected[4]);
    // Another generation, with other segments, takes the same step again.
    push(&third, A, gradient(4, 0, 1).0, &gradient(4, 0, 1).1, &heard);
    order(&third, kept_at(4), &heard);
    heard.said();
    assert!(server(&Shared::default(), false).kept().is_none());
    round(&third, 4, 0..2, &heard);
    let (message, bulk) = gradient(4, 0, 2);
    push(&third, A, message, &bulk, &heard);
    for s in 0..2 {
        let (message, bulk) = shard(4, s);
        push(&third, A, message, &bulk, &heard);
    }
    order(&third, ToServer::Commit { step: 4 }, &heard);
    assert_eq!(values(&third, 5), expected[5]);

    // Back to the checkpoint of step 2, with other servers.
    let FromServer::Saved { file, sha256, bytes, .. } = written else { unreachable!() };
    manifest(folder.path(), PartInfo { file, sha256, bytes });
    let source = Source::Checkpoint(folder.path().to_str().unwrap().into());
    order(&third, ToServer::Begin { blocks: 0..1, source: source.clone(), step: 2 }, &heard);
    assert_eq!(third.kept().unwrap().blocks, 0..1);
    let trouble = third.order(&kept_at(2), &heard).unwrap_err();
    assert!(trouble.message.contains("blocks 0..1 are"), "{}", trouble.message);
    heard.said();
    begin(&third, source, 2, &heard);
    assert_eq!(values(&third, 2), expected[2]);
    take(&third, 2, &heard);
    assert_eq!(values(&third, 3), expected[3]);
}

fn manifest(folder: &std::path::Path, info: PartInfo) {
    let step = 2;
    let manifest = Manifest {
        format: FORMAT,
        planaria: String::new(),
        build: String::new(),
        generation: 1,
        step,
        recipe_sha256: String::new(),
        recipe: String::new(),
        data: Vec::new(),
        state: State { step, ..State::default() },
        parameters: PARAMETERS as u64,
        state_values: STATE as u64,
        slots: optimizer::slots(&recipe(false).train.optimizer) as u32,
        parts: vec![Part { start: 0, end: PARAMETERS as u64, info }],
    };
    manifest.write(folder).unwrap();
}
