// Dense layers, embeddings and normalizations.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/formats/onnx/axis_order.h"
#include "common/formats/onnx/onnx_importer.h"

namespace cairn {

// What was flattened in ONNX's order is flattened in Cairn's: the weights change places, not the numbers.
absl::StatusOr<int> OnnxImporter::PlaceRow(const OnnxView& x, std::vector<int64_t>* order) {
  order->resize(static_cast<size_t>(NumElements(x.dims)));
  WalkInOrder(x.grid, x.axes, [&](int64_t layer, int64_t value) { (*order)[static_cast<size_t>(layer)] = value; });
  return Place(OnnxView::Of(x.layer, x.dims));
}

absl::Status OnnxImporter::AddDense(const OnnxView& x, std::vector<float> kernel, int64_t in, int64_t out,
                                    std::vector<float> bias) {
  if (x.dims.empty() || x.dims.back() != in) return Bad("weight [", in, ",", out, "] on an input ", ToString(x.dims));
  int from = 0;
  if (x.dims.size() == 1 && !x.InPlace()) {
    std::vector<int64_t> order;
    CAIRN_ASSIGN_OR_RETURN(from, PlaceRow(x, &order));
    std::vector<float> ordered;
    ordered.reserve(kernel.size());
    for (const int64_t row : order)
      ordered.insert(ordered.end(), kernel.begin() + row * out, kernel.begin() + (row + 1) * out);
    kernel = std::move(ordered);
  } else {
    CAIRN_ASSIGN_OR_RETURN(from, Place(x));
  }
  v1::Layer layer;
  layer.mutable_dense()->set_units(static_cast<int32_t>(out));
  layer.mutable_dense()->set_use_bias(!bias.empty());
  std::vector<OnnxVariable> variables = {{"kernel", {in, out}, std::move(kernel)}};
  if (!bias.empty()) variables.push_back({"bias", {out}, std::move(bias)});
  CAIRN_ASSIGN_OR_RETURN(const int id, AddLayer(LayerKind::kDense, layer, {from}, std::move(variables), 1));
  open_[node_->output(0)] = id;
  SetView(OnnxView::Of(id, LayerShape(id)));
  return absl::OkStatus();
}

// alpha * x W + beta * c, W perhaps stored as [out, in].
absl::Status OnnxImporter::Gemm() {
  CAIRN_ASSIGN_OR_RETURN(const OnnxView x, ViewOf(0));
  CAIRN_ASSIGN_OR_RETURN(OnnxTensor weight, ConstantOf(1, "weight"));
  OnnxAttributes attributes(*node_);
  const float alpha = attributes.Float("alpha", 1), beta = attributes.Float("beta", 1);
  attributes.Only("transA", 0, "Cairn keeps the batch first");
  const bool transposed = attributes.Int("transB", 0) != 0;
  CAIRN_RETURN_IF_ERROR(attributes.Finish());
  if (weight.whole || weight.dims.size() != 2 || x.dims.size() != 1)
    return Lacks("weight ", ToString(weight.dims), " on an input ", ToString(x.dims));
  if (transposed) {
    weight.floats = InOrder(weight.floats, weight.dims, {1, 0});
    std::swap(weight.dims[0], weight.dims[1]);
  }
  const int64_t in = weight.dims[0], out = weight.dims[1];
  if (weight.floats.empty()) return Bad("weight ", ToString(weight.dims), " is empty");
  for (float& w : weight.floats) w *= alpha;
  std::vector<float> bias;
  if (HasInput(2)) {
    CAIRN_ASSIGN_OR_RETURN(const OnnxTensor c, ConstantOf(2, "bias"));
    if (c.whole || (c.floats.size() != 1 && (c.floats.size() != static_cast<size_t>(out) || c.dims.back() != out))) {
      return Bad("bias ", ToString(c.dims), " for ", out, " outputs");
    }
    bias.assign(static_cast<size_t>(out), c.floats[0]);
    if (c.floats.size() != 1) bias = c.floats;
    for (float& b : bias) b *= beta;
  }
  return AddDense(x, std::move(weight.floats), in, out, std::move(bias));
}

absl::Status OnnxImporter::MatMul() {
  CAIRN_ASSIGN_OR_RETURN(const OnnxView x, ViewOf(0));
  if (!HasInput(1)) return Bad("its weight (input 1) is missing");
  if (!IsConstant(1))
    return Lacks(
        "a product of two layers' outputs; Cairn has it within MultiHeadAttention alone, which is read from files that "
        "Cairn wrote");
  CAIRN_ASSIGN_OR_RETURN(OnnxTensor weight, ConstantOf(1, "weight"));
  CAIRN_RETURN_IF_ERROR(OnnxAttributes(*node_).Finish());
  if (weight.whole || weight.dims.size() != 2 || weight.dims[1] < 1)
    return Lacks("weight ", ToString(weight.dims), "; one of [in,out] is read");
  return AddDense(x, std::move(weight.floats), weight.dims[0], weight.dims[1], {});
}

// Rows of a table, by ids: an embedding.
absl::Status OnnxImporter::Gather() {
  if (!IsConstant(0)) return Lacks("it picks from a layer's output; Cairn picks from constants alone, as an Embedding");
  CAIRN_ASSIGN_OR_RETURN(const OnnxView ids, ViewOf(1));
  CAIRN_ASSIGN_OR_RETURN(OnnxTensor table, ConstantOf(0, "table"));
  OnnxAttributes attributes(*node_);
  attributes.Only("axis", 0, "an Embedding picks whole rows");
  CAIRN_RETURN_IF_ERROR(attributes.Finish());
  if (table.whole || table.dims.size() != 2)
    return Lacks("table ", ToString(table.dims), "; one of [ids,features] is read");
  CAIRN_ASSIGN_OR_RETURN(const int from, Place(ids));
  v1::Layer layer;
  layer.mutable_embedding()->set_input_dim(static_cast<int32_t>(std::min<int64_t>(table.dims[0], INT32_MAX)));
  layer.mutable_embedding()->set_output_dim(static_cast<int32_t>(std::min<int64_t>(table.dims[1], INT32_MAX)));
  CAIRN_ASSIGN_OR_RETURN(const int id, AddLayer(LayerKind::kEmbedding, layer, {from},
                                                {{"embeddings", table.dims, std::move(table.floats)}}, 0));
  SetView(OnnxView::Of(id, LayerShape(id)));
  return absl::OkStatus();
}

absl::Status OnnxImporter::BatchNormalization() {
  CAIRN_ASSIGN_OR_RETURN(const OnnxView x, ViewOf(0));
  if (x.dims.empty()) return Lacks("on an input without channels");
  OnnxAttributes attributes(*node_);
  v1::Layer layer;
  v1::BatchNormalization* bn = layer.mutable_batch_normalization();
  bn->set_epsilon(attributes.Float("epsilon", 1e-5f));
  bn->set_momentum(attributes.Float("momentum", 0.9f));
  attributes.Only("training_mode", 0, "export the model for inference");
  attributes.Only("spatial", 1, "Cairn normalizes by channel");
  CAIRN_RETURN_IF_ERROR(attributes.Finish());
  const int64_t channels = x.dims[0];
  std::vector<OnnxVariable> variables;
  const char *names[] = {"gamma", "beta", "moving_mean", "moving_variance"},
             *whats[] = {"scale", "bias", "mean", "variance"};
  for (int i = 0; i < 4; ++i) {
    CAIRN_ASSIGN_OR_RETURN(std::vector<float> values, FloatsOf(i + 1, whats[i], channels));
    variables.push_back({names[i], {channels}, std::move(values)});
  }
  if (x.dims.size() == 1) {
    std::vector<int64_t> order;
    CAIRN_ASSIGN_OR_RETURN(const int from, PlaceRow(x, &order));
    for (OnnxVariable& v : variables) {
      std::vector<float> ordered;
      for (const int64_t c : order) ordered.push_back(v.values[static_cast<size_t>(c)]);
      v.values = std::move(ordered);
    }
    CAIRN_ASSIGN_OR_RETURN(const int id,
                           AddLayer(LayerKind::kBatchNormalization, layer, {from}, std::move(variables), 1));
    SetView({id, x.grid, x.axes, x.dims});
    return absl::OkStatus();
  }
  CAIRN_ASSIGN_OR_RETURN(const int from, PlaceChannelsLast(x));
  CAIRN_ASSIGN_OR_RETURN(const int id,
                         AddLayer(LayerKind::kBatchNormalization, layer, {from}, std::move(variables), 1));
  SetView(OnnxView::Of(id, LayerShape(id), ChannelsLast(x.dims.size())));
  return absl::OkStatus();
}

template <typename Norm>
absl::Status OnnxImporter::ReadScaleAndBias(int64_t channels, Norm* norm, std::vector<OnnxVariable>* variables) const {
  norm->set_scale(HasInput(1));
  norm->set_center(HasInput(2));
  if (HasInput(1)) {
    CAIRN_ASSIGN_OR_RETURN(std::vector<float> gamma, FloatsOf(1, "scale", channels));
    variables->push_back({"gamma", {channels}, std::move(gamma)});
  }
  if (HasInput(2)) {
    CAIRN_ASSIGN_OR_RETURN(std::vector<float> beta, FloatsOf(2, "bias", channels));
    variables->push_back({"beta", {channels}, std::move(beta)});
  }
  return absl::OkStatus();
}

absl::Status OnnxImporter::LayerNormalization() {
  CAIRN_ASSIGN_OR_RETURN(const OnnxView x, ViewOf(0));
  OnnxAttributes attributes(*node_);
  CAIRN_ASSIGN_OR_RETURN(const int axis, AxisOf(attributes.Int("axis", -1), x));
  v1::Layer layer;
  v1::LayerNormalization* norm = layer.mutable_layer_normalization();
  norm->set_epsilon(attributes.Float("epsilon", 1e-5f));
  attributes.Ignore("stash_type");
  CAIRN_RETURN_IF_ERROR(attributes.Finish());
  if (axis + 1 != static_cast<int>(x.dims.size()))
    return Lacks("it normalizes its input ", ToString(x.dims), " over more than, or others than, the last axis");
  std::vector<OnnxVariable> variables;
  CAIRN_RETURN_IF_ERROR(ReadScaleAndBias(x.dims.back(), norm, &variables));
  CAIRN_ASSIGN_OR_RETURN(const int from, Place(x));
  CAIRN_ASSIGN_OR_RETURN(const int id,
                         AddLayer(LayerKind::kLayerNormalization, layer, {from}, std::move(variables), 1));
  SetView(OnnxView::Of(id, LayerShape(id)));
  return absl::OkStatus();
}

absl::Status OnnxImporter::GroupNormalization() {
  CAIRN_ASSIGN_OR_RETURN(const OnnxView x, ViewOf(0));
  if (x.dims.empty()) return Lacks("on an input without channels");
  OnnxAttributes attributes(*node_);
  const int64_t groups = attributes.Int("num_groups", 0), channels = x.dims[0];
  const std::vector<int64_t> restored = attributes.Ints("restored");
  v1::Layer layer;
  v1::GroupNormalization* norm = layer.mutable_group_normalization();
  norm->set_epsilon(attributes.Float("epsilon", 1e-5f));
  attributes.Ignore("stash_type");
  CAIRN_RETURN_IF_ERROR(attributes.Finish());
  if (groups < 1 || channels % groups != 0)
    return Bad("num_groups ", groups, " does not divide ", channels, " channels");
  norm->set_groups(static_cast<int32_t>(groups));
  bool same = restored.empty() || restored.size() == x.dims.size() + 1;
  for (size_t i = 1; same && i < restored.size(); ++i)
    same = restored[i] == x.dims[i - 1] || restored[i] == -1 || restored[i] == 0;
  if (!same) return Lacks("its groups are put together to another shape than that of its input ", ToString(x.dims));
  std::vector<OnnxVariable> variables;
  CAIRN_RETURN_IF_ERROR(ReadScaleAndBias(channels, norm, &variables));
  CAIRN_ASSIGN_OR_RETURN(const int from, PlaceChannelsLast(x));
  CAIRN_ASSIGN_OR_RETURN(const int id,
                         AddLayer(LayerKind::kGroupNormalization, layer, {from}, std::move(variables), 1));
  SetView(OnnxView::Of(id, LayerShape(id), ChannelsLast(x.dims.size())));
  return absl::OkStatus();
}

// Each channel by itself: as many groups as channels.
absl::Status OnnxImporter::InstanceNormalization() {
  CAIRN_ASSIGN_OR_RETURN(const OnnxView x, ViewOf(0));
  if (x.dims.size() < 2) return Lacks("on an input ", ToString(x.dims));
  OnnxAttributes attributes(*node_);
  v1::Layer layer;
  v1::GroupNormalization* norm = layer.mutable_group_normalization();
  norm->set_epsilon(attributes.Float("epsilon", 1e-5f));
  CAIRN_RETURN_IF_ERROR(attributes.Finish());
  norm->set_groups(-1);
  std::vector<OnnxVariable> variables;
  CAIRN_RETURN_IF_ERROR(ReadScaleAndBias(x.dims[0], norm, &variables));
  CAIRN_ASSIGN_OR_RETURN(const int from, PlaceChannelsLast(x));
  CAIRN_ASSIGN_OR_RETURN(const int id,
                         AddLayer(LayerKind::kGroupNormalization, layer, {from}, std::move(variables), 1));
  SetView(OnnxView::Of(id, LayerShape(id), ChannelsLast(x.dims.size())));
  return absl::OkStatus();
}

}  // namespace cairn
