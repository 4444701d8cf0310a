// Add: the sum of its inputs.
#include "common/base/limits.h"
#include "common/model/keras/keras_config.h"
#include "common/model/layers/fields.h"
#include "common/model/layers/table.h"
#include "common/model/onnx/onnx_writer.h"

namespace cairn::layers {
namespace {

absl::Status InferAdd(absl::Span<const Shape> inputs, Node*, std::vector<Variable>*) { return NeedOneShape(inputs); }

constexpr KerasClass kKeras[] = {{"Add", [](KerasConfig&, v1::Layer* layer) { layer->mutable_add(); }}};

}  // namespace

constinit const LayerType kAddLayer = {
    .kind = LayerKind::kAdd,
    .field = v1::Layer::kAdd,
    .name = "add",
    .inputs_min = 2,
    .inputs_max = kLayersMax,
    .infer = InferAdd,
    .keras = kKeras,
    .merges = true,
    .write_onnx = [](const Node& node, OnnxWriter& w) { w.Join(node, "Add", "Sum"); },
};

}  // namespace cairn::layers
