// GroupNormalization (Wu and He 2018); it also imports ONNX's InstanceNormalization.
#include <algorithm>

#include "common/base/lacks.h"
#include "common/model/layers/normalization.h"
#include "common/model/layers/table.h"
#include "common/model/onnx/axis_order.h"

namespace cairn::layers {
namespace {

absl::Status InferGroupNormalization(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>* variables) {
  const Shape& input = inputs[0];
  v1::GroupNormalization* norm = node->layer.mutable_group_normalization();
  CAIRN_RETURN_IF_ERROR(NeedLastAxis(input, norm));
  const int64_t channels = input.back();
  if (!norm->has_groups()) norm->set_groups(32);
  if (norm->groups() == -1) norm->set_groups(static_cast<int32_t>(channels));
  if (norm->groups() <= 0) {
    return Bad("groups ", norm->groups(), " is not positive; use a number such as 32, or -1: one for each channel");
  }
  if (channels % norm->groups() != 0) {
    return Bad("groups ", norm->groups(), " does not divide the ", channels,
               " channels of its input; use a divisor of them, or -1: one for each channel");
  }
  if (!norm->has_epsilon()) norm->set_epsilon(0.001f);
  CAIRN_RETURN_IF_ERROR(NeedEpsilon(norm->epsilon()));
  return AddGammaAndBeta(*node, {channels}, norm, variables);
}

void ReadGroupNormalization(KerasConfig& c, v1::Layer* layer) {
  v1::GroupNormalization* gn = layer->mutable_group_normalization();
  int32_t groups = 32;
  c.Int("groups", &groups);
  gn->set_groups(groups);
  c.Axis("axis");
  Scaled(c, gn);
}

void WriteGroupNormalization(const Node& node, KerasWriter& c) {
  c["groups"] = node.layer.group_normalization().groups();
  c["axis"] = -1;
  WriteScaled(node.layer.group_normalization(), c);
}

// Each group is normalized over its channels and all positions, as one channel of an InstanceNormalization.
void WriteOnnx(const Node& node, OnnxWriter& w) {
  const v1::GroupNormalization& norm = node.layer.group_normalization();
  const size_t groups = static_cast<size_t>(norm.groups());
  const std::string x = w.Reshape(w.In(node, 0, Channels::kFirst), {norm.groups(), -1});
  const std::string ones = w.Numbers("ones", {norm.groups()}, std::vector<float>(groups, 1.0f));
  const std::string zeros = w.Numbers("zeros", {norm.groups()}, std::vector<float>(groups, 0.0f));
  const std::string normalized = w.Op("InstanceNormalization", {x, ones, zeros});
  w.Float("epsilon", norm.epsilon());
  Shape first = node.output, dims(node.output.size(), 1);
  std::rotate(first.begin(), first.end() - 1, first.end());
  dims[0] = node.output.back();
  w.SetOutput(node, w.ScaleAndCenter(node, w.Reshape(normalized, first), dims), Channels::kFirst);
}

absl::Status ImportGroupNormalization(OnnxImporter& importer) {
  CAIRN_ASSIGN_OR_RETURN(const OnnxView x, importer.ViewOf(0));
  if (x.dims.empty()) return Lacks("on an input without channels");
  OnnxAttributes attributes(importer.node());
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
  CAIRN_RETURN_IF_ERROR(importer.ReadScaleAndBias(channels, norm, &variables));
  CAIRN_ASSIGN_OR_RETURN(const int from, importer.layers().PlaceChannelsLast(x));
  CAIRN_ASSIGN_OR_RETURN(const int id,
                         importer.AddLayer(LayerKind::kGroupNormalization, layer, {from}, std::move(variables), 1));
  importer.SetView(OnnxView::Of(id, importer.layers().ShapeOf(id), ChannelsLast(x.dims.size())));
  return absl::OkStatus();
}

// Normalizes each channel by itself: there are as many groups as channels.
absl::Status ImportInstanceNormalization(OnnxImporter& importer) {
  CAIRN_ASSIGN_OR_RETURN(const OnnxView x, importer.ViewOf(0));
  if (x.dims.size() < 2) return Lacks("on an input ", ToString(x.dims));
  OnnxAttributes attributes(importer.node());
  v1::Layer layer;
  v1::GroupNormalization* norm = layer.mutable_group_normalization();
  norm->set_epsilon(attributes.Float("epsilon", 1e-5f));
  CAIRN_RETURN_IF_ERROR(attributes.Finish());
  norm->set_groups(-1);
  std::vector<OnnxVariable> variables;
  CAIRN_RETURN_IF_ERROR(importer.ReadScaleAndBias(x.dims[0], norm, &variables));
  CAIRN_ASSIGN_OR_RETURN(const int from, importer.layers().PlaceChannelsLast(x));
  CAIRN_ASSIGN_OR_RETURN(const int id,
                         importer.AddLayer(LayerKind::kGroupNormalization, layer, {from}, std::move(variables), 1));
  importer.SetView(OnnxView::Of(id, importer.layers().ShapeOf(id), ChannelsLast(x.dims.size())));
  return absl::OkStatus();
}

constexpr KerasClass kKeras[] = {{"GroupNormalization", ReadGroupNormalization}};
constexpr OnnxOperator kOnnx[] = {{"GroupNormalization", ImportGroupNormalization},
                                  {"InstanceNormalization", ImportInstanceNormalization}};

}  // namespace

constinit const LayerType kGroupNormalizationLayer = {
    .kind = LayerKind::kGroupNormalization,
    .field = v1::Layer::kGroupNormalization,
    .name = "group_normalization",
    .infer = InferGroupNormalization,
    .keras = kKeras,
    .write_keras = WriteGroupNormalization,
    .write_onnx = WriteOnnx,
    .onnx = kOnnx,
};

}  // namespace cairn::layers
