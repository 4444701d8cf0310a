// Average: the mean of its inputs.
#include "common/base/limits.h"
#include "common/model/keras/keras_config.h"
#include "common/model/layers/fields.h"
#include "common/model/layers/table.h"
#include "common/model/onnx/onnx_writer.h"

namespace cairn::layers {
namespace {

absl::Status InferAverage(absl::Span<const Shape> inputs, Node*, std::vector<Variable>*) {
  return NeedOneShape(inputs);
}

constexpr KerasClass kKeras[] = {{"Average", [](KerasConfig&, v1::Layer* layer) { layer->mutable_average(); }}};

}  // namespace

constinit const LayerType kAverageLayer = {
    .kind = LayerKind::kAverage,
    .field = v1::Layer::kAverage,
    .name = "average",
    .inputs_min = 2,
    .inputs_max = kLayersMax,
    .infer = InferAverage,
    .keras = kKeras,
    .merges = true,
    .write_onnx = [](const Node& node, OnnxWriter& w) { w.Join(node, "Mean", "Mean"); },
};

}  // namespace cairn::layers
