// Maximum: the elementwise maximum of its inputs.
#include "common/base/limits.h"
#include "common/model/keras/keras_config.h"
#include "common/model/layers/fields.h"
#include "common/model/layers/table.h"
#include "common/model/onnx/onnx_writer.h"

namespace cairn::layers {
namespace {

absl::Status InferMaximum(absl::Span<const Shape> inputs, Node*, std::vector<Variable>*) {
  return NeedOneShape(inputs);
}

constexpr KerasClass kKeras[] = {{"Maximum", [](KerasConfig&, v1::Layer* layer) { layer->mutable_maximum(); }}};

}  // namespace

constinit const LayerType kMaximumLayer = {
    .kind = LayerKind::kMaximum,
    .field = v1::Layer::kMaximum,
    .name = "maximum",
    .inputs_min = 2,
    .inputs_max = kLayersMax,
    .infer = InferMaximum,
    .keras = kKeras,
    .merges = true,
    .write_onnx = [](const Node& node, OnnxWriter& w) { w.Join(node, "Max", "Max"); },
};

}  // namespace cairn::layers
