//! Translates branches, system calls and reads of counters. Copies other instructions.

use super::super::edge::{Edge, EdgeKind, Jump};
use super::super::emit::Gpr;
use super::super::hook::Hook;
use super::super::insn::DisplacementOffset;
use super::super::logged::{Counter, STOP_BYTES};
use super::super::slots;
use super::super::superblock::{Outcome, Point, State};
use super::{Builder, Stub};
use iced_x86::{Code, Encoder, Instruction, MemoryOperand, OpKind, Register};

const SYSCALL_BYTES: usize = 2;

impl Builder<'_, '_> {
    /// Copies an instruction. Adapts an operand that is relative to RIP. Returns false, with
    /// nothing emitted, if that is out of reach. The caller adds the step to the path.
    pub(super) fn copy(
        &mut self,
        insn: &Instruction,
        bytes: &[u8],
        offset: DisplacementOffset,
    ) -> bool {
        if !insn.is_ip_rel_memory_operand() {
            self.emitter.put(bytes);
            return true;
        }
        let next = self.emitter.here().wrapping_add(bytes.len() as u64);
        let distance = insn.ip_rel_memory_address().wrapping_sub(next).cast_signed();
        let Ok(displacement) = i32::try_from(distance) else { return false };
        let at = self.emitter.len() + offset.0;
        self.emitter.put(bytes);
        self.emitter.bytes[at..at + 4].copy_from_slice(&displacement.to_le_bytes());
        true
    }

    /// Translates a conditional branch. The path follows its usual outcome by samples; without one,
    /// it takes a branch that leads backward or to the path's start. It never takes one to the next
    /// instruction, or to an address that it has already, except for its start. A jump leaves to
    /// the other target. The caller checks the limits. `condition`: the low four bits of the
    /// opcode.
    pub(super) fn jcc(&mut self, next: u64, target: u64, condition: u8) {
        // Follow a backward branch, as most continue a loop, but create no loop inside the path.
        let is_new = || self.path.iter().all(|step| step.ip != target);
        let follow = match (self.site.likely)(self.ip) {
            Some(taken) => taken && target != next && (target == self.start || is_new()),
            None => target == self.start && target != next || target < self.ip && is_new(),
        };
        // `bit` is the TNT bit of the branch where it leaves the path.
        let (leaves_to, bit) = if follow { (next, 0) } else { (target, 1) };
        // If the path follows the branch, the jump out has the opposite condition.
        let opcode = 0x80 | condition ^ u8::from(follow);
        self.push_step(next, if follow { Outcome::Taken } else { Outcome::NotTaken });
        let edge = self.branch_edge(leaves_to, bit);
        self.emitter.put(&[0x0f, opcode]);
        let field = self.emitter.reserve_rel32();
        self.leave_by_stub(field, edge, leaves_to);
        self.push_bit(1 - bit);
        self.ip = if follow { target } else { next };
    }

    /// Translates a branch that only has an 8-bit displacement: keeps its opcode, and leads it to a
    /// jump with a 32-bit one. The path goes on where the branch is not taken.
    pub(super) fn short_jcc(&mut self, bytes: &[u8], next: u64, target: u64) {
        self.push_step(next, Outcome::NotTaken);
        let edge = self.branch_edge(target, 1);
        self.emitter.put(&bytes[..bytes.len() - 1]);
        // Taken: over the jmp +5, to the jmp rel32. Not taken: over the jmp rel32.
        self.emitter.put(&[2, 0xeb, 5, 0xe9]);
        let field = self.emitter.reserve_rel32();
        self.leave_by_stub(field, edge, target);
        self.push_bit(0);
        self.ip = next;
    }

    /// Adds the stub to which the jump with the displacement at `field` leads out of the path, with
    /// R11 as it is here. [`Self::finish`] emits the stub and aims the jump.
    pub(super) fn leave_by_stub(&mut self, field: usize, edge: u32, target: u64) {
        let r11_is_program = self.r11_is_program;
        self.stubs.push(Stub::Direct { field, edge, target, r11_is_program });
    }

    /// Emits the push of an address of the program: the stack gets the program's return address,
    /// not the cache's. Changes no register but RSP.
    pub(super) fn push_return_address(&mut self, address: u64) {
        if let Ok(low) = i32::try_from(address) {
            // push address
            self.emitter.put(&[0x68]);
            self.emitter.put(&low.to_le_bytes());
            return;
        }
        // push [rip + literal]
        self.emitter.put(&[0xff, 0x35]);
        let field = self.emitter.reserve_rel32();
        self.literals.push((field, address));
    }

    /// Translates a direct call. The path goes on at its target. A call of the next instruction is
    /// a jump on the path. Returns true if the path ends with the call: it is nested too deeply, or
    /// its target is on the path already.
    pub(super) fn call(&mut self, next: u64, target: u64) -> bool {
        self.push_return_address(next);
        if target == next {
            // The idiom that reads the instruction pointer does not enter the RET compression stack
            // (SDM volume 3, "RET Compression").
            self.jumps.push(Jump { from: self.ip, to: target });
            self.push_step(next, Outcome::Jump);
            self.ip = target;
            return false;
        }
        let circular = target == self.start || self.path.iter().any(|step| step.ip == target);
        let follow = self.calls.len() < self.site.limits.calls && !circular;
        self.jumps.push(Jump { from: self.ip, to: target });
        self.push_step(next, Outcome::Call);
        self.calls.push(next);
        self.peak = self.peak.max(self.calls.len());
        self.ip = target;
        if !follow {
            self.end_by_branch(target);
        }
        !follow
    }

    /// Translates a return: pops its target into RDX. The path goes on after a return to its own
    /// call, and maybe at the expected target of another one. Returns true if it ends here.
    pub(super) fn ret(&mut self, next: u64, extra_bytes: u16) -> bool {
        self.emitter.store(Gpr::Rdx, slots::RDX);
        self.exact_point();
        // pop rdx
        self.emitter.put(&[0x5a]);
        if extra_bytes != 0 {
            // lea rsp, [rsp + extra_bytes]
            self.emitter.put(&[0x48, 0x8d, 0xa4, 0x24]);
            self.emitter.put_u32(extra_bytes.into());
        }
        self.glue_point();
        self.emitter.store(Gpr::Rcx, slots::RCX);
        let Some(expected) = self.calls.last().copied() else {
            self.push_step(next, Outcome::Plain);
            let edge = self.add_edge_here(EdgeKind::Return, 0);
            return self.follow_indirect(edge);
        };
        self.push_step(next, Outcome::Return);
        // On a mismatch, the call's return address is on top of the stack, as on the CPU.
        let edge = self.add_edge_here(EdgeKind::Return, 0);
        self.emit_target_check(expected, edge, None);
        self.calls.pop();
        self.push_bit(1);
        self.ip = expected;
        false
    }

    /// Translates an indirect jump or call: loads its target into RDX. The path may go on at the
    /// usual target. Returns true if it ends here: with the branch, or before it if its operand is
    /// out of reach.
    pub(super) fn indirect(&mut self, insn: &Instruction, call: bool) -> bool {
        let emitted = self.emitter.len();
        self.emitter.store(Gpr::Rdx, slots::RDX);
        let Some(load) = load_target(insn, self.emitter.here()) else {
            // Nothing is left of the instruction: neither code nor its point.
            self.emitter.bytes.truncate(emitted);
            self.points.pop();
            return self.end_untranslatable();
        };
        self.exact_point();
        self.emitter.put(&load);
        let next = insn.next_ip();
        if call {
            let r11_in_slot = !self.r11_is_program;
            let state = State { exact: true, rdx_in_slot: true, r11_in_slot, ..State::default() };
            self.point(state);
            self.push_return_address(next);
        }
        self.glue_point();
        self.emitter.store(Gpr::Rcx, slots::RCX);
        self.push_step(next, if call { Outcome::Call } else { Outcome::Plain });
        if call {
            self.calls.push(next);
            self.peak = self.peak.max(self.calls.len());
        }
        let edge = self.add_edge_here(EdgeKind::Indirect, 0);
        self.follow_indirect(edge)
    }

    /// Lets the path go on at the first expected target of an indirect branch, whose target is in
    /// RDX, if the code counts ticks, has no bound and such a target is known. Otherwise, and if
    /// the expected target is on the path already, ends the path with an exit, and returns true.
    /// The program's RCX and RDX are in their slots.
    fn follow_indirect(&mut self, edge: u32) -> bool {
        let expected = (self.site.expected)(self.ip);
        let (&[target, ..], true, None) = (expected, self.site.counts, self.site.bound) else {
            self.emit_indirect_exit(edge, self.r11_is_program, None);
            return true;
        };
        self.emit_target_check(target, edge, expected.get(1).copied());
        // An indirect branch creates no loop inside the path.
        let is_seen = self.path.iter().any(|step| step.ip == target);
        self.ip = target;
        if is_seen {
            self.end_by_branch(target);
        }
        is_seen
    }

    /// Emits the end of an indirect branch whose target is in RDX: if that is `target`, restores
    /// RCX and RDX and goes on; if not, leaves the path by a stub, an exit of `edge` that compares
    /// `likely` next. Does not move `ip`.
    fn emit_target_check(&mut self, target: u64, edge: u32, likely: Option<u64>) {
        let field = self.emitter.jump_if_rdx_is_not(target);
        let r11_is_program = self.r11_is_program;
        self.stubs.push(Stub::Indirect { field, edge, r11_is_program, likely });
        self.emitter.load(Gpr::Rcx, slots::RCX);
        self.emitter.load(Gpr::Rdx, slots::RDX);
    }

    /// Returns true if an instruction is a system call that the cache may log or answer: it is the
    /// first of the path, which has no bound, and has no prefix. The caller has set `hook`.
    pub(super) fn is_logged_call(&self, insn: &Instruction) -> bool {
        self.site.log != 0
            && self.site.bound.is_none()
            && self.hook == Some(Hook::SystemCall)
            && insn.len() == SYSCALL_BYTES
    }

    /// Returns the address of the cache's code that reads the counter of an instruction, or answers
    /// it; 0 if the instruction is left to the caller: it reads none, is not the first of the path,
    /// or the path has a bound. The caller has set `hook`.
    pub(super) fn counter_code(&self, insn: &Instruction) -> u64 {
        let counter = Counter::of(insn).filter(|_| self.site.bound.is_none());
        let is_whole = self.hook == Some(Hook::Time);
        counter.filter(|_| is_whole).map_or(0, |counter| self.site.counters[counter as usize])
    }

    /// Emits a system call that is logged or answered in the cache. The thread stops before it, for
    /// its tracer to execute it, if its class is 0, its number has more than 16 bits, or the log
    /// has no room (or no answer is left). Returns true: the superblock is native.
    pub(super) fn emit_logged_call(&mut self, next: u64) -> bool {
        let full = self.emit_log_room_check();
        // The table knows numbers of 16 bits: the upper half of EAX has to be 0.
        // mov ecx, eax; bswap ecx; movzx ecx, cx
        self.emitter.put(&[0x89, 0xc1, 0x0f, 0xc9, 0x0f, 0xb7, 0xc9]);
        let small = self.emitter.jump_if_rcx_is_0();
        let large = self.emitter.jump_from_here();
        self.emitter.aim_here(small);
        // movzx ecx, ax
        self.emitter.put(&[0x0f, 0xb7, 0xc8]);
        self.emitter.load_class();
        let stops = self.emitter.jump_if_rcx_is_0();
        let (edge, after) = self.emit_jump_to_log(self.site.log, next);
        self.emit_stop_before(&[full, large, stops]);
        self.emitter.aim_here(after);
        self.emitter.set_rcx(next);
        self.emit_exit(edge, next);
        true
    }

    /// Emits an instruction whose counter is read and logged in the cache, or answered there. The
    /// thread stops before it, for its tracer to execute it, if the log has no room, or no answer
    /// is left. Returns true: the superblock is native. Only for an instruction for which
    /// [`Self::counter_code`] is not 0.
    pub(super) fn emit_logged_counter(&mut self, insn: &Instruction) -> bool {
        let (code, next) = (self.counter_code(insn), insn.next_ip());
        let full = self.emit_log_room_check();
        let (edge, after) = self.emit_jump_to_log(code, next);
        self.emit_stop_before(&[full]);
        self.emitter.aim_here(after);
        self.emitter.load(Gpr::Rcx, slots::RCX);
        self.emit_exit(edge, next);
        true
    }

    /// Emits a jump that is taken if there is no room in the log, or no answer left. Returns its
    /// field. The program's RCX is in its slot from here on.
    fn emit_log_room_check(&mut self) -> usize {
        self.exact_point();
        self.emitter.store(Gpr::Rcx, slots::RCX);
        self.glue_point();
        // The room is negative if its highest byte is not 0. bswap rcx; movzx ecx, cl
        self.emitter.load(Gpr::Rcx, slots::LOG_ROOM);
        self.emitter.put(&[0x48, 0x0f, 0xc9, 0x0f, 0xb6, 0xc9]);
        let room = self.emitter.jump_if_rcx_is_0();
        let full = self.emitter.jump_from_here();
        self.emitter.aim_here(room);
        full
    }

    /// Emits a jump to the code that logs or answers an instruction, with the budget and the edge
    /// in their slots. Returns the number of the edge after the instruction, which this adds, and
    /// the field to aim at the address at which the thread goes on.
    fn emit_jump_to_log(&mut self, code: u64, next: u64) -> (u32, usize) {
        self.emitter.store(Gpr::R11, slots::TRACE_POINTER);
        let edge = self.add_edge_here(EdgeKind::Direct, next);
        self.emitter.store_value(edge, slots::EDGE);
        // lea rcx, [rip + after]
        self.emitter.put(&[0x48, 0x8d, 0x0d]);
        let after = self.emitter.reserve_rel32();
        self.emitter.store(Gpr::Rcx, slots::JUMP);
        self.emitter.jump(code);
        (edge, after)
    }

    /// Emits the stop before an instruction that the tracer executes, with RCX restored, and aims
    /// `jumps` at it. The code for after the instruction must follow directly.
    fn emit_stop_before(&mut self, jumps: &[usize]) {
        for field in jumps {
            self.emitter.aim_here(*field);
        }
        let stop = self.emitter.len();
        self.emitter.load(Gpr::Rcx, slots::RCX);
        self.exact_point();
        self.emitter.put(&[0xcc]);
        debug_assert_eq!(self.emitter.len() - stop, usize::from(STOP_BYTES));
        self.glue_point();
    }

    /// Translates a system call that the thread makes, and ends the path after it. The path's
    /// record is written before the call. The thread stops before the call if the call's class says
    /// so. After the call, another record has the time of the return.
    pub(super) fn syscall(&mut self, insn: &Instruction) {
        let next = insn.next_ip();
        let at = self.ip;
        self.exact_point();
        self.push_step(next, Outcome::Plain);
        if self.r11_is_program {
            self.emitter.load_trace_pointer();
        }
        self.glue_point();
        let edge = self.add_edge_here(EdgeKind::Syscall, next);
        self.emitter.record(edge);
        self.emitter.store(Gpr::R11, slots::TRACE_POINTER);
        self.emitter.store(Gpr::Rcx, slots::RCX);
        // movzx ecx, ax; movzx ecx, byte gs:[rcx + SYSCALL_CLASSES]; jrcxz over the int3
        self.emitter.put(&[0x0f, 0xb7, 0xc8, 0x65, 0x0f, 0xb6, 0x89]);
        self.emitter.put_u32(slots::SYSCALL_CLASSES);
        self.emitter.put(&[0xe3, 0x01]);
        self.emitter.put(&[0xcc]);
        // The call is on the path already, but not executed here.
        let index = u16::try_from(self.path.len() - 1).unwrap_or(0);
        let offset = u32::try_from(self.emitter.len()).unwrap_or(0);
        let early = State {
            exact: true,
            rcx_in_slot: true,
            r11_in_slot: true,
            has_early_record: true,
            ..State::default()
        };
        self.points.push(Point { offset, index, ip: at, state: early });
        self.emitter.put(&[0x0f, 0x05]);
        self.ip = next;
        let returned = State { exact: true, rcx_is_ip: true, recorded: true, ..State::default() };
        self.point(returned);
        self.emitter.set_rcx(next);
        self.point(State { recorded: true, ..State::default() });
        self.emitter.store(Gpr::R11, slots::R11);
        self.emitter.load(Gpr::R11, slots::TRACE_POINTER);
        // The edge of the return contains no instructions: the call was on the path.
        let edge = Edge {
            instructions: 0,
            bits: 0,
            bit_count: 0,
            ticks: 0,
            pushes: 0,
            peak: 0,
            quiet_low: u64::MAX,
            quiet_high: 0,
            quiet_start: next,
            quiet_jumps: 0,
            ..self.edge_here(EdgeKind::SyscallReturn, next)
        };
        let edge = self.add_edge(edge);
        self.emitter.record_with_time(edge);
        self.emit_exit(edge, next);
    }
}

/// Encodes `mov rdx, target` of an indirect branch for the address `at`: loads the target from its
/// operand. Returns `None` if the operand is out of reach from there.
fn load_target(insn: &Instruction, at: u64) -> Option<Vec<u8>> {
    let load = if insn.op0_kind() == OpKind::Memory {
        let operand = MemoryOperand::new(
            insn.memory_base(),
            insn.memory_index(),
            insn.memory_index_scale(),
            insn.memory_displacement64().cast_signed(),
            insn.memory_displ_size(),
            false,
            insn.segment_prefix(),
        );
        Instruction::with2(Code::Mov_r64_rm64, Register::RDX, operand).ok()?
    } else {
        Instruction::with2(Code::Mov_r64_rm64, Register::RDX, insn.op0_register()).ok()?
    };
    let mut encoder = Encoder::new(64);
    encoder.encode(&load, at).ok()?;
    Some(encoder.take_buffer())
}
