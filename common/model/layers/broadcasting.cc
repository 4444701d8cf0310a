#include "common/model/layers/broadcasting.h"

#include <algorithm>

#include "common/base/bad.h"

namespace cairn::layers {

absl::StatusOr<Shape> BroadcastShape(absl::Span<const Shape> inputs) {
  Shape output = inputs[0];
  for (const Shape& input : inputs) {
    if (input.size() > output.size()) output.insert(output.begin(), input.size() - output.size(), 1);
    for (size_t i = 0; i < input.size(); ++i) {
      int64_t& to = output[output.size() - 1 - i];
      const int64_t dim = input[input.size() - 1 - i];
      if (to != dim && to != 1 && dim != 1) {
        return Bad("its inputs ", ToString(inputs[0]), " and ", ToString(input),
                   " differ in an axis that is 1 in neither; make the axes equal or 1");
      }
      to = std::max(to, dim);
    }
  }
  return output;
}

OnnxWriter::Names BroadcastInputs(const Node& node, OnnxWriter& w, Channels* channels) {
  const size_t rank = node.output.size();
  *channels = Channels::kLast;
  bool same_rank = true;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    same_rank = same_rank && w.ShapeOf(node, i).size() == rank;
    if (w.Has(node, i) == Channels::kFirst) *channels = Channels::kFirst;
  }
  if (!same_rank) *channels = Channels::kLast;
  OnnxWriter::Names names;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    names.push_back(w.In(node, i, *channels));
    std::vector<int64_t> axes;
    for (size_t axis = w.ShapeOf(node, i).size(); axis < rank; ++axis) {
      axes.push_back(static_cast<int64_t>(axes.size()) + 1);
    }
    if (!axes.empty()) names.back() = w.Op("Unsqueeze", {names.back(), w.Whole("axes", axes)});
  }
  return names;
}

}  // namespace cairn::layers
