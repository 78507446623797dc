//! A periodic signal to the recorder's main loop, which interrupts its wait for stops. The loop
//! then writes the data so far, so that a killed recorder loses little, or checks for an interrupt.
//! The signal stops no thread of the program. One that comes just before the loop begins to wait
//! interrupts nothing; the next one does.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The signal of the timer, which the recorder uses for nothing else.
const SIGNAL: libc::c_int = libc::SIGVTALRM;

/// True if the timer has expired since [`PeriodicSignal::take_due`] was last called.
static DUE: AtomicBool = AtomicBool::new(false);

/// A timer whose signal interrupts the waiting of the thread that started it, until it is dropped.
#[derive(Debug)]
pub(super) struct PeriodicSignal {
    old: libc::sigaction,
    timer: Option<libc::timer_t>,
}

impl PeriodicSignal {
    /// Starts the timer, for the calling thread. `period` is less than a second. If the kernel
    /// refuses a timer, there is no signal, and nothing is ever due.
    pub(super) fn start(period: Duration) -> Self {
        let handler: extern "C" fn(libc::c_int) = note_due;
        // SAFETY: all bit patterns of these plain structures are valid; the handler only writes an
        // atomic. Without SA_RESTART the wait ends.
        unsafe {
            let mut new: libc::sigaction = std::mem::zeroed();
            let mut old: libc::sigaction = std::mem::zeroed();
            new.sa_sigaction = handler as libc::sighandler_t;
            libc::sigaction(SIGNAL, &raw const new, &raw mut old);
            let mut event: libc::sigevent = std::mem::zeroed();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = SIGNAL;
            event.sigev_notify_thread_id = libc::gettid();
            let mut timer: libc::timer_t = std::ptr::null_mut();
            let made = libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer);
            let timer = (made == 0).then_some(timer);
            if let Some(timer) = timer {
                let tv_nsec = libc::c_long::from(period.subsec_nanos());
                let period = libc::timespec { tv_sec: 0, tv_nsec };
                let often = libc::itimerspec { it_interval: period, it_value: period };
                libc::timer_settime(timer, 0, &raw const often, std::ptr::null_mut());
            }
            Self { old, timer }
        }
    }

    /// Returns true if the timer has expired since the last call, and forgets that.
    pub(super) fn take_due() -> bool {
        DUE.swap(false, Ordering::Relaxed)
    }
}

impl Drop for PeriodicSignal {
    fn drop(&mut self) {
        // SAFETY: deletes the timer that `start` made, and restores the old signal action.
        unsafe {
            if let Some(timer) = self.timer {
                libc::timer_delete(timer);
            }
            libc::sigaction(SIGNAL, &raw const self.old, std::ptr::null_mut());
        }
    }
}

extern "C" fn note_due(_: libc::c_int) {
    DUE.store(true, Ordering::Relaxed);
}
