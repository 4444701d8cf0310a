#include "common/model/clip_norm.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <set>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "common/base/decimal.h"
#include "common/base/digest.h"
#include "common/base/words.h"
#include "common/model/limits.h"
#include "common/tensor/finite.h"
#include "common/tensor/vectorize.h"

namespace cairn {
namespace {

CAIRN_VECTORIZED void Scale(float* __restrict numbers, int64_t n, double factor) {
  for (int64_t i = 0; i < n; ++i) numbers[i] = static_cast<float>(static_cast<double>(numbers[i]) * factor);
}

// How many records this many bytes hold, with or without a factor for each; 0: not a valid size. A partition has at
// most kClipRecordsMax records, so that the two kinds have different sizes.
size_t RecordsIn(size_t bytes) {
  static_assert(kClipRecordsMax * sizeof(double) < kNormRecordBytes);
  for (size_t each : {kNormRecordBytes, kNormRecordBytes + sizeof(double)}) {
    if (bytes % each == 0 && bytes / each <= kClipRecordsMax) return bytes / each;
  }
  return 0;
}

}  // namespace

double ClipNormOf(const v1::Optimizer& optimizer) {
  return Decimal(optimizer.has_clipnorm() ? optimizer.clipnorm() : optimizer.global_clipnorm());
}

std::vector<ClipScope> ClipScopesOf(const Graph& graph, const v1::Optimizer& optimizer, int64_t begin, int64_t end) {
  std::vector<ClipScope> scopes;
  if (ClipNormOf(optimizer) == 0) return scopes;
  const bool global = !optimizer.has_clipnorm();
  for (size_t i = 0; i < graph.variables().size(); ++i) {
    const Variable& v = graph.variables()[i];
    const int64_t from = std::max(v.offset, begin), to = std::min(v.offset + v.size, end);
    if (v.kind != VariableKind::kTrainable || from >= to) continue;
    if (!global || scopes.empty()) {
      ClipScope& scope = scopes.emplace_back();
      scope.id = global ? 0 : i;
      scope.total = static_cast<uint64_t>(global ? graph.trainable_parameters() : v.size);
    }
    scopes.back().numbers += static_cast<uint64_t>(to - from);
    scopes.back().ranges.emplace_back(from - begin, to - begin);
  }
  return scopes;
}

NormRecord MeasureNorm(const ClipScope& scope, absl::Span<const float> gradient, uint64_t examples) {
  NormRecord record{scope.id, scope.numbers, scope.total, {}};
  if (examples == 0) return record;
  for (const auto& [begin, end] : scope.ranges) {
    if (scope.id == kFiniteScope) {
      if (AllFinite(gradient.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)))) continue;
      const float infinite = std::numeric_limits<float>::infinity();
      record.squares.Add({&infinite, 1}, 1);
      continue;
    }
    record.squares.Add(gradient.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)),
                       static_cast<float>(examples));
  }
  return record;
}

double ClipFactor(double clip, const SquareSum& squares) {
  const double norm = squares.Root();
  if (std::isnan(norm)) return norm;
  return norm > clip ? clip / norm : 1;
}

double ScopeFactor(uint64_t scope, double clip, const SquareSum& squares) {
  if (scope == kFiniteScope) return squares.finite() ? 1 : 0;
  return ClipFactor(clip, squares);
}

void ScaleGradient(const ClipScope& scope, double factor, absl::Span<float> gradient) {
  if (factor == 1 || gradient.empty() || scope.id == kFiniteScope) return;
  for (const auto& [begin, end] : scope.ranges) Scale(gradient.data() + begin, end - begin, factor);
}

bool ClipByNorm(absl::Span<const ClipScope> scopes, double clip, uint64_t examples, absl::Span<float> gradient) {
  bool finite = true;
  for (const ClipScope& scope : scopes) {
    const SquareSum squares = MeasureNorm(scope, gradient, examples).squares;
    if (scope.id == kFiniteScope) finite = squares.finite();
    ScaleGradient(scope, ScopeFactor(scope.id, clip, squares), gradient);
  }
  return finite;
}

std::string EncodeNorms(absl::Span<const NormRecord> records) {
  std::string out;
  for (const NormRecord& r : records) {
    for (uint64_t word : {r.scope, r.numbers, r.total}) AppendWord(word, &out);
    r.squares.AppendTo(&out);
  }
  return out;
}

absl::StatusOr<std::vector<double>> AppliedFactors(const std::string& scalars) {
  const size_t count = RecordsIn(scalars.size());
  if (count == 0)
    return absl::InvalidArgumentError(absl::StrCat("scalars: ", scalars.size(), " bytes are not records of norms"));
  if (scalars.size() == count * kNormRecordBytes) return std::vector<double>();
  return DecodeFactors(scalars.substr(count * kNormRecordBytes), count);
}

uint64_t HashOfNorms(const std::string& scalars) { return Checksum(scalars.data(), scalars.size()); }

std::string EncodeFactors(absl::Span<const double> factors) {
  std::string out;
  for (double f : factors) AppendWord(std::bit_cast<uint64_t>(f), &out);
  return out;
}

absl::StatusOr<std::vector<NormRecord>> DecodeNorms(const std::string& scalars) {
  const size_t count = RecordsIn(scalars.size());
  if (count == 0)
    return absl::InvalidArgumentError(absl::StrCat("scalars: ", scalars.size(), " bytes are not records of norms"));
  std::vector<NormRecord> records;
  for (size_t at = 0; at < count * kNormRecordBytes; at += kNormRecordBytes) {
    NormRecord& r = records.emplace_back();
    r.scope = WordAt(scalars, at);
    r.numbers = WordAt(scalars, at + 8);
    r.total = WordAt(scalars, at + 16);
    r.squares = SquareSum::From(std::string_view(scalars).substr(at + 24, SquareSum::kBytes));
  }
  return records;
}

absl::StatusOr<std::vector<double>> DecodeFactors(const std::string& scalars, size_t count) {
  if (scalars.size() != count * sizeof(double)) {
    return absl::InvalidArgumentError(
        absl::StrCat("scalars: ", scalars.size(), " bytes, expected ", count, " factors of 8"));
  }
  std::vector<double> factors;
  for (size_t i = 0; i < count; ++i) {
    const double f = std::bit_cast<double>(WordAt(scalars, 8 * i));
    if (f < 0 || f > 1) return absl::InvalidArgumentError(absl::StrCat("scalars: factor ", f, " is outside [0, 1]"));
    factors.push_back(f);
  }
  return factors;
}

bool NormBook::Known(uint32_t partition, const NormRecord& record) const {
  const Scope& scope = scopes_.at(record.scope);
  if (scope.applied) return true;
  return scope.numbers == record.total && (!one_decides_ || partition == *scope.partitions.begin());
}

std::vector<uint32_t> NormBook::Set(uint32_t partition, std::vector<NormRecord> records,
                                    absl::Span<const double> factors) {
  Forget(partition);
  std::set<uint32_t> sharing;
  for (size_t i = 0; i < records.size(); ++i) {
    const NormRecord& r = records[i];
    Scope& scope = scopes_[r.scope];
    scope.numbers += r.numbers;
    scope.squares.Add(r.squares);
    scope.partitions.insert(partition);
    if (i < factors.size()) scope.applied = factors[i];
    if (scope.applied || scope.numbers == r.total) sharing.insert(scope.partitions.begin(), scope.partitions.end());
  }
  records_[partition] = std::move(records);
  std::vector<uint32_t> known;
  for (uint32_t p : sharing) {
    const std::vector<NormRecord>& of = records_.at(p);
    if (std::all_of(of.begin(), of.end(), [&](const NormRecord& r) { return Known(p, r); })) known.push_back(p);
  }
  return known;
}

void NormBook::Forget(uint32_t partition) {
  const auto found = records_.extract(partition);
  if (found.empty()) return;
  for (const NormRecord& gone : found.mapped()) {
    Scope& scope = scopes_[gone.scope];
    scope.partitions.erase(partition);
    scope.numbers = 0;
    scope.squares = SquareSum();
    for (uint32_t p : scope.partitions) {
      for (const NormRecord& r : records_.at(p)) {
        if (r.scope != gone.scope) continue;
        scope.numbers += r.numbers;
        scope.squares.Add(r.squares);
      }
    }
  }
}

uint64_t NormBook::HashOf(uint32_t partition) const { return HashOfNorms(EncodeNorms(records_.at(partition))); }

void NormBook::Clear(bool one_decides) {
  one_decides_ = one_decides;
  records_.clear();
  scopes_.clear();
}

std::optional<std::vector<double>> NormBook::FactorsFor(uint32_t partition, double clip) const {
  std::vector<double> factors;
  for (const NormRecord& r : records_.at(partition)) {
    if (!Known(partition, r)) return std::nullopt;
    const Scope& scope = scopes_.at(r.scope);
    factors.push_back(scope.applied ? *scope.applied : ScopeFactor(r.scope, clip, scope.squares));
  }
  return factors;
}

}  // namespace cairn
