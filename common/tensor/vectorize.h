// CAIRN_VECTORIZED: compiles a function's loops for several instruction sets, one of which is chosen at program start.
//
// All clones give the same bits: element i depends on element i alone, and -ffp-contract=off keeps the compiler from
// fusing multiplications with additions on processors that could.
#pragma once

// Off under sanitizers: the resolvers run before a sanitizer's run-time library is ready.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && !defined(__clang__)
#define CAIRN_VECTORIZED __attribute__((noinline, target_clones("avx512f", "avx2", "default")))
#else
#define CAIRN_VECTORIZED __attribute__((noinline))
#endif
