// ActivityRegularization: returns its input; a penalty on it is part of the loss (common/model/activity.h).
#include <cmath>

#include "common/model/keras/keras_config.h"
#include "common/model/keras/keras_writer.h"
#include "common/model/layers/fields.h"
#include "common/model/layers/table.h"
#include "common/model/onnx/onnx_writer.h"

namespace cairn::layers {
namespace {

absl::Status InferActivityRegularization(absl::Span<const Shape>, Node* node, std::vector<Variable>*) {
  const v1::ActivityRegularization& layer = node->layer.activity_regularization();
  for (const auto& [name, factor] : {std::pair("l1", layer.l1()), std::pair("l2", layer.l2())}) {
    if (factor >= 0 && std::isfinite(factor)) continue;
    return Bad(name, " ", factor, " is not a number from 0; use one such as 0.0001");
  }
  return absl::OkStatus();
}

void ReadActivityRegularization(KerasConfig& c, v1::Layer* layer) {
  float l1 = 0, l2 = 0;
  c.Float("l1", &l1);
  c.Float("l2", &l2);
  layer->mutable_activity_regularization()->set_l1(l1);
  layer->mutable_activity_regularization()->set_l2(l2);
}

void WriteActivityRegularization(const Node& node, KerasWriter& c) {
  c["l1"] = KerasWriter::Rounded(node.layer.activity_regularization().l1());
  c["l2"] = KerasWriter::Rounded(node.layer.activity_regularization().l2());
}

// Omitted: the file is for inference.
void WriteOnnx(const Node& node, OnnxWriter& w) { w.SetOutput(node, w.In(node, 0, w.Has(node, 0)), w.Has(node, 0)); }

constexpr KerasClass kKeras[] = {{"ActivityRegularization", ReadActivityRegularization}};

}  // namespace

constinit const LayerType kActivityRegularizationLayer = {
    .kind = LayerKind::kActivityRegularization,
    .field = v1::Layer::kActivityRegularization,
    .name = "activity_regularization",
    .infer = InferActivityRegularization,
    .keras = kKeras,
    .write_keras = WriteActivityRegularization,
    .write_onnx = WriteOnnx,
};

}  // namespace cairn::layers
