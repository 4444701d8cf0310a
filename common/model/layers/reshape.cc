// Reshape.
#include "common/model/keras/keras_config.h"
#include "common/model/keras/keras_writer.h"
#include "common/model/layers/fields.h"
#include "common/model/layers/table.h"
#include "common/model/limits.h"
#include "common/model/onnx/onnx_writer.h"

namespace cairn::layers {
namespace {

absl::Status InferReshape(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>*) {
  const Shape& input = inputs[0];
  Numbers* target = node->layer.mutable_reshape()->mutable_target_shape();
  if (target->empty()) return Bad("target_shape is missing; give it without the batch dimension, such as [7,7,64]");
  if (target->size() > static_cast<int>(kLayerDimensionsMax)) {
    return Bad("target_shape has ", target->size(), " dimensions; at most ", kLayerDimensionsMax,
               " are supported, without the batch dimension");
  }
  const int64_t numbers = NumElements(input);
  int free = -1;
  int64_t known = 1;
  for (int i = 0; i < target->size(); ++i) {
    const int32_t dim = target->Get(i);
    if (dim == -1 && free < 0) {
      free = i;
      continue;
    }
    if (dim == -1) return Bad("target_shape has more than one -1; give all but one");
    if (dim <= 0) return Bad("target_shape ", dim, " is not positive; use 1 or more, or one -1 for what is left");
    known = SaturatingMultiply(known, dim);
  }
  if (free >= 0 && numbers % known == 0) {
    target->Set(free, static_cast<int32_t>(numbers / known));
    known = numbers;
  }
  const Shape shape(target->begin(), target->end());
  if (known != numbers || (free >= 0 && shape[free] == -1)) {
    return Bad("target_shape ", ToString(shape), " does not fit its input ", ToString(input), " of ", numbers,
               " numbers; make their products equal");
  }
  node->output = shape;
  return absl::OkStatus();
}

void ReadReshape(KerasConfig& c, v1::Layer* layer) {
  c.Ints("target_shape", layer->mutable_reshape()->mutable_target_shape());
}

void WriteReshape(const Node& node, KerasWriter& c) { c.Ints("target_shape", node.layer.reshape().target_shape()); }

void WriteOnnx(const Node& node, OnnxWriter& w) {
  w.SetOutput(node, w.Reshape(w.In(node, 0, Channels::kLast), node.output), Channels::kLast);
}

constexpr KerasClass kKeras[] = {{"Reshape", ReadReshape}};

}  // namespace

constinit const LayerType kReshapeLayer = {
    .kind = LayerKind::kReshape,
    .field = v1::Layer::kReshape,
    .name = "reshape",
    .infer = InferReshape,
    .keras = kKeras,
    .write_keras = WriteReshape,
    .write_onnx = WriteOnnx,
};

}  // namespace cairn::layers
