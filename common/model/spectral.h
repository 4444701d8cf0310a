// Spectral normalization (Miyato et al. 2018) as keras.layers.SpectralNormalization computes it: in a step of training
// a kernel W and a vector u become, before they are used,
//   power_iterations times:  v = (u W^T) / |u W^T|,  u = (v W) / |v W|
//   W / (v W u^T)
// where W is read as a matrix, [all other axes, last axis], and a length below 1e-7 counts as 1e-7. A kernel of
// zeros stays as it is. Where v W u^T is 0 or a quotient is not finite, the kernel and u stay, too: Keras makes inf
// or NaN of them. The gradient is that at the new kernel, and the optimizer updates the new kernel. In inference the
// kernel is used as it is.
//
// Both are functions of the values alone, so that workers (worker/train/spectral_program.h) and ps
// (server/core/dense_partition.h) compute the same from the same values, and nothing else travels.
//
// Pure functions; any thread. Invariants:
//   1. The bits are the same on every x86-64 machine: sums are float64 in the order of the numbers.
//   2. A kernel and its vector lie in one partition (common/model/partition_cut.h), so partitioning changes no bit.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "cairn/v1/job.pb.h"
#include "common/base/status.h"
#include "common/model/graph.h"

namespace cairn {

// A kernel with its vector, which begin at these numbers of the requested part of the space.
struct SpectralRange {
  int64_t kernel = 0, vector = 0;
  int64_t rows = 0, columns = 0;  // of the kernel; the vector has `columns` numbers
  int power_iterations = 1;
};
// The normalized kernels within the numbers [begin, end) of the parameter space, in order. One that is not whole in
// that range is left out: CheckWholeVariables rejects such a partition.
std::vector<SpectralRange> SpectralRangesOf(const Graph& graph, int64_t begin, int64_t end);

// values: the part of the space that the ranges were requested for.
void NormalizeKernels(absl::Span<const SpectralRange> ranges, absl::Span<float> values);

// Errors: INVALID_ARGUMENT names the option of a job with which spectral normalization would not be that of Keras. The
// spec must be resolved.
absl::Status CheckSpectral(const v1::JobSpec& spec, const Graph& graph);

}  // namespace cairn
