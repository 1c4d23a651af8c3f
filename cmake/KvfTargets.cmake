# kvf_flags carries every compile flag of the project; each target links it PRIVATE.
if(NOT CMAKE_C_COMPILER_ID MATCHES "GNU|Clang")
    message(FATAL_ERROR "kvferry builds with GCC or Clang; found ${CMAKE_C_COMPILER_ID}")
endif()

add_library(kvf_flags INTERFACE)
target_compile_definitions(kvf_flags INTERFACE _GNU_SOURCE)
set(kvf_warnings
    -Wall
    -Wextra
    -Wshadow
    -Wstrict-prototypes
    -Wmissing-prototypes
    -Wpointer-arith
    -Wwrite-strings
    -Wformat=2
    -Wundef
    -Wvla
)
set(kvf_cuda_warnings -Xcompiler=-Wall,-Wextra)
if(KVFERRY_WERROR)
    list(APPEND kvf_warnings -Werror)
    list(APPEND kvf_cuda_warnings -Werror=all-warnings)
endif()
target_compile_options(kvf_flags INTERFACE
    "$<$<COMPILE_LANGUAGE:C>:${kvf_warnings}>"
    "$<$<COMPILE_LANGUAGE:CUDA>:${kvf_cuda_warnings}>"
)

set(kvf_test_timeout_factor 1)
if(KVFERRY_SANITIZE STREQUAL "address")
    set(kvf_sanitize_flags -fsanitize=address,undefined -fno-sanitize-recover=undefined)
    set(kvf_test_timeout_factor 4)
elseif(KVFERRY_SANITIZE STREQUAL "thread")
    set(kvf_sanitize_flags -fsanitize=thread)
    set(kvf_test_timeout_factor 8)
elseif(NOT KVFERRY_SANITIZE STREQUAL "")
    message(FATAL_ERROR "KVFERRY_SANITIZE is \"${KVFERRY_SANITIZE}\"; want address, thread or nothing")
endif()
if(kvf_sanitize_flags)
    target_compile_options(kvf_flags INTERFACE
        "$<$<COMPILE_LANGUAGE:C>:${kvf_sanitize_flags};-fno-omit-frame-pointer>")
    target_link_options(kvf_flags INTERFACE ${kvf_sanitize_flags})
endif()
if(KVFERRY_LIBFUZZER)
    if(NOT CMAKE_C_COMPILER_ID MATCHES "Clang")
        message(FATAL_ERROR "KVFERRY_LIBFUZZER wants clang; the compiler is ${CMAKE_C_COMPILER_ID}")
    endif()
    # All code is instrumented, not the fuzz programs alone: else libFuzzer is blind.
    target_compile_options(kvf_flags INTERFACE "$<$<COMPILE_LANGUAGE:C>:-fsanitize=fuzzer-no-link>")
    target_link_options(kvf_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

# Strict C11 (POSIX and Linux calls come by _GNU_SOURCE), hidden symbols, the project's flags.
function(kvf_setup_target target)
    target_link_libraries(${target} PRIVATE kvf_flags)
    set_target_properties(${target} PROPERTIES
        C_STANDARD 11
        C_STANDARD_REQUIRED ON
        C_EXTENSIONS OFF
        C_VISIBILITY_PRESET hidden
        CUDA_STANDARD 17
        CUDA_STANDARD_REQUIRED ON
        CUDA_VISIBILITY_PRESET hidden
        POSITION_INDEPENDENT_CODE ON
    )
endfunction()

# A program that starts MPI: in sanitizer builds it keeps modules loaded, so that reports name them.
function(kvf_setup_mpi_program target)
    kvf_setup_target(${target})
    if(KVFERRY_SANITIZE)
        target_sources(${target} PRIVATE "${PROJECT_SOURCE_DIR}/tests/support/keep_modules.c")
        target_link_options(${target} PRIVATE -Wl,--export-dynamic-symbol=dlclose)
    endif()
endfunction()
