// Clipping by norm (Optimizer.clipnorm, global_clipnorm) with the formulas of Keras, on gradients that may be cut into
// partitions.
//
// Pure functions and plain values; NormBook is of one thread. A scope is what one norm is taken over: a trainable
// variable (clipnorm) or all of them (global_clipnorm). With n = sqrt(sum over the scope of (gradient / examples)^2)
// its gradient is multiplied by
//   clip / n  where n > clip, NaN where n is not finite, else 1.
// Invariants:
//   1. The factor has the same bits however the parameter space is cut: sums of squares are SquareSums.
//   2. All partitions of a scope use one factor in a step. Where every replica's gradient is in every sum that follows
//      from 1. With backup_replicas a partition that failed over may measure its sum anew, of other gradients, when
//      others have their factors already: one partition decides there (NormBook).
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

// What a norm is clipped to; 0: gradients are not clipped by norm.
double ClipNormOf(const v1::Optimizer& optimizer);

// The scope of all numbers, of which it is only asked whether those in its ranges are finite (loss_scale.h): its sum of
// squares is 0 or not finite, its factor 1 or 0.
inline constexpr uint64_t kFiniteScope = UINT64_MAX;

struct ClipScope {
  uint64_t id = 0;
  uint64_t numbers = 0;                             // of it in the range
  uint64_t total = 0;                               // of it in all
  std::vector<std::pair<int64_t, int64_t>> ranges;  // where they lie, from the range's beginning
  bool whole() const { return numbers == total; }
};
// Of the numbers [begin, end) of the parameter space, in order; none where gradients are not clipped by norm.
std::vector<ClipScope> ClipScopesOf(const Graph& graph, const v1::Optimizer& optimizer, int64_t begin, int64_t end);

// One range's share in a norm: the record of NORMS (parameter.proto).
struct NormRecord {
  uint64_t scope = 0;
  uint64_t numbers = 0, total = 0;
  SquareSum squares;
};
inline constexpr size_t kNormRecordBytes = 3 * sizeof(uint64_t) + SquareSum::kBytes;

// `gradient`: the range's, summed over `examples`; may be empty where examples == 0.
NormRecord MeasureNorm(const ClipScope& scope, absl::Span<const float> gradient, uint64_t examples);
double ClipFactor(double clip, const SquareSum& squares);
double ScopeFactor(uint64_t scope, double clip, const SquareSum& squares);
// Multiplies the scope's numbers of `gradient`, in float64, rounded once. Does nothing for 1, or to kFiniteScope.
void ScaleGradient(const ClipScope& scope, double factor, absl::Span<float> gradient);
// Of a gradient that lies in one place.
// False, and what is left of the gradient means nothing: kFiniteScope is among the scopes, and it is not finite.
bool ClipByNorm(absl::Span<const ClipScope> scopes, double clip, uint64_t examples, absl::Span<float> gradient);

std::string EncodeNorms(absl::Span<const NormRecord> records);
// What VALUES tells of an update that was clipped: EncodeNorms of its records, then EncodeFactors of what it was
// clipped by.
// Errors: as DecodeNorms, DecodeFactors. None after records alone.
absl::StatusOr<std::vector<double>> AppliedFactors(const std::string& scalars);
// Of what EncodeNorms gave: names the gradients that the records are of (ExchangeFrame.norms_xxh3).
uint64_t HashOfNorms(const std::string& scalars);
std::string EncodeFactors(absl::Span<const double> factors);
// With or without factors after them. Errors: INVALID_ARGUMENT, `scalars: 7 bytes are no records of norms`.
absl::StatusOr<std::vector<NormRecord>> DecodeNorms(const std::string& scalars);
// `count` of them, each within [0, 1] or NaN.
absl::StatusOr<std::vector<double>> DecodeFactors(const std::string& scalars, size_t count);

// The records of one step's partitions, as they come in. What a call costs does not grow with the number of partitions,
// but for those that share a scope with the one that it is about.
//
// one_decides: only the first partition of a scope gets the factor that the shares give; the others get what that one
// says that it applied, which is kept and does not change any more, whoever fails. It may be of a sum that one of them
// has lost since: the step is clipped as a whole, by the norm of gradients that were all measured in it. Costs a round
// trip; with clipnorm one for each scope in a row of partitions that share one with the next.
class NormBook {
 public:
  // Takes the place of what the partition had; factors: that it applied. The partitions whose factors are known by it,
  // in order.
  std::vector<uint32_t> Set(uint32_t partition, std::vector<NormRecord> records, absl::Span<const double> factors = {});
  void Forget(uint32_t partition);  // its records; factors that were applied stay
  void Clear(bool one_decides = false);
  bool Has(uint32_t partition) const { return records_.contains(partition); }
  // For the partition's records, in their order; nothing while a share in one of their scopes is missing.
  std::optional<std::vector<double>> FactorsFor(uint32_t partition, double clip) const;
  uint64_t HashOf(uint32_t partition) const;  // HashOfNorms of its records; it has some

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
