# Compiler settings and the few functions that every module's CMakeLists.txt uses.
#   qn_module(NAME SOURCES … [DEPS …])           static library quern_NAME
#   qn_test(NAME LABEL unit SOURCES … LIBS … [ARGS …])  cmocka program, registered with CTest
#   qn_fuzz(NAME SOURCES … LIBS …)               libFuzzer program fuzz_NAME, only with QN_FUZZ
#   qn_isa(FLAGS "-mavx2 …" SOURCES …)           instruction-set flags for those files alone

include(CheckCCompilerFlag)
find_package(PkgConfig REQUIRED)
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(HWLOC REQUIRED IMPORTED_TARGET hwloc)
pkg_check_modules(EVENT REQUIRED IMPORTED_TARGET libevent libevent_pthreads)
pkg_check_modules(CMOCKA REQUIRED IMPORTED_TARGET cmocka)

add_library(qn_flags INTERFACE)
target_compile_options(qn_flags INTERFACE
    -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wundef
    -Wformat=2 -Wpointer-arith -Werror -fno-math-errno -ffp-contract=off -fno-common
    -fvisibility=hidden)
target_compile_definitions(qn_flags INTERFACE _GNU_SOURCE QN_VERSION="${PROJECT_VERSION}")
target_include_directories(qn_flags INTERFACE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include)
target_link_libraries(qn_flags INTERFACE Threads::Threads m)
if(CMAKE_BUILD_TYPE STREQUAL "Debug")
    target_compile_options(qn_flags INTERFACE -O1 -g)
    target_compile_definitions(qn_flags INTERFACE QN_DEBUG=1)
else()
    target_compile_options(qn_flags INTERFACE -O2 -g1)
    target_compile_definitions(qn_flags INTERFACE QN_DEBUG=0)
endif()
if(QN_SANITIZE)
    target_compile_options(qn_flags INTERFACE -fsanitize=${QN_SANITIZE} -fno-omit-frame-pointer
        -fno-sanitize-recover=all)
    target_link_options(qn_flags INTERFACE -fsanitize=${QN_SANITIZE})
endif()
if(QN_FUZZ)
    target_compile_options(qn_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

function(qn_module name)
    cmake_parse_arguments(A "" "" "SOURCES;DEPS" ${ARGN})
    add_library(quern_${name} STATIC ${A_SOURCES})
    target_link_libraries(quern_${name} PUBLIC qn_flags ${A_DEPS})
    if(NOT name STREQUAL "kernels")
        target_compile_options(quern_${name} PRIVATE -Wconversion)
    endif()
endfunction()

function(qn_test name)
    cmake_parse_arguments(A "" "LABEL" "SOURCES;LIBS;ARGS" ${ARGN})
    add_executable(${name} ${A_SOURCES})
    target_link_libraries(${name} PRIVATE ${A_LIBS} PkgConfig::CMOCKA qn_flags)
    add_test(NAME ${name} COMMAND ${name} ${A_ARGS} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
    set_tests_properties(${name} PROPERTIES LABELS "${A_LABEL}" SKIP_RETURN_CODE 77)
    if(CMAKE_CROSSCOMPILING)
        set_tests_properties(${name} PROPERTIES ENVIRONMENT QUERN_CHECK_SMALL=1)
    endif()
endfunction()

function(qn_fuzz name)
    if(NOT QN_FUZZ)
        return()
    endif()
    cmake_parse_arguments(A "" "" "SOURCES;LIBS" ${ARGN})
    add_executable(fuzz_${name} ${A_SOURCES})
    if(NOT TARGET fuzzers)
        add_custom_target(fuzzers) # all of them and nothing else
    endif()
    add_dependencies(fuzzers fuzz_${name})
    target_link_libraries(fuzz_${name} PRIVATE ${A_LIBS} qn_flags)
    target_compile_options(fuzz_${name} PRIVATE -Wno-missing-prototypes)
    target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
endfunction()

function(qn_isa)
    cmake_parse_arguments(A "" "FLAGS" "SOURCES" ${ARGN})
    separate_arguments(flags UNIX_COMMAND "${A_FLAGS}")
    set_property(SOURCE ${A_SOURCES} APPEND PROPERTY COMPILE_OPTIONS ${flags})
endfunction()
