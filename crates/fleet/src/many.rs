//! The same thing done for many, several at a time, and none waited for without an end.
//!
//! Owns the threads. Those that are not waited for any more end with the command.

use std::collections::VecDeque;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread::Builder;
use std::time::Duration;

/// Items that are worked on at a time.
const AT_ONCE_MAX: usize = 32;

/// Does the work for each item and tells what came of it, in the order of the ends; nothing for
/// those that were not done when no other ended for so long.
pub fn each<T, R>(
    items: Vec<T>,
    patience: Duration,
    work: impl Fn(&T) -> R + Send + Sync + 'static,
    mut done: impl FnMut(usize, Option<R>),
) where
    T: Send + 'static,
    R: Send + 'static,
{
    let count = items.len();
    let waiting: VecDeque<(usize, T)> = items.into_iter().enumerate().collect();
    let (waiting, work) = (Arc::new(Mutex::new(waiting)), Arc::new(work));
    let (tell, told) = channel();
    for _ in 0..count.min(AT_ONCE_MAX) {
        let (waiting, work, tell) = (waiting.clone(), work.clone(), tell.clone());
        let take = move || {
            loop {
                let next = waiting.lock().expect("no thread panics with the items").pop_front();
                let Some((number, item)) = next else { return };
                if tell.send((number, work(&item))).is_err() {
                    return;
                }
            }
        };
        // With fewer threads it takes longer; with none the loop below says so.
        let _ = Builder::new().name("many".into()).spawn(take);
    }
    drop(tell);
    let mut is_open = vec![true; count];
    while is_open.contains(&true) {
        // Where no thread is left the channel says so at once.
        let Ok((number, result)) = told.recv_timeout(patience) else { break };
        is_open[number] = false;
        done(number, Some(result));
    }
    (0..count).filter(|number| is_open[*number]).for_each(|number| done(number, None));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_done_and_none_is_waited_for_forever() {
        let mut found = vec![Some(0); 100];
        let twice = |item: &u32| {
            if *item == 7 {
                std::thread::park_timeout(Duration::from_secs(20));
            }
            item * 2
        };
        each((0..100).collect(), Duration::from_millis(300), twice, |number, result| {
            found[number] = result;
        });
        let expect: Vec<_> = (0..100).map(|item| (item != 7).then_some(item * 2)).collect();
        assert_eq!(found, expect);
    }

    #[test]
    fn one_that_panics_stops_no_other() {
        let mut found = Vec::new();
        let fail = |item: &u32| assert_ne!(*item, 1, "as it should");
        each(vec![1, 2], Duration::from_secs(20), fail, |number, result| {
            found.push((number, result.is_some()));
        });
        assert_eq!(found, [(1, true), (0, false)]);
    }
}
