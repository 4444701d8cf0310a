// Multiply: the product of its inputs, number by number.
#include <algorithm>

#include "common/base/limits.h"
#include "common/model/keras/keras_config.h"
#include "common/model/layers/fields.h"
#include "common/model/layers/table.h"
#include "common/model/limits.h"
#include "common/model/onnx/onnx_writer.h"

namespace cairn::layers {
namespace {

// As numpy broadcasts: axes are counted from the last one, one of 1 is repeated.
absl::Status InferMultiply(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>*) {
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
  node->output = output;
  if (output.size() <= kPermutedAxesMax) return absl::OkStatus();
  for (const Shape& input : inputs) {
    if (input != output) {
      return Bad("its inputs ", ToString(inputs[0]), " and ", ToString(input),
                 " differ; of more than three axes all are to be equal");
    }
  }
  return absl::OkStatus();
}

// Shapes of fewer axes are stretched from the last one, behind the batch.
void WriteOnnx(const Node& node, OnnxWriter& w) {
  const size_t rank = node.output.size();
  Channels channels = Channels::kLast;
  bool same_rank = true;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    same_rank = same_rank && w.ShapeOf(node, i).size() == rank;
    if (w.Has(node, i) == Channels::kFirst) channels = Channels::kFirst;
  }
  if (!same_rank) channels = Channels::kLast;
  std::string product;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    std::string factor = w.In(node, i, channels);
    std::vector<int64_t> axes;
    for (size_t axis = w.ShapeOf(node, i).size(); axis < rank; ++axis)
      axes.push_back(static_cast<int64_t>(axes.size()) + 1);
    if (!axes.empty()) factor = w.Op("Unsqueeze", {factor, w.Whole("axes", axes)});
    product = product.empty() ? factor : w.Op("Mul", {product, factor});
  }
  w.SetOutput(node, product, channels);
}

constexpr KerasClass kKeras[] = {{"Multiply", [](KerasConfig&, v1::Layer* layer) { layer->mutable_multiply(); }}};

}  // namespace

constinit const LayerType kMultiplyLayer = {
    .kind = LayerKind::kMultiply,
    .field = v1::Layer::kMultiply,
    .name = "multiply",
    .inputs_min = 2,
    .inputs_max = kLayersMax,
    .infer = InferMultiply,
    .keras = kKeras,
    .merges = true,
    .write_onnx = WriteOnnx,
};

}  // namespace cairn::layers
