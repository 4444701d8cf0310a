// Layers of categories: the index of each number, and how indices are encoded.
#include <cmath>

#include "worker/backend/cudnn/kernels/categories.h"
#include "worker/backend/cudnn/kernels/number_text.h"
#include "worker/backend/cudnn/kernels/numbers.h"

namespace cairn::cudnn::kernels {
namespace {

// How many of the rising entries come before `number`, or are equal to it.
template <class Number>
CAIRN_DEVICE int64_t UpperBound(const Number* entries, int64_t count, Number number) {
  int64_t begin = 0;
  while (count > 0) {
    const int64_t half = count / 2;
    const bool above = number < entries[begin + half];
    begin = above ? begin : begin + half + 1;
    count = above ? half : count - half - 1;
  }
  return begin;
}

struct Indexing {
  CategoryIndices c;
  int32_t* indices;
  template <int V>
  CAIRN_DEVICE void Do(int64_t i) const {
    indices[i] = static_cast<int32_t>(Of(i));
  }
  // Within 64 bits; NaN is not.
  CAIRN_DEVICE static bool Fits(float x) { return fabsf(x) < 0x1p63f; }
  CAIRN_DEVICE static bool Whole(float x) { return Fits(x) && truncf(x) == x; }
  CAIRN_DEVICE int64_t Of(int64_t i) const {
    const float x = c.x[i * c.inputs];
    switch (c.rule) {
      case CategoryRule::kBuckets: return UpperBound(c.entries.boundaries, c.entries.count, static_cast<double>(x));
      case CategoryRule::kGiven:
        return x >= 0 && x < static_cast<double>(c.bins) && Whole(x) ? static_cast<int64_t>(x) : kRefused;
      case CategoryRule::kHashed: return Fits(x) ? Hashed(x) : kRefused;
      case CategoryRule::kCrossed: return Crossed(i);
      case CategoryRule::kLookedUp: break;
    }
    return Whole(x) ? LookedUp(static_cast<int64_t>(x)) : kRefused;
  }
  CAIRN_DEVICE int64_t Hashed(float x) const {
    const uint64_t bins = static_cast<uint64_t>(c.bins);
    if (!c.has_mask) return Bin(static_cast<int64_t>(x), bins);
    return static_cast<double>(c.mask) == static_cast<double>(x) ? 0 : 1 + Bin(static_cast<int64_t>(x), bins - 1);
  }
  CAIRN_DEVICE int64_t Bin(int64_t number, uint64_t bins) const {
    const NumberText text(number);
    const uint64_t hash = c.salted ? SipFingerprint(c.salt[0], c.salt[1], text) : FarmFingerprint(text);
    return static_cast<int64_t>(hash % bins);
  }
  CAIRN_DEVICE int64_t Crossed(int64_t i) const {
    uint64_t hash = kCrossedKey;
    for (int64_t k = 0; k < c.inputs; ++k) {
      const float x = c.x[i * c.inputs + k];
      if (!Whole(x)) return kRefused;
      hash = JoinedFingerprints(hash, static_cast<uint64_t>(static_cast<int64_t>(x)));
    }
    return static_cast<int64_t>(hash % static_cast<uint64_t>(c.bins));
  }
  CAIRN_DEVICE int64_t LookedUp(int64_t token) const {
    if (c.has_mask && token == c.mask) return c.mask_index;
    const int64_t behind = UpperBound(c.entries.tokens, c.entries.count, token);
    if (behind > 0 && c.entries.tokens[behind - 1] == token) return c.entries.indices[behind - 1];
    if (c.unknown == 0) return kRefused;
    return c.unknown_begin + (token % c.unknown + c.unknown) % c.unknown;
  }
};

// One number of y: of a row's index, or of all indices of the row.
struct EncodingOf {
  CategoryRows c;
  Divider depth;
  const int32_t* indices;
  Out y;
  template <int V>
  CAIRN_DEVICE void Do(int64_t i) const {
    if (c.mode == CategoryMode::kInt) return Set(y, i, indices[i] < 0 ? 0.0f : static_cast<float>(indices[i]));
    int64_t row;
    const int64_t category = depth.Split(i, &row);
    if (c.mode == CategoryMode::kOneHot) return Set(y, i, indices[row] == category ? 1.0f : 0.0f);
    int64_t count = 0;
    for (int64_t k = 0; k < c.size; ++k) count += indices[row * c.size + k] == category ? 1 : 0;
    if (c.mode == CategoryMode::kMultiHot) return Set(y, i, count > 0 ? 1.0f : 0.0f);
    Set(y, i, static_cast<float>(count) * (c.weights == nullptr ? 1.0f : c.weights[category]));
  }
};

// One block.
struct FirstRefused {
  static constexpr int kThreads = kBlockThreads;
  static constexpr int kSharedBytes = kThreads * 8;
  CategoryIndices c;
  const int32_t* indices;
  double* record;
  template <class B>
  CAIRN_DEVICE void operator()(B& block) const {
    int64_t* values = block.template Shared<int64_t>();
    block.ForEachThread([&](int thread) {
      int64_t first = c.numbers;
      for (int64_t i = thread; i < c.numbers; i += kThreads) {
        if (indices[i] == kRefused && i < first) first = i;
      }
      values[thread] = first;
    });
    const int64_t first = block.Reduce(values, [](int64_t a, int64_t b) { return b < a ? b : a; });
    const bool none = first == c.numbers;
    block.ForEachThread([&](int thread) {
      if (thread == 0) record[0] = none ? 0 : static_cast<double>(first + 1);
      for (int64_t k = thread; k < c.inputs; k += kThreads) record[1 + k] = none ? 0 : c.x[first * c.inputs + k];
    });
  }
};

}  // namespace

Error IndexCategories(Stream stream, const CategoryIndices& c, int32_t* indices) {
  return LaunchForEach(stream, c.numbers, false, Indexing{c, indices});
}

Error EncodeCategories(Stream stream, const CategoryRows& c, const int32_t* indices, void* y, DType type) {
  const bool each = c.mode == CategoryMode::kInt || c.mode == CategoryMode::kOneHot;
  const int64_t n = c.rows * (each ? c.size : 1) * (c.mode == CategoryMode::kInt ? 1 : c.depth);
  return LaunchForEach(stream, n, false, EncodingOf{c, Divider(c.depth, n), indices, {y, type}});
}

Error RecordRefused(Stream stream, const CategoryIndices& c, const int32_t* indices, double* record) {
  return Launch(stream, 1, FirstRefused{c, indices, record});
}

}  // namespace cairn::cudnn::kernels
