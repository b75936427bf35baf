# GEMM on Arm. -fno-schedule-insns: gcc's pre-allocation scheduler copies or spills accumulators.
set(gemm_neon_sources arm/gemm_f32_neon.c arm/gemm_i8_neon.c)
set(gemm_dotprod_sources arm/gemm_i8_dotprod.c)
set(gemm_i8mm_sources arm/gemm_i8_i8mm.c arm/gemm_bf16_i8mm.c)
qn_isa(FLAGS "-march=armv8-a" SOURCES ${gemm_neon_sources})
qn_isa(FLAGS "-march=armv8.2-a+dotprod" SOURCES ${gemm_dotprod_sources})
qn_isa(FLAGS "-march=armv8.2-a+dotprod+i8mm+bf16" SOURCES ${gemm_i8mm_sources})
if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
    qn_isa(FLAGS "-fno-schedule-insns"
        SOURCES ${gemm_neon_sources} ${gemm_dotprod_sources} ${gemm_i8mm_sources})
endif()
list(APPEND kernels_sources ${gemm_neon_sources} ${gemm_dotprod_sources} ${gemm_i8mm_sources})
