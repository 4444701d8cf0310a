// Clipping by norm (Optimizer.clipnorm, global_clipnorm) with Keras' formulas, for gradients that may be split into
// partitions.
//
// Pure functions and plain values. A NormBook belongs to one thread. A scope is the set of numbers that one norm is
// computed over: a trainable variable (clipnorm) or all of them (global_clipnorm). With n = sqrt(sum over the scope of
// (gradient / examples)^2) the scope's gradient is multiplied by
//   clip / n  where n > clip, NaN where n is not finite, else 1.
// Invariants:
//   1. The factor has the same bits however the parameter space is partitioned: sums of squares are SquareSums.
//   2. All partitions of a scope use the same factor in a step. If every sum includes the gradients of all replicas,
//      this follows from 1. With backup_replicas, a partition that failed over may recompute its sum from other
//      gradients after other partitions have already got their factors. In that case one partition decides (NormBook).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "cairn/v1/optimizer.pb.h"
#include "common/base/status.h"
#include "common/model/graph.h"
#include "common/tensor/square_sum.h"

namespace cairn {

// The norm to clip to; 0: gradients are not clipped by norm.
double ClipNormOf(const v1::Optimizer& optimizer);

// The scope of all numbers. It only tells whether the numbers in its ranges are finite (loss_scale.h): its sum of
// squares is 0 or not finite, and its factor is 1 or 0.
inline constexpr uint64_t kFiniteScope = UINT64_MAX;

struct ClipScope {
  uint64_t id = 0;
  uint64_t numbers = 0;                             // the scope's numbers within the range
  uint64_t total = 0;                               // the scope's numbers overall
  std::vector<std::pair<int64_t, int64_t>> ranges;  // where they are, relative to the range's beginning
  bool whole() const { return numbers == total; }
};
// The scopes of the numbers [begin, end) of the parameter space, in order. Empty if gradients are not clipped by norm.
std::vector<ClipScope> ClipScopesOf(const Graph& graph, const v1::Optimizer& optimizer, int64_t begin, int64_t end);

// One range's contribution to a norm: the record of NORMS (parameter.proto).
struct NormRecord {
  uint64_t scope = 0;
  uint64_t numbers = 0, total = 0;
  SquareSum squares;
};
inline constexpr size_t kNormRecordBytes = 3 * sizeof(uint64_t) + SquareSum::kBytes;

// `gradient`: the range's gradient, summed over `examples`. May be empty if examples == 0.
NormRecord MeasureNorm(const ClipScope& scope, absl::Span<const float> gradient, uint64_t examples);
double ClipFactor(double clip, const SquareSum& squares);
double ScopeFactor(uint64_t scope, double clip, const SquareSum& squares);
// Multiplies the scope's numbers in `gradient`, in float64 with one rounding. Does nothing if the factor is 1 or the
// scope is kFiniteScope.
void ScaleGradient(const ClipScope& scope, double factor, absl::Span<float> gradient);
// Clips a gradient that is not split. Returns false if kFiniteScope is among the scopes and the gradient is not finite;
// the contents of `gradient` are then meaningless.
bool ClipByNorm(absl::Span<const ClipScope> scopes, double clip, uint64_t examples, absl::Span<float> gradient);

std::string EncodeNorms(absl::Span<const NormRecord> records);
// Decodes the scalars that VALUES carries for a clipped update: EncodeNorms of its records, then EncodeFactors of the
// factors that were applied. Returns no factors if there are only records. Errors: as DecodeNorms and DecodeFactors.
absl::StatusOr<std::vector<double>> AppliedFactors(const std::string& scalars);
// Hashes the output of EncodeNorms. It identifies the gradients that the records describe (ExchangeFrame.norms_xxh3).
uint64_t HashOfNorms(const std::string& scalars);
std::string EncodeFactors(absl::Span<const double> factors);
// Accepts records with or without factors after them. Errors: INVALID_ARGUMENT, `scalars: 7 bytes are not records of
// norms`.
absl::StatusOr<std::vector<NormRecord>> DecodeNorms(const std::string& scalars);
// Expects `count` factors, each within [0, 1] or NaN.
absl::StatusOr<std::vector<double>> DecodeFactors(const std::string& scalars, size_t count);

// Collects the records of one step's partitions as they arrive. The cost of a call does not grow with the number of
// partitions, except for those that share a scope with the partition of the call.
//
// one_decides: only the first partition of a scope gets the factor that follows from the records. The others get the
// factor that the first one reports as applied. That factor is kept and never changes, even if a partition fails over.
// It may include the sum of a partition that has since lost it; the step is then still clipped as a whole, by the norm
// of gradients that were all measured in this step. This mode costs a round trip; with clipnorm, one for each scope in
// a row of partitions in which each shares a scope with the next.
class NormBook {
 public:
  // Replaces the partition's records. factors: the factors that the partition has applied. Returns the partitions whose
  // factors became known by this call, in order.
  std::vector<uint32_t> Set(uint32_t partition, std::vector<NormRecord> records, absl::Span<const double> factors = {});
  void Forget(uint32_t partition);  // drops its records; factors that were applied stay
  void Clear(bool one_decides = false);
  bool Has(uint32_t partition) const { return records_.contains(partition); }
  // The factors for the partition's records, in their order. nullopt while a record in one of their scopes is missing.
  std::optional<std::vector<double>> FactorsFor(uint32_t partition, double clip) const;
  uint64_t HashOf(uint32_t partition) const;  // HashOfNorms of its records; the partition must have some

 private:
  struct Scope {
    uint64_t numbers = 0;
    SquareSum squares;
    std::set<uint32_t> partitions;
    std::optional<double> applied;  // by one of them
  };
  bool Known(uint32_t partition, const NormRecord& record) const;

  bool one_decides_ = false;
  std::map<uint32_t, std::vector<NormRecord>> records_;
  std::map<uint64_t, Scope> scopes_;
};

}  // namespace cairn
