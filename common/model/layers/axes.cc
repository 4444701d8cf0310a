#include "common/model/layers/axes.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/model/keras/keras_config.h"
#include "common/model/limits.h"

namespace cairn::layers {

absl::Status ResolveAxes(const char* field, const Shape& input, Numbers* axes) {
  const int32_t rank = static_cast<int32_t>(input.size());
  if (axes->empty()) axes->Add(-1);
  for (int32_t& axis : *axes) {
    const int32_t given = axis;
    if (axis < 0) axis += rank + 1;
    if (axis < 1 || axis > rank) {
      return Bad(field, ": its input ", ToString(input), " has no axis ", given, "; use 1 .. ", rank,
                 ", or -1 for the last one");
    }
  }
  std::sort(axes->begin(), axes->end());
  const auto twice = std::adjacent_find(axes->begin(), axes->end());
  if (twice != axes->end()) return Bad(field, " names axis ", *twice, " twice; name it once");
  return absl::OkStatus();
}

absl::Status NeedLastAxes(const char* field, const Shape& input, Numbers* axes) {
  CAIRN_RETURN_IF_ERROR(ResolveAxes(field, input, axes));
  const int32_t rank = static_cast<int32_t>(input.size());
  if (axes->Get(0) == rank - axes->size() + 1) return absl::OkStatus();
  return Bad(field, ": not the last ones of its input ", ToString(input),
             "; name the last one, or the last ones, or put a permute before and one after it");
}

absl::StatusOr<int32_t> ReadAxis(const Shape& input, bool given, int32_t axis) {
  const int32_t rank = static_cast<int32_t>(input.size()), at = axis < 0 ? axis + rank + 1 : axis;
  if (!given) return Bad("axis is missing; give one of 1 .. ", rank, " of its input ", ToString(input));
  if (at >= 1 && at <= rank) return at;
  return Bad("axis: its input ", ToString(input), " has no axis ", axis, "; use 1 .. ", rank);
}

absl::StatusOr<int32_t> ReadNewAxis(const Shape& input, bool given, int32_t axis) {
  const int32_t rank = static_cast<int32_t>(input.size()) + 1, at = axis < 0 ? axis + rank + 1 : axis;
  if (input.size() >= kLayerDimensionsMax) {
    return Bad("its input ", ToString(input), " has ", input.size(), " axes; one more is too many, the limit is ",
               kLayerDimensionsMax);
  }
  if (!given) return Bad("axis is missing; give the place of the new axis, 1 .. ", rank);
  if (at >= 1 && at <= rank) return at;
  return Bad("axis: ", axis, " is no place for a new axis in its input ", ToString(input), "; use 1 .. ", rank);
}

Shape KeptShape(const Shape& input, const Numbers& axes) {
  Shape kept(input.size(), 1);
  for (const int32_t axis : axes) kept[static_cast<size_t>(axis) - 1] = input[static_cast<size_t>(axis) - 1];
  return kept;
}

Shape SizesOf(const Shape& input, const Numbers& axes) {
  Shape sizes;
  for (const int32_t axis : axes) sizes.push_back(input[static_cast<size_t>(axis) - 1]);
  return sizes;
}

void ReadAxes(KerasConfig& config, Numbers* axes) {
  config.Ints("axis", axes);
  for (const int32_t axis : *axes) {
    if (axis == 0) config.Refuse("axis: 0 is the batch; name an axis after it, from 1, or -1 for the last one");
  }
}

}  // namespace cairn::layers
