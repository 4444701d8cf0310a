// Launchers of layers of categories (categories.cu): common/model/category_function.h on the device. The invariants of
// kernels.h hold.
#pragma once

#include "worker/backend/cudnn/kernels/kernels.h"

namespace cairn::cudnn::kernels {

// Indices that are no category's: what is not counted (kNoCategory), and what the layer refuses.
inline constexpr int32_t kSkipped = -1, kRefused = -2;

enum class CategoryRule : int32_t {
  kBuckets,   // how many boundaries are not above the number
  kGiven,     // the number itself, a whole one below `bins`
  kHashed,    // the hash of its decimal digits; with a mask 0 is the mask's bin
  kCrossed,   // the hash of several whole numbers
  kLookedUp,  // its place in a vocabulary
};
// Boundaries, or tokens with the index of each.
struct RisingEntries {
  int64_t count = 0;
  const double* boundaries = nullptr;
  const int64_t* tokens = nullptr;
  const int32_t* indices = nullptr;
};
struct CategoryIndices {
  CategoryRule rule = CategoryRule::kBuckets;
  int64_t numbers = 0;
  int64_t inputs = 1;        // numbers that make one index; more than one: of kCrossed
  const float* x = nullptr;  // [numbers, inputs]
  int64_t bins = 1;
  bool has_mask = false;
  int64_t mask = 0;        // kHashed, kLookedUp
  int32_t mask_index = 0;  // kLookedUp
  bool salted = false;     // kHashed: SipHash with this salt, else FarmHash
  uint64_t salt[2] = {};
  RisingEntries entries;                   // kBuckets: the boundaries. kLookedUp: the tokens
  int64_t unknown_begin = 0, unknown = 0;  // kLookedUp: the first index of unknown tokens, and how many there are
};
Error IndexCategories(Stream stream, const CategoryIndices& c, int32_t* indices);

// CategoryCode::Write of the indices of `rows` rows of `size`. Those below 0 are zeros.
enum class CategoryMode : int32_t { kInt, kOneHot, kMultiHot, kCount };
struct CategoryRows {
  CategoryMode mode = CategoryMode::kInt;
  int64_t rows = 0, size = 0, depth = 1;
  const float* weights = nullptr;  // of kCount's indices; null: 1
};
Error EncodeCategories(Stream stream, const CategoryRows& c, const int32_t* indices, void* y, DType type);

// record: 1 + the place of the first index that is kRefused, or 0 if there is none; and behind it the `inputs` numbers
// there.
Error RecordRefused(Stream stream, const CategoryIndices& c, const int32_t* indices, double* record);

}  // namespace cairn::cudnn::kernels
