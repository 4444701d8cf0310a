// CAIRN_VECTOR: marks a function with a loop to be compiled for several vector widths. Included by the files with such
// loops.
#pragma once

// There is one copy of the function for each vector width, chosen when the program starts. -ffp-contract=off keeps
// their bits equal.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define CAIRN_VECTOR __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define CAIRN_VECTOR
#endif
