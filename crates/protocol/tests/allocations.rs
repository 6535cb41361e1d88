//! Frames are sent and received without allocating: an allocator that counts says so.

use planaria_numerics::digest::Digest;
use planaria_protocol::message::{Agent, Pull, Push};
use planaria_protocol::tls::Authority;
use planaria_protocol::{Credentials, Secret, accept, connect};
use std::alloc::{GlobalAlloc, Layout, System};
use std::net::TcpListener;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

struct Counting;

static COUNT: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.fetch_add(1, Ordering::SeqCst);
        // SAFETY: forwarded.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        // SAFETY: forwarded.
        unsafe { System.dealloc(p, layout) }
    }
    unsafe fn realloc(&self, p: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        COUNT.fetch_add(1, Ordering::SeqCst);
        // SAFETY: forwarded.
        unsafe { System.realloc(p, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const BLOCK: usize = 400_000;

/// Tells the server to read nothing for a while.
const PAUSE: Push = Push::Follow { step: u64::MAX };

// One test: two would count each other's.
#[test]
fn frames_allocate_nothing() {
    let secret = Secret::random().expect("random bytes");
    let trust = Authority::new("test", 1.8e9)
        .and_then(|a| a.issue(Agent::Server(0), None, std::time::Duration::ZERO))
        .expect("a certificate");
    let sealed = Credentials::new(secret.clone(), Some(&trust), None).expect("a credentials");
    exchange_frames(&Credentials::plain(secret));
    exchange_frames(&sealed);
}

fn exchange_frames(credentials: &Credentials) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound").to_string();
    let pause = Barrier::new(2);
    thread::scope(|scope| {
        // A server: gradients and shards in, parameters out.
        scope.spawn(|| {
            let stream = listener.accept().expect("a connection").0;
            let (sender, mut receiver) = accept(stream, credentials, 1).expect("accepted");
            let mut block = vec![0; BLOCK];
            while let Some(incoming) = receiver.receive::<Push>().expect("whole") {
                receiver.read_bulk(&mut block[..incoming.bulk_bytes]).expect("read");
                match incoming.message {
                    PAUSE => drop(pause.wait()),
                    Push::Unfollow => {}
                    Push::Follow { step } => {
                        for first_block in 0..step as u32 {
                            let parameters = Pull::Parameters { step, first_block };
                            sender.send_with(&parameters, &block).expect("sent");
                        }
                        pause.wait();
                    }
                    Push::Shard { step, .. } => {
                        let parameters = Pull::Parameters { step, first_block: 0 };
                        sender.send_with(&parameters, &block).expect("sent");
                    }
                    Push::State { .. } | Push::Gradient { .. } => {}
                }
            }
        });
        let (sender, mut receiver) =
            connect(&address, credentials, Agent::Server(0), Some(1)).expect("connected");
        let gradient = vec![1; BLOCK];
        let mut block = vec![0; BLOCK];
        let mut step = |step: u64, frames: u32, is_paused: bool| {
            if is_paused {
                sender.send(&PAUSE).expect("sent");
            }
            for first_block in 0..frames {
                let push = Push::Gradient { step, first_shard: 0, shards: 1, first_block };
                sender.send_with(&push, &gradient[first_block as usize..]).expect("sent");
            }
            if is_paused {
                // Fewer frames may find room in the sockets.
                assert!(frames < 100 || sender.bytes_waiting() > 0, "nothing was queued");
                pause.wait();
            }
            let read = Digest { count: step, sum: u128::MAX };
            let shard = Push::Shard { step, shard: 0, loss_sum: 0.5, correct: 1, read };
            sender.send_with(&shard, &gradient[..400]).expect("sent");
            let mut hear = |step, first_block| {
                let incoming = receiver.receive::<Pull>().expect("whole").expect("not the end");
                assert_eq!(incoming.message, Pull::Parameters { step, first_block });
                receiver.read_bulk(&mut block).expect("read");
            };
            hear(step, 0);
            if is_paused {
                sender.send(&Push::Follow { step: frames.into() }).expect("sent");
                pause.wait();
                (0..frames).for_each(|first_block| hear(frames.into(), first_block));
            }
        };
        // Both queues of both ends come to be as long as they will be.
        (0..6).for_each(|n| step(n, 100, true));
        let before = COUNT.load(Ordering::SeqCst);
        (0..200).for_each(|n| step(n, 8, false));
        let straight = COUNT.load(Ordering::SeqCst);
        (0..3).for_each(|n| step(n, 60, true));
        let queued = COUNT.load(Ordering::SeqCst);
        sender.close();
        assert_eq!((straight - before, queued - straight), (0, 0), "allocations, straight, queued");
    });
}
