# A program whose debug information has what gcc seldom emits for C: locations with typed values,
# arrays with lower bounds, floating-point types of Fortran, and, as dwz makes it, a declaration in
# a partial unit.

.globl main
.text
main: xorl %eax, %eax
ret
.Lend:

.data
one_and_a_half: .double 1.5

.section .debug_abbrev,"",@progbits
.uleb128 1, 0x11 # DW_TAG_compile_unit
.byte 1
.uleb128 0x13, 0x05, 0x11, 0x01, 0x12, 0x07, 0, 0 # language: data2, low_pc, high_pc: data8
.uleb128 2, 0x24 # DW_TAG_base_type
.byte 0
.uleb128 0x03, 0x08, 0x0b, 0x0b, 0x3e, 0x0b, 0, 0 # name, byte_size, encoding
.uleb128 3, 0x2e # DW_TAG_subprogram
.byte 1
.uleb128 0x03, 0x08, 0x11, 0x01, 0x12, 0x07, 0, 0 # name, low_pc, high_pc
.uleb128 4, 0x34 # DW_TAG_variable
.byte 0
.uleb128 0x03, 0x08, 0x49, 0x13, 0x02, 0x18, 0, 0 # name, type: ref4, location: exprloc
.uleb128 5, 0x01 # DW_TAG_array_type
.byte 1
.uleb128 0x49, 0x13, 0, 0 # type
.uleb128 6, 0x21 # DW_TAG_subrange_type
.byte 0
.uleb128 0x22, 0x0d, 0x2f, 0x0d, 0, 0 # lower_bound, upper_bound: sdata
.uleb128 7, 0x21
.byte 0
.uleb128 0x2f, 0x0d, 0, 0 # upper_bound
.uleb128 8, 0x21
.byte 0
.uleb128 0x22, 0x18, 0x2f, 0x0d, 0, 0 # lower_bound: exprloc, upper_bound
.uleb128 9, 0x34 # DW_TAG_variable
.byte 0
.uleb128 0x47, 0x10, 0x02, 0x18, 0, 0 # specification: ref_addr, location
.uleb128 10, 0x3c # DW_TAG_partial_unit
.byte 1
.uleb128 0, 0
.uleb128 11, 0x39 # DW_TAG_namespace
.byte 1
.uleb128 0x03, 0x08, 0, 0 # name
.uleb128 12, 0x34
.byte 0
.uleb128 0x03, 0x08, 0x3c, 0x19, 0, 0 # name, declaration: flag_present
.byte 0

.section .debug_info,"",@progbits
.Linfo: .long .Linfo_end - .Lversion
.Lversion: .short 5
.byte 1, 8
.long 0
.uleb128 1
.short 0x23 # DW_LANG_Fortran08
.quad main, .Lend - main
.Ldouble: .uleb128 2
.asciz "double"
.byte 8, 4
.Lfloat: .uleb128 2
.asciz "float"
.byte 4, 4
.Lextended: .uleb128 2
.asciz "real(kind=10)"
.byte 16, 4
.Lquad: .uleb128 2
.asciz "real(kind=16)"
.byte 16, 4
.Larray: .uleb128 5
.long .Ldouble - .Linfo
.uleb128 6 # -2 to 2
.sleb128 -2, 2
.uleb128 6 # 4 to 3
.sleb128 4, 3
.uleb128 6 # 4 to -9
.sleb128 4, -9
.uleb128 7 # 1, as Fortran's are, to 10
.sleb128 10
.uleb128 7 # 1 to 0
.sleb128 0
.uleb128 8 # unknown to 3
.uleb128 1
.byte 0x30 # DW_OP_lit0
.sleb128 3
.byte 0
.uleb128 3
.asciz "main"
.quad main, .Lend - main
.uleb128 4
.asciz "in_memory"
.long .Ldouble - .Linfo
.uleb128 13
.byte 0x03 # DW_OP_addr
.quad one_and_a_half
.byte 0xa6, 8 # DW_OP_deref_type
.uleb128 .Ldouble - .Linfo
.byte 0x9f # DW_OP_stack_value
.uleb128 4
.asciz "in_register"
.long .Lfloat - .Linfo
.uleb128 4
.byte 0xa5, 3 # DW_OP_regval_type RBX
.uleb128 .Lfloat - .Linfo
.byte 0x9f
.uleb128 4
.asciz "in_vector"
.long .Ldouble - .Linfo
.uleb128 4
.byte 0xa5, 17 # DW_OP_regval_type XMM0
.uleb128 .Ldouble - .Linfo
.byte 0x9f
.uleb128 4
.asciz "extended"
.long .Lextended - .Linfo
.uleb128 1
.byte 0x50
.uleb128 4
.asciz "quad"
.long .Lquad - .Linfo
.uleb128 1
.byte 0x50
.uleb128 4
.asciz "array"
.long .Larray - .Linfo
.uleb128 1
.byte 0x50 # DW_OP_reg0
.byte 0
.uleb128 9
.long .Ldeclaration
.uleb128 9
.byte 0x03
.quad one_and_a_half
.byte 0
.Linfo_end:

.Lpartial: .long .Lpartial_end - .Lpartial_version
.Lpartial_version: .short 5
.byte 3, 8
.long 0
.uleb128 10
.uleb128 11
.asciz "ns"
.Ldeclaration: .uleb128 12
.asciz "counter"
.byte 0, 0
.Lpartial_end:

.section .note.GNU-stack,"",@progbits
