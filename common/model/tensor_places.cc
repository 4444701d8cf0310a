#include "common/model/tensor_places.h"

#include "common/base/check.h"

namespace cairn {
namespace {

// The place in an axis of `size` that a place before or behind it has.
int64_t MirroredPlace(v1::Pad::Mode mode, int64_t place, int64_t size) {
  if (place >= 0 && place < size) return place;
  if (mode == v1::Pad::CONSTANT) return -1;
  const int64_t edge = mode == v1::Pad::REFLECT ? 0 : 1;  // how often the number at the edge stands there again
  return place < 0 ? -place - edge : 2 * size - 2 + edge - place;
}

}  // namespace

std::vector<std::vector<int64_t>> PlacesOf(const Node& node, const Shape& input) {
  std::vector<std::vector<int64_t>> places(input.size());
  for (size_t axis = 0; axis < input.size(); ++axis) {
    std::vector<int64_t>& own = places[axis];
    const int64_t size = input[axis];
    const int at = static_cast<int>(axis);
    if (node.kind == LayerKind::kPad) {
      const v1::Pad& pad = node.layer.pad();
      for (int64_t i = -pad.before(at); i < size + pad.after(at); ++i) {
        own.push_back(MirroredPlace(pad.mode(), i, size));
      }
    } else if (node.kind == LayerKind::kTake && node.layer.take().axis() == at + 1) {
      for (const int64_t index : node.layer.take().indices()) own.push_back(index < 0 ? index + size : index);
    } else {
      const int64_t times = node.kind == LayerKind::kTile ? node.layer.tile().repeats(at) : 1;
      for (int64_t i = 0; i < times * size; ++i) own.push_back(i % size);
    }
  }
  return places;
}

}  // namespace cairn
