// Masking: later layers ignore the steps whose numbers all equal mask_value (common/model/masks.h).
#include <cmath>

#include "common/base/bad.h"
#include "common/model/keras/keras_config.h"
#include "common/model/keras/keras_writer.h"
#include "common/model/layers/fields.h"
#include "common/model/layers/table.h"
#include "common/model/onnx/onnx_writer.h"

namespace cairn::layers {
namespace {

absl::Status InferMasking(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>*) {
  CAIRN_RETURN_IF_ERROR(NeedSequence(inputs[0]));
  const float value = node->layer.masking().mask_value();
  if (!std::isfinite(value)) return Bad("mask_value ", value, " is not finite; use a number such as 0");
  return absl::OkStatus();
}

void ReadMasking(KerasConfig& c, v1::Layer* layer) {
  float value = 0;
  c.Float("mask_value", &value);
  layer->mutable_masking()->set_mask_value(value);
}

void WriteMasking(const Node& node, KerasWriter& c) {
  c["mask_value"] = KerasWriter::Rounded(node.layer.masking().mask_value());
}

// Sets the numbers of masked steps to 0. Later layers write their own handling of the mask.
void WriteOnnx(const Node& node, OnnxWriter& w) {
  const std::string x = w.In(node, 0, Channels::kLast);
  const std::string value = w.Scalar("mask_value", node.layer.masking().mask_value());
  const std::string same = w.Op("Cast", {w.Op("Equal", {x, value})});
  w.Int("to", onnx::TensorProto::FLOAT);
  const std::string all = w.Op("ReduceMin", {same});
  w.Ints("axes", {2});
  w.Int("keepdims", 1);
  w.SetOutput(node, w.Op("Mul", {x, w.Op("Sub", {w.Scalar("one", 1), all})}), Channels::kLast);
}

constexpr KerasClass kKeras[] = {{"Masking", ReadMasking}};

}  // namespace

constinit const LayerType kMaskingLayer = {
    .kind = LayerKind::kMasking,
    .field = v1::Layer::kMasking,
    .name = "masking",
    .infer = InferMasking,
    .keras = kKeras,
    .write_keras = WriteMasking,
    .write_onnx = WriteOnnx,
};

}  // namespace cairn::layers
