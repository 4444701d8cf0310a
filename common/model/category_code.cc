#include "common/model/category_code.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/bad.h"
#include "common/base/limits.h"
#include "common/model/limits.h"

namespace cairn {

absl::StatusOr<Shape> CategoryCode::Of(const Shape& indices) const {
  if (mode == v1::INT) return indices;
  Shape shape = indices;
  if (mode == v1::ONE_HOT) {
    if (shape.back() == 1) shape.pop_back();  // as in Keras: [.., 1] is one category
    shape.push_back(depth);
    if (shape.size() > kLayerDimensionsMax) {
      return Bad("output_mode ONE_HOT: its input is ", ToString(indices), "; it takes at most ",
                 kLayerDimensionsMax - 1, " axes");
    }
    return shape;
  }
  if (indices.size() != 1) {
    return Bad("output_mode ", v1::EncodingMode_Name(mode), ": its input is ", ToString(indices),
               "; it takes [categories], so flatten it or use ONE_HOT");
  }
  return Shape{depth};
}

template <typename T>
void CategoryCode::Write(absl::Span<const int64_t> indices, T* y) const {
  if (mode == v1::INT) {
    std::copy(indices.begin(), indices.end(), y);
    return;
  }
  const bool rows = mode == v1::ONE_HOT;
  std::fill_n(y, depth * (rows ? static_cast<int64_t>(indices.size()) : 1), T{0});
  for (const int64_t index : indices) {
    if (index != kNoCategory) y[index] = rows || mode == v1::MULTI_HOT ? T{1} : y[index] + T{1};
    if (rows) y += depth;
  }
  if (mode != v1::TF_IDF) return;
  for (int64_t i = 0; i < depth; ++i) y[i] *= static_cast<T>(weights[static_cast<size_t>(i)]);
}

template void CategoryCode::Write(absl::Span<const int64_t>, float*) const;
template void CategoryCode::Write(absl::Span<const int64_t>, double*) const;

absl::StatusOr<v1::EncodingMode> EncodingModeOf(v1::EncodingMode given, v1::EncodingMode fallback,
                                                absl::Span<const v1::EncodingMode> allowed) {
  if (given == v1::ENCODING_MODE_UNSPECIFIED) return fallback;
  if (std::find(allowed.begin(), allowed.end(), given) != allowed.end()) return given;
  const std::string names = absl::StrJoin(
      allowed, ", ", [](std::string* out, v1::EncodingMode mode) { *out += v1::EncodingMode_Name(mode); });
  const std::string& name = v1::EncodingMode_Name(given);
  return Bad("output_mode: the layer has no ", name.empty() ? absl::StrCat(static_cast<int>(given)) : name, "; use ",
             names);
}

}  // namespace cairn
