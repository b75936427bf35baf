# Attention, norm, rope, activation and sampling operations: adds to kernels_sources. The vector
# variants are optimised in every build: unoptimised, their register tiles live in memory.
list(APPEND kernels_sources attn.c ops.c rope.c generic/attn.c generic/ops.c)
if(kernels_arch STREQUAL "x86")
    qn_isa(FLAGS "-O2 -mavx2 -mfma" SOURCES x86/attn_avx2.c x86/ops_avx2.c)
    qn_isa(FLAGS "-O2 -mavx2 -mfma -mavx512f -mavx512bw -mavx512vl -mavx512dq"
        SOURCES x86/attn_avx512.c x86/ops_avx512.c)
    list(APPEND kernels_sources x86/attn_avx2.c x86/ops_avx2.c x86/attn_avx512.c x86/ops_avx512.c)
elseif(kernels_arch STREQUAL "arm")
    set(ops_neon_flags "-O2 -march=armv8-a")
    if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
        # gcc's first scheduler stretches live ranges until accumulators spill.
        string(APPEND ops_neon_flags " -fno-schedule-insns")
    endif()
    qn_isa(FLAGS "${ops_neon_flags}" SOURCES arm/attn_neon.c arm/ops_neon.c)
    list(APPEND kernels_sources arm/attn_neon.c arm/ops_neon.c)
endif()

qn_test(attn_check LABEL check SOURCES attn_check.c attn_check_util.c LIBS quern_kernels_check)
qn_test(ops_check LABEL check SOURCES ops_check.c LIBS quern_kernels_check)
qn_test(rope_test LABEL unit SOURCES rope_test.c LIBS quern_kernels)
