//! Tests that every instruction is hooked, faults in user mode, or follows from registers and
//! memory alone.

use super::samples::samples;
use super::{Code, START, counting, translator};
use crate::translate::insn::{Treatment, treatment_of};
use crate::translate::{Bound, Effects, Hook};
use iced_x86::{
    CpuidFeature as F, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, Register,
};
use std::collections::{BTreeMap, BTreeSet};

/// The mnemonics of each hook.
const HOOKED: [(Hook, &str); 18] = [
    (Hook::Time, "Rdtsc Rdtscp"),
    (Hook::Counter, "Rdpmc Rdpru"),
    (Hook::Random, "Rdrand Rdseed"),
    (Hook::Processor, "Cpuid"),
    (Hook::ProcessorId, "Rdpid"),
    (Hook::ExtendedState, "Xgetbv"),
    (Hook::Descriptor, "Lar Lsl Verr Verw"),
    (Hook::Wait, "Umonitor Umwait Tpause Monitor Mwait Monitorx Mwaitx Mcommit"),
    (Hook::Transaction, "Xbegin Xend Xabort Xtest Xsusldtrk Xresldtrk"),
    (Hook::SegmentLoad, "Lfs Lgs Lss Mov Pop"),
    (Hook::SystemRegister, "Sgdt Sidt Sldt Str Smsw"),
    (
        Hook::SaveState,
        "Xsave Xsave64 Xsavec Xsavec64 Xsaveopt Xsaveopt64 Fxsave Fxsave64 Fnsave Fnstenv",
    ),
    (Hook::Device, "In Insb Insw Insd Out Outsb Outsw Outsd Enqcmd"),
    (
        Hook::PadLock,
        "Xstore Xstore_alt Xcryptecb Xcryptcbc Xcryptctr Xcryptcfb Xcryptofb Xsha1 Xsha256 Xsha512 \
         Xsha512_alt Ccs_hash Ccs_encrypt Undoc",
    ),
    (Hook::SystemCall, "Syscall"),
    (Hook::CompatSystemCall, "Sysenter"),
    (Hook::Hypercall, "Vmcall Vmmcall Vmgexit Vmfunc"),
    (Hook::Enclave, "Enclu"),
];

/// Instructions that always raise an exception.
const RAISES: &str = "Int1 Int3 Int Ud0 Ud1 Ud2";

/// Instructions of features that Linux leaves disabled: Key Locker, lightweight profiling, safer
/// mode, user interrupts, shadow stacks. Without shadow stacks, RDSSP does nothing.
const DISABLED: &str = "Aesdec128kl Aesdec256kl Aesenc128kl Aesenc256kl Encodekey128 Encodekey256 \
     Aesdecwide128kl Aesdecwide256kl Aesencwide128kl Aesencwide256kl Llwpcb Slwpcb Lwpins Lwpval \
     Getsec Getsecq Clui Stui Testui Senduipi Uiret Incsspd Incsspq Rstorssp Saveprevssp Wrssd Wrssq \
     Rdsspd Rdsspq";

/// Instructions that depend on registers and memory only, of features that also have instructions
/// which do not.
const PURE: &str = "Fxrstor Fxrstor64 Xrstor Xrstor64 Rdfsbase Wrfsbase Rdpkru Wrpkru";

/// Features whose instructions depend on registers and memory only, except for those in the lists
/// above. `X64`, `INTEL8086` and the like are those of the first processors that had them.
const PURE_FEATURES: &str = "ADX AES AMX_BF16 AMX_COMPLEX AMX_FP16 AMX_INT8 AMX_TILE AVX AVX2 AVX512BW AVX512CD AVX512DQ \
     AVX512ER AVX512F AVX512PF AVX512VL AVX512_4FMAPS AVX512_4VNNIW AVX512_BF16 AVX512_BITALG \
     AVX512_FP16 AVX512_IFMA AVX512_VBMI AVX512_VBMI2 AVX512_VNNI AVX512_VP2INTERSECT \
     AVX512_VPOPCNTDQ AVX_IFMA AVX_NE_CONVERT AVX_VNNI AVX_VNNI_INT16 AVX_VNNI_INT8 BMI1 BMI2 \
     CET_IBT CLDEMOTE CLFLUSHOPT CLFSH CLWB CLZERO CMOV CMPCCXADD CMPXCHG16B CX8 D3NOW D3NOWEXT \
     F16C FMA FMA4 FPU FPU287 FPU387 GFNI INTEL186 INTEL286 INTEL386 INTEL486 INTEL8086 LZCNT MMX \
     MOVBE MOVDIR64B MOVDIRI MULTIBYTENOP PAUSE PCLMULQDQ POPCNT PREFETCHITI PREFETCHW \
     PREFETCHWT1 PTWRITE RAO_INT SERIALIZE SHA SHA512 SM3 SM4 SSE SSE2 SSE3 SSE4A SSE4_1 SSE4_2 \
     SSSE3 TBM VAES VPCLMULQDQ X64 XOP";

/// Mnemonics that the decoder never returns: of other modes, of old and foreign processors, of
/// assemblers (WAIT with an x87 instruction), and of data.
const UNKNOWN: &str = "INVALID Db Dd Dq Dw Zero_bytes Aaa Aad Aam Aas Arpl Bound Daa Das Into Jcxz Lds \
     Les Popa Popad Popfd Pusha Pushad Pushfd Salc Ibts Xbts Jmpe Loadall Storeall Umov Fclex Fdisi \
     Feni Finit Fsave Fstcw Fstenv Fstsw Fsetpm Frstpm Fnstdw Fnstsg Fstdw Fstsg Montmul Pcommit \
     Altinst Cl1invmb Rdudbg Wrudbg";

/// Features of which the decoder knows no instruction. It decodes those of MPX as NOPs, which they
/// are under Linux.
const UNKNOWN_FEATURES: &str = "KNC MPX CYRIX_D3NOW CYRIX_DDI CYRIX_DMI CYRIX_EMMI CYRIX_FPU \
     CYRIX_SHR CYRIX_SMINT CYRIX_SMINT_0F7E CYRIX_SMM";

/// Returns true if a list has the name of a mnemonic or feature.
fn names(list: &str, item: &impl std::fmt::Debug) -> bool {
    let name = format!("{item:?}");
    list.split_whitespace().any(|item| item == name)
}

/// Returns the classes of an instruction without a hook.
fn classes(insn: &Instruction) -> Vec<&'static str> {
    let mnemonic = insn.mnemonic();
    let is_pure_feature = |feature: &F| names(PURE_FEATURES, feature);
    let is_by_feature = insn.cpuid_features().iter().all(is_pure_feature);
    let refused = insn.is_privileged() || names(RAISES, &mnemonic);
    // The cache's GS base is the tracer's, so the caller executes these with the program's.
    let with_gs = matches!(mnemonic, Mnemonic::Rdgsbase | Mnemonic::Wrgsbase);
    let classes = [
        ("refused", refused),
        ("disabled", names(DISABLED, &mnemonic)),
        ("native", with_gs && treatment_of(insn) == Treatment::Native),
        ("pure", names(PURE, &mnemonic) || is_by_feature && !refused),
    ];
    classes.into_iter().filter_map(|(name, is)| is.then_some(name)).collect()
}

#[test]
fn every_instruction_is_hooked_refused_or_pure() {
    let mut problems = BTreeSet::new();
    for (bytes, insn) in samples() {
        let classes = match Hook::of(&insn) {
            Some(_) => continue,
            None => classes(&insn),
        };
        if classes.len() != 1 {
            let features = insn.cpuid_features();
            problems.insert(format!("{:?} {features:?} {bytes:x?}: {classes:?}", insn.mnemonic()));
        }
    }
    assert!(problems.is_empty(), "{problems:#?}");
}

#[test]
fn every_hook_has_its_mnemonics() {
    let mut hooked: BTreeMap<Hook, BTreeSet<String>> = BTreeMap::new();
    for (_, insn) in samples() {
        if let Some(hook) = Hook::of(&insn) {
            hooked.entry(hook).or_default().insert(format!("{:?}", insn.mnemonic()));
        }
    }
    let set = |list: &str| list.split_whitespace().map(String::from).collect();
    assert_eq!(hooked, BTreeMap::from(HOOKED.map(|(hook, list)| (hook, set(list)))));
}

#[test]
fn the_samples_have_every_mnemonic_that_is_decoded() {
    let sampled: BTreeSet<Mnemonic> = samples().iter().map(|(_, insn)| insn.mnemonic()).collect();
    let unknown = iced_x86::Code::values().filter(|code| {
        let of_others = |feature: &F| names(UNKNOWN_FEATURES, feature);
        names(UNKNOWN, &code.mnemonic()) || code.cpuid_features().iter().all(of_others)
    });
    let unknown: BTreeSet<Mnemonic> = unknown.map(iced_x86::Code::mnemonic).collect();
    let all: BTreeSet<Mnemonic> = Mnemonic::values().collect();
    let missing = &(&all - &sampled) - &unknown;
    assert!(missing.is_empty(), "{missing:?}");
    let listed: BTreeSet<Mnemonic> =
        sampled.iter().copied().filter(|mnemonic| names(UNKNOWN, mnemonic)).collect();
    assert!(listed.is_empty(), "{listed:?}");
}

#[test]
fn operands_decide_on_some_hooks() {
    let hook = |bytes: &[u8]| Hook::of(&crate::translate::insn::decode(bytes, START).unwrap().0);
    assert_eq!(hook(&[0x8e, 0xd8]), Some(Hook::SegmentLoad), "mov ds, eax");
    assert_eq!(hook(&[0x8e, 0xe0]), Some(Hook::SegmentLoad), "mov fs, eax");
    assert_eq!(hook(&[0x0f, 0xa1]), Some(Hook::SegmentLoad), "pop fs");
    assert_eq!(hook(&[0x8e, 0xd0]), None, "mov ss, eax");
    assert_eq!(hook(&[0x8c, 0xd8]), None, "mov eax, ds");
    assert_eq!(hook(&[0x0f, 0xa0]), None, "push fs");
    assert_eq!(hook(&[0x58]), None, "pop rax");
    assert_eq!(hook(&[0xcd, 0x80]), Some(Hook::CompatSystemCall));
    assert_eq!(hook(&[0xcd, 0x03]), None);
}

#[test]
fn effects_include_what_an_instruction_writes() {
    let mut factory = InstructionInfoFactory::new();
    let is_write = |access| !matches!(access, OpAccess::Read | OpAccess::CondRead | OpAccess::None);
    for (bytes, insn) in samples() {
        let Some(hook) = Hook::of(&insn) else { continue };
        let info = factory.info(&insn);
        let most = hook.effects();
        let memory = info.used_memory().iter().any(|memory| is_write(memory.access()));
        assert!(!memory || most >= Effects::Memory, "{insn}: {bytes:x?}");
        for register in info.used_registers().iter().filter(|used| is_write(used.access())) {
            let register = register.register();
            let is_within = match most {
                Effects::Registers => register.is_gpr(),
                Effects::Segments => register.is_gpr() || register.is_segment_register(),
                Effects::Memory => register.is_gpr() || register.is_st() || register.is_mm(),
                Effects::Unlimited => true,
            };
            assert!(is_within || register == Register::None, "{insn}: {register:?}");
        }
    }
}

#[test]
fn only_code_that_counts_stops_at_hooks() {
    for (bytes, insn) in samples() {
        let Some(hook) = Hook::of(&insn) else { continue };
        let is_native = treatment_of(&insn) == Treatment::Native;
        let mut code = Code { bytes, is_fixed: false };
        for (mut translator, counts) in [(counting().0, true), (translator().0, false)] {
            let number = translator.get_or_translate(START, &mut code).unwrap();
            let superblock = translator.superblock(number).unwrap();
            assert_eq!(superblock.hook, counts.then_some(hook), "{insn}");
            assert_eq!(superblock.native, is_native || counts, "{insn}");
        }
    }
}

#[test]
fn unknown_code_stops_at_the_caller() {
    // Code of 32-bit mode (two), of MVEX, cut off, and none at all.
    let unknown: [&[u8]; 5] =
        [&[0x06], &[0xd6], &[0x62, 0xf0, 0x78, 0x08, 0x58, 0xc0], &[0x48, 0x8b], &[]];
    for bytes in unknown {
        for before in [0, 3] {
            let (mut translator, _) = counting();
            let bytes = [&[0x90; 3][..before], bytes].concat();
            let mut code = Code { bytes, is_fixed: false };
            let number = translator.get_or_translate(START + before as u64, &mut code).unwrap();
            let superblock = translator.superblock(number).unwrap();
            assert_eq!((superblock.native, superblock.hook), (true, None));
            // A path that leads to the unknown code ends before it.
            let number = translator.get_or_translate(START, &mut code).unwrap();
            assert_eq!(translator.path(number).len(), before);
        }
    }
}

#[test]
fn operands_out_of_reach_stop_at_the_caller() {
    // `mov`, `jmp` and `call` with an operand 2 GiB after the code, which the zone is before:
    // plain, and with the program's R11.
    let insns: [&[u8]; 4] = [&[0x8b, 0x05], &[0xff, 0x25], &[0xff, 0x15], &[0x4c, 0x8b, 0x1d]];
    for insn in insns {
        for before in [0, 3] {
            for (mut translator, _) in [translator(), counting()] {
                let nops = &[0x90; 3][..before];
                let bytes = [nops, insn, &i32::MAX.to_le_bytes()].concat();
                let mut code = Code { bytes, is_fixed: false };
                let number = translator.get_or_translate(START + before as u64, &mut code).unwrap();
                let superblock = translator.superblock(number).unwrap();
                assert_eq!((superblock.native, superblock.hook), (true, None), "{insn:x?}");
                let number = translator.get_or_translate(START, &mut code).unwrap();
                assert_eq!(translator.path(number).len(), before, "{insn:x?}");
            }
        }
    }
}

/// Checks that a run which begins at a stop passes it, also up to a bound, and where its first
/// instruction is left to the caller.
#[test]
fn a_stop_at_an_instruction_of_the_callers_is_passed() {
    // nop; rdgsbase rax; xsavec [rdi]; rdtsc
    let all: [&[u8]; 4] =
        [&[0x90], &[0xf3, 0x48, 0x0f, 0xae, 0xc8], &[0x0f, 0xc7, 0x27], &[0x0f, 0x31]];
    for bytes in all {
        let (mut translator, _) = counting();
        let mut code = Code { bytes: bytes.to_vec(), is_fixed: false };
        translator.set_stops(&BTreeSet::from([START]));
        let plain = translator.get_or_translate(START, &mut code).unwrap();
        let passing = translator.get_past_stop(START, &mut code).unwrap();
        let bounds = [Bound::Ticks(3), Bound::Instructions(1)];
        let bounded = bounds.map(|bound| translator.get_bounded(START, bound, &mut code).unwrap());
        assert!(translator.stops_at(plain), "{bytes:x?}");
        for number in [passing, bounded[0], bounded[1]] {
            assert!(!translator.stops_at(number), "{bytes:x?}");
        }
    }
}
