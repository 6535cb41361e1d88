//! Fault injection: a process loses some of the frames that it sends, for a while.
//!
//! Owns which frames are lost. A lost frame has used up its number, so the peer sees the gap when
//! the next one comes, and ends the link; where all are lost it hears nothing, as in a partition.
//! Of the whole process, all links alike. Never asks the time: the caller says when the loss
//! begins ([`set`]) and looks now and then whether it is over ([`tick`]); a heartbeat does. Without
//! a fault a frame costs one relaxed load.

use crate::message::FrameLoss;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Longest time that frames are lost.
pub const STORM_MAX: Duration = Duration::from_secs(3600);

/// Of 1,000 frames, how many are lost; 0 while none are.
static LOST_PER_MILLE: AtomicU32 = AtomicU32::new(0);
/// Frames that were sent since the fault began.
static FRAMES: AtomicU64 = AtomicU64::new(0);
static SEED: AtomicU64 = AtomicU64::new(0);
/// When the fault is over, by the caller's clock.
static UNTIL: Mutex<Duration> = Mutex::new(Duration::ZERO);

/// A fault begins, in place of one that may be under way.
pub fn set(frame_loss: FrameLoss, now: Duration) {
    let mut until = UNTIL.lock().expect("no thread panics with the time");
    let lasts = Duration::try_from_secs_f64(frame_loss.seconds).unwrap_or_default().min(STORM_MAX);
    *until = now + lasts;
    SEED.store(frame_loss.seed, Ordering::Relaxed);
    FRAMES.store(0, Ordering::Relaxed);
    let lost = if lasts.is_zero() { 0 } else { frame_loss.drop_per_mille.min(1000) };
    LOST_PER_MILLE.store(lost, Ordering::Relaxed);
}

/// Time has passed: ends a fault that is over.
pub fn tick(now: Duration) {
    if is_fine() {
        return;
    }
    let until = UNTIL.lock().expect("no thread panics with the time");
    if now >= *until {
        LOST_PER_MILLE.store(0, Ordering::Relaxed);
    }
}

/// Whether nothing is lost.
pub fn is_fine() -> bool {
    LOST_PER_MILLE.load(Ordering::Relaxed) == 0
}

/// Whether the next frame is lost.
#[inline]
pub(crate) fn takes_next() -> bool {
    let lost = LOST_PER_MILLE.load(Ordering::Relaxed);
    lost != 0 && takes(lost)
}

#[cold]
fn takes(lost_per_mille: u32) -> bool {
    let frame = FRAMES.fetch_add(1, Ordering::Relaxed);
    draw(SEED.load(Ordering::Relaxed), frame) % 1000 < u64::from(lost_per_mille)
}

/// One of 2⁶⁴ numbers for each frame of a seed (splitmix64: Steele, Lea and Flood, "Fast splittable
/// pseudorandom number generators", 2014).
fn draw(seed: u64, frame: u64) -> u64 {
    let mut z = seed.wrapping_add((frame + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
