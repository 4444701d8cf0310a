// CAIRN_VECTORIZED: a function whose loops are compiled for several instruction sets, chosen when the program starts.
//
// The clones give the same bits: element i depends on element i alone, and -ffp-contract=off keeps the compiler from
// fusing a multiplication with an addition on those processors that could.
#pragma once

// The resolvers run before a sanitizer's run-time library is ready.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && !defined(__clang__)
#define CAIRN_VECTORIZED __attribute__((noinline, target_clones("avx512f", "avx2", "default")))
#else
#define CAIRN_VECTORIZED __attribute__((noinline))
#endif
