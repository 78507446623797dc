//! Controls a process through ptrace(2): launch, stops, registers, memory. Holds no policy.
//!
//! ptrace ties a tracee to the *thread* that traces it: launch and every later call must come from
//! one thread.

mod attach;
pub mod call_numbers;
mod copy;
mod cpus;
pub mod debug_registers;
mod error;
mod launch;
mod lists;
mod map_query;
mod memory;
mod page_map;
mod procfs;
mod program;
mod ptrace;
pub mod siginfo;
mod stop;
mod tiles;
pub mod trap_flag;
mod wait;

pub use attach::{attach, attach_thread, detach_all_traced, detach_process};
pub use copy::start_empty;
pub use cpus::Cpus;
pub use debug_registers::Watch;
pub use error::Error;
pub use launch::{Launch, kill_and_reap};
pub use lists::list_without;
pub use map_query::MapQuery;
pub use memory::Memory;
pub use page_map::{PageMap, PageState};
pub use procfs::{
    AT_BASE, AT_ENTRY, Dispositions, KernelWork, Signals, auxv, auxv_value,
    available_memory_percent, comm, command_line, current_call, dispositions, executable,
    has_more_filters, is_being_killed, is_first_thread_gone, is_thread_of, is_traced_here,
    kernel_work, mappings, process_of, process_status, real_group_id, real_user_id, signals,
    start_time, threads, undumped_mappings,
};
pub use program::{ProgramError, image_of, resolve};
pub use ptrace::{DeferredStops, Rseq, SiginfoBytes, TRAP_BIT, Tracee, USER_CS_64};
pub use stop::{PtraceEvent, Signo, Stop};
pub use wait::{has_stop, pending_stop, wait_any, wait_for, wait_for_killed, wait_interruptibly};
