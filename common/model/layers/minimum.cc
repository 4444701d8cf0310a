// Minimum: the elementwise minimum of its inputs.
#include "common/base/limits.h"
#include "common/model/keras/keras_config.h"
#include "common/model/layers/fields.h"
#include "common/model/layers/table.h"
#include "common/model/onnx/onnx_writer.h"

namespace cairn::layers {
namespace {

absl::Status InferMinimum(absl::Span<const Shape> inputs, Node*, std::vector<Variable>*) {
  return NeedOneShape(inputs);
}

constexpr KerasClass kKeras[] = {{"Minimum", [](KerasConfig&, v1::Layer* layer) { layer->mutable_minimum(); }}};

}  // namespace

constinit const LayerType kMinimumLayer = {
    .kind = LayerKind::kMinimum,
    .field = v1::Layer::kMinimum,
    .name = "minimum",
    .inputs_min = 2,
    .inputs_max = kLayersMax,
    .infer = InferMinimum,
    .keras = kKeras,
    .merges = true,
    .write_onnx = [](const Node& node, OnnxWriter& w) { w.Join(node, "Min", "Min"); },
};

}  // namespace cairn::layers
