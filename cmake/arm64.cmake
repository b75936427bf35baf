# Cross build for 64-bit Arm with Debian's or Ubuntu's compiler. The libraries come from a private
# sysroot that tools/arm64_sysroot.sh makes, because libevent-dev of two architectures cannot be
# installed side by side. Tests run under qemu-user; QEMU_CPU in ctest's environment names the core.

set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)

if(DEFINED ENV{XDG_CACHE_HOME} AND NOT "$ENV{XDG_CACHE_HOME}" STREQUAL "")
    set(CMAKE_SYSROOT $ENV{XDG_CACHE_HOME}/quern/sysroot-arm64)
else()
    set(CMAKE_SYSROOT $ENV{HOME}/.cache/quern/sysroot-arm64)
endif()
if(NOT EXISTS ${CMAKE_SYSROOT}/complete)
    message(FATAL_ERROR "no sysroot ${CMAKE_SYSROOT}: run tools/arm64_sysroot.sh first")
endif()

set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${CMAKE_SYSROOT})
set(ENV{PKG_CONFIG_PATH} "")
set(ENV{PKG_CONFIG_LIBDIR}
    ${CMAKE_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${CMAKE_SYSROOT}/usr/share/pkgconfig)

set(CMAKE_CROSSCOMPILING_EMULATOR ${CMAKE_CURRENT_LIST_DIR}/../tools/qemu_arm64.sh)
