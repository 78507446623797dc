//! Builds a superblock: follows the program's code from an address, copies the instructions that
//! can be copied, and makes every exit write its record, or count its ticks. [`build`] emits an
//! entry for indirect branches (`prologue`), the body (`translate_all`), then stubs (`finish`).
//!
//! Where threads stop, the body is that stop alone, or begins with a *glance* ([`super::glance`]):
//! the thread shows its registers and waits, and need not stop. A superblock is *native* if a
//! thread can stop in it for its tracer: `translate_all`, `translate_path` and `end_native` return
//! that. `translate` and the functions for branches return another bool: true if the path ends.
//!
//! The *path* goes on along one direction of each conditional branch, through direct jumps and
//! calls, and back from these calls. Where a branch may leave it, a [`Stub`] after the body is the
//! exit. The path ends:
//!
//! - before an instruction, if `must_end` says so: a limit or bound is reached, threads stop there,
//!   or another superblock starts there;
//! - before an instruction that is not translated (`left`); if that comes first, it is the whole
//!   superblock;
//! - after a system call;
//! - after an indirect branch, or a return to a call before the path, unless its target is guessed;
//! - after a direct call that is too deep, or a direct jump or call that could close a loop.

mod branches;
mod exits;
mod left;
mod saving;
mod tails;
mod window;

use super::counting::Bound;
use super::edge::{Edge, Jump};
use super::emit::{Emitter, Gpr};
use super::hook::Hook;
use super::insn::{DisplacementOffset, InsnDecoder, Treatment, treatment_of, uses_r11};
use super::logged::CallHandling;
use super::saves::{Components, KnownMask};
use super::slots;
use super::superblock::{Outcome, Point, Step};
use super::tick::insn_ticks;
use iced_x86::Instruction;
use std::ops::ControlFlow;
use window::Window;

/// Limits on the size of a superblock, and on how many are built at a time.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The maximum number of instructions of a path.
    pub instructions: usize,
    /// The maximum number of instructions of a path that begins at the head of a loop.
    pub loop_instructions: usize,
    /// The maximum number of TNT bits of a path, and of its ticks where they limit it; at most 60.
    pub bits: u8,
    /// The maximum nesting depth of the direct calls that a path follows.
    pub calls: usize,
    /// The maximum number of times that a loop to the superblock's own start is unrolled.
    pub rounds: usize,
    /// The number of instructions after which a path ends where another superblock starts.
    pub joins_after: usize,
    /// The maximum number of superblocks that are translated ahead at one request: a request costs
    /// more than some useless translations.
    pub ahead: usize,
    /// The maximum distance, in superblocks, from the requested superblock to one translated ahead.
    pub steps_ahead: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            instructions: 96,
            loop_instructions: 96,
            bits: 60,
            calls: 2,
            rounds: 4,
            joins_after: 16,
            ahead: 16,
            steps_ahead: 2,
        }
    }
}

impl Limits {
    /// Returns the limits of code that counts ticks. Its exits write no records, so short paths are
    /// cheap, and less code is translated in vain or twice.
    pub fn counting() -> Self {
        Self { instructions: 24, joins_after: 1, ..Self::default() }
    }

    /// Returns the limits of superblocks that start at the head of a loop, which join others late.
    pub(super) fn of_loop(self) -> Self {
        Self { instructions: self.loop_instructions, joins_after: 16, ..self }
    }

    /// Returns the limits of hot superblocks, which are longer and do not end where another one
    /// starts.
    pub(super) fn of_hot(self) -> Self {
        let instructions = (2 * self.instructions).max(self.loop_instructions);
        Self { instructions, joins_after: usize::MAX, ..self }
    }
}

/// A source of the program's code.
pub trait ProgramCode {
    /// Reads code from `ip` on into `buf`. Returns the number of bytes that are known; 0 if none
    /// are.
    fn fetch(&mut self, ip: u64, buf: &mut [u8]) -> usize;

    /// Returns true if the code at `ip` exists and does not change, so that it can be translated
    /// long before it is executed.
    fn is_fixed(&self, _ip: u64) -> bool {
        false
    }
}

/// An exit whose jump can be linked to a superblock. Until then it leads to the code after it, the
/// *request*, which asks the tracer for that superblock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exit {
    pub(super) target: u64,
    /// The address of the jump's displacement, a multiple of 4.
    pub(super) field: u64,
}

impl Exit {
    /// Returns the address of the request, to which the jump leads until it is linked.
    pub(super) const fn request(self) -> u64 {
        self.field + 4
    }
}

/// The state of the translator that the builder reads.
pub(super) struct Site<'a> {
    pub(super) limits: Limits,
    /// The number of the superblock that is built.
    pub(super) superblock: u32,
    /// The address of the superblock's code in the cache.
    pub(super) base: u64,
    /// The address of the zone's code that passes a request to the tracer.
    pub(super) request: u64,
    /// The address of the zone's code that requests the target in RDX.
    pub(super) miss: u64,
    /// True if the code counts ticks and records nothing.
    pub(super) counts: bool,
    /// True if instructions with a hook are left to the caller. Ticks limit a path then.
    pub(super) leaves_hooks: bool,
    /// The components whose saves are completed, where hooks are left to the caller.
    pub(super) saves: Option<Components>,
    /// The address of the zone's code that makes and logs a system call, or answers it; 0 if there
    /// is none.
    pub(super) log: u64,
    /// The addresses of the zone's code that reads and logs each `Counter`, or answers that; 0 if
    /// there is none.
    pub(super) counters: [u64; 2],
    /// Set if calls are logged or answered in the cache.
    pub(super) call_handling: Option<CallHandling>,
    /// The latest end of the path. If set, its exits are not linked.
    pub(super) bound: Option<Bound>,
    /// The number of the next edge.
    pub(super) next_edge: u32,
    /// The index of the next address in `Translator::return_addresses`.
    pub(super) next_push: u32,
    /// The index of the next jump in `Translator::quiet_jumps`.
    pub(super) next_quiet: u32,
    /// Returns true if a superblock starts at an address.
    pub(super) is_known: &'a dyn Fn(u64) -> bool,
    /// Returns true if threads stop before the instruction at an address.
    pub(super) is_stop: &'a dyn Fn(u64) -> bool,
    /// True if a stop at the first instruction is ignored.
    pub(super) ignores_stop: bool,
    /// Returns true if the conditional branch at an address is mostly taken; `None` if not known.
    pub(super) likely: &'a dyn Fn(u64) -> Option<bool>,
    /// Returns the expected targets of the indirect branch at an address.
    pub(super) expected: &'a dyn Fn(u64) -> &'a [u64],
}

/// A superblock that is not in the cache yet. `Superblock` describes the fields that both have.
#[derive(Debug, Default)]
pub(super) struct Built {
    pub(super) bytes: Vec<u8>,
    pub(super) accepted: u64,
    pub(super) body: u64,
    pub(super) path: Vec<Step>,
    pub(super) points: Vec<Point>,
    pub(super) native: bool,
    pub(super) ignores_stop: bool,
    pub(super) hook: Option<Hook>,
    pub(super) next_literal: u64,
    /// The edges, with their return addresses and quiet jumps, for the lists of the translator.
    pub(super) edges: Vec<Edge>,
    pub(super) pushes: Vec<u64>,
    pub(super) quiet_jumps: Vec<Jump>,
    pub(super) exits: Vec<Exit>,
    /// The addresses of the pages that the path's instructions are from.
    pub(super) pages: Vec<u64>,
    /// The builder's other vectors, kept for their allocations.
    spare: Spare,
}

/// The builder's working vectors, kept for their allocations.
#[derive(Debug, Default)]
struct Spare {
    calls: Vec<u64>,
    jumps: Vec<Jump>,
    literals: Vec<(usize, u64)>,
    stubs: Vec<Stub>,
}

/// Code after the superblock's body, for an exit that is rarely taken. `field` is the displacement
/// of the jump to it. If `r11_is_program`, R11 holds the program's value there.
#[derive(Clone, Copy, Debug)]
enum Stub {
    /// Taken by a conditional branch whose outcome is not the one that the path follows.
    Direct { field: usize, edge: u32, target: u64, r11_is_program: bool },
    /// Taken by a return that does not go back to the path's own call, or an indirect branch that
    /// does not go where the path goes. `likely` is another expected target.
    Indirect { field: usize, edge: u32, r11_is_program: bool, likely: Option<u64> },
}

/// The part of a path after its last TNT bit, for which there is no packet: its first, lowest and
/// highest address.
#[derive(Clone, Copy, Debug)]
struct Quiet {
    start: u64,
    low: u64,
    high: u64,
}

/// A superblock that is being built, up to the program's instruction at `ip`.
struct Builder<'a, 'b> {
    site: &'a Site<'b>,
    start: u64,
    emitter: Emitter,
    ip: u64,
    path: Vec<Step>,
    points: Vec<Point>,
    /// The TNT bits of the path, as in [`Edge::bits`].
    bits: u64,
    bit_count: u8,
    /// The ticks of the path.
    ticks: u8,
    /// True if the instruction that is being translated ticks.
    ticks_next: bool,
    /// The return addresses of the calls on the path that have not returned, oldest first.
    calls: Vec<u64>,
    /// The largest number of `calls` so far.
    peak: usize,
    /// The part of the path after its last TNT bit; `None` if there is none.
    quiet: Option<Quiet>,
    /// The direct jumps and calls after the path's last TNT bit.
    jumps: Vec<Jump>,
    /// True if R11 holds the program's value, since an instruction of the path uses it.
    r11_is_program: bool,
    /// The hook of the superblock's only instruction, if it has one.
    hook: Option<Hook>,
    /// EDX and EAX before the next instruction, as far as known: the mask of XSAVEC.
    mask: KnownMask,
    /// The number of XSAVECs on the path that are completed by stores.
    saves: usize,
    /// Values to emit at the end, each with the field that leads to it.
    literals: Vec<(usize, u64)>,
    stubs: Vec<Stub>,
    /// This and the rest: as in [`Built`].
    edges: Vec<Edge>,
    pushes: Vec<u64>,
    quiet_jumps: Vec<Jump>,
    exits: Vec<Exit>,
    pages: Vec<u64>,
}

/// Clears a vector and returns it for reuse.
fn emptied<T>(mut used: Vec<T>) -> Vec<T> {
    used.clear();
    used
}

/// Translates the code at `start` to a superblock, which the caller writes to the cache at
/// `site.base` and adds to the lists of the translator. Reuses the allocations of `used`.
pub(super) fn build(site: &Site<'_>, start: u64, code: &mut dyn ProgramCode, used: Built) -> Built {
    let mut builder = Builder {
        site,
        start,
        emitter: Emitter::new(site.base, emptied(used.bytes)),
        ip: start,
        path: emptied(used.path),
        points: emptied(used.points),
        bits: 0,
        bit_count: 0,
        ticks: 0,
        ticks_next: false,
        calls: emptied(used.spare.calls),
        peak: 0,
        quiet: None,
        jumps: emptied(used.spare.jumps),
        r11_is_program: false,
        hook: None,
        mask: KnownMask::default(),
        saves: 0,
        literals: emptied(used.spare.literals),
        stubs: emptied(used.spare.stubs),
        edges: emptied(used.edges),
        pushes: emptied(used.pushes),
        quiet_jumps: emptied(used.quiet_jumps),
        exits: emptied(used.exits),
        pages: emptied(used.pages),
    };
    let (accepted, next_field) = builder.prologue();
    let body = builder.emitter.here();
    let native = builder.translate_all(code);
    builder.finish(accepted, body, next_field, native)
}

impl Builder<'_, '_> {
    /// Emits the entry for indirect branches, with the target in RDX: the superblock runs if that
    /// is its start. Returns the address after the check, from which on RCX and RDX are loaded from
    /// their slots before the body, and the field of the jump to the next superblock of the bucket
    /// (`Superblock::next_literal`).
    fn prologue(&mut self) -> (u64, usize) {
        let emitter = &mut self.emitter;
        emitter.set_rcx_to_rdx_minus(self.start);
        // jrcxz over the jump; jmp [rip + next_literal]
        emitter.put(&[0xe3, 0x06, 0xff, 0x25]);
        let next_field = emitter.reserve_rel32();
        let accepted = emitter.here();
        emitter.load(Gpr::Rcx, slots::RCX);
        emitter.load(Gpr::Rdx, slots::RDX);
        (accepted, next_field)
    }

    /// Translates the path to its end. If threads stop at the start, the path begins with a glance,
    /// or the superblock is that stop alone. Returns true if the superblock is native.
    fn translate_all(&mut self, code: &mut dyn ProgramCode) -> bool {
        if !self.site.ignores_stop && (self.site.is_stop)(self.start) {
            let Some(handling) = self.site.call_handling.filter(|handling| handling.answers) else {
                self.note_pages(1);
                return self.end_native();
            };
            self.emit_glancing_stop(handling);
            self.translate_path(code);
            return true;
        }
        self.translate_path(code)
    }

    /// Translates the path from its start, whether that is a stop or not. Returns true if it is a
    /// single instruction that the tracer may have to execute: the superblock is native.
    fn translate_path(&mut self, code: &mut dyn ProgramCode) -> bool {
        let mut rounds = 0;
        while !self.must_end(&mut rounds) {
            let window = Window::fetch(self.ip, code);
            let mut insns = InsnDecoder::new(window.bytes());
            let mut offset = 0;
            // Translates from the same fetched bytes as long as the path is inside them.
            loop {
                let followed = self.translate_next(window.bytes(), &mut insns, offset);
                if let ControlFlow::Break(native) = followed {
                    return native;
                }
                match window.find(self.ip) {
                    Some(at) => offset = at,
                    None => break,
                }
                if self.must_end(&mut rounds) {
                    self.end_at(self.ip);
                    return false;
                }
            }
        }
        self.end_at(self.ip);
        false
    }

    /// Translates the instruction at an offset of the fetched bytes. Breaks at the end of the path;
    /// with true if the superblock is native.
    fn translate_next(
        &mut self,
        bytes: &[u8],
        insns: &mut InsnDecoder<'_>,
        offset: usize,
    ) -> ControlFlow<bool> {
        let Some((insn, displacement)) = insns.decode_at(offset, self.ip) else {
            self.note_pages(1);
            return ControlFlow::Break(self.end_native());
        };
        let hook = self.hook_of(&insn);
        if let Some(components) = self.site.saves {
            // The path goes on after a save that it can complete by stores.
            if hook == Some(Hook::SaveState)
                && self.translate_xsavec(&insn, &bytes[offset..], components)
            {
                return ControlFlow::Continue(());
            }
            self.mask.follow(&insn);
        }
        self.note_pages(insn.len());
        let treatment = if hook.is_none() { treatment_of(&insn) } else { Treatment::Native };
        if treatment == Treatment::Native {
            return ControlFlow::Break(self.end_before_hook(&insn, hook));
        }
        let bytes = &bytes[offset..offset + insn.len()];
        if self.translate(&insn, bytes, displacement, treatment) {
            // If the path is empty, the operand is out of reach: the superblock is native.
            ControlFlow::Break(self.path.is_empty())
        } else {
            ControlFlow::Continue(())
        }
    }

    /// Returns true if the path must end here; never before its first instruction. Counts its
    /// arrivals at its start in `rounds`.
    fn must_end(&mut self, rounds: &mut usize) -> bool {
        if self.path.is_empty() {
            return false;
        }
        let is_over = |bound: Bound| bound.is_reached(self.ticks, self.path.len());
        if (self.site.is_stop)(self.ip) || self.site.bound.is_some_and(is_over) {
            return true;
        }
        let limits = self.site.limits;
        if self.ip == self.start {
            // A round without a TNT bit leaves no packet, so it must end with a record.
            *rounds += if self.quiet.is_none() { 1 } else { limits.rounds + 1 };
        }
        let joins = self.ip != self.start
            && self.path.len() >= limits.joins_after
            && self.calls.is_empty()
            && (self.site.is_known)(self.ip);
        self.path.len() >= limits.instructions
            || self.bit_count >= limits.bits
            || self.site.leaves_hooks && self.ticks >= limits.bits
            || *rounds > limits.rounds
            || joins
    }

    /// Notes the pages of the next `len` bytes: a change there drops the superblock.
    fn note_pages(&mut self, len: usize) {
        for page in [self.ip & !0xfff, self.ip.wrapping_add(len as u64 - 1) & !0xfff] {
            if !self.pages.contains(&page) {
                self.pages.push(page);
            }
        }
    }

    /// Translates one instruction. Returns true if the path ends with it, or before it, since its
    /// operand is out of reach.
    fn translate(
        &mut self,
        insn: &Instruction,
        bytes: &[u8],
        offset: DisplacementOffset,
        treatment: Treatment,
    ) -> bool {
        self.ticks_next = insn_ticks(insn);
        if treatment == Treatment::Syscall {
            self.syscall(insn);
            return true;
        }
        self.begin_insn(insn);
        let next = insn.next_ip();
        match treatment {
            Treatment::Jcc { target, condition } => self.jcc(next, target, condition),
            Treatment::ShortJcc { target } => self.short_jcc(bytes, next, target),
            Treatment::Jump { target } => {
                self.jumps.push(Jump { from: self.ip, to: target });
                self.push_step(next, Outcome::Jump);
                let seen = target != self.start && self.path.iter().any(|step| step.ip == target);
                self.ip = target;
                // Every loop has a backward branch. If no branch of the loop produces a TNT bit,
                // the record has to report each round.
                let back = self.bit_count == 0 && target <= self.path.last().map_or(0, |s| s.ip);
                if seen || back {
                    self.end_by_branch(target);
                    return true;
                }
            }
            Treatment::Call { target } => return self.call(next, target),
            Treatment::Return { extra_bytes } => return self.ret(next, extra_bytes),
            Treatment::Indirect { call } => return self.indirect(insn, call),
            Treatment::Copy if self.copy(insn, bytes, offset) => {
                self.push_step(next, Outcome::Plain);
                self.ip = next;
            }
            Treatment::Copy | Treatment::Syscall | Treatment::Native => {
                // The operand is out of reach, so the instruction is executed in place.
                self.points.pop();
                return self.end_untranslatable();
            }
        }
        false
    }

    /// Adds the point before an instruction. If the instruction uses R11, loads the program's R11
    /// first, which then stays there up to the path's exits.
    fn begin_insn(&mut self, insn: &Instruction) {
        if !self.r11_is_program && uses_r11(insn) {
            self.exact_point();
            self.emitter.load_program_r11();
            self.r11_is_program = true;
        }
        self.exact_point();
    }
}
