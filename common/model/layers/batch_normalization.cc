// BatchNormalization over the last axis (Ioffe and Szegedy 2015).
#include "common/base/lacks.h"
#include "common/model/layers/normalization.h"
#include "common/model/layers/table.h"
#include "common/model/onnx/axis_order.h"

namespace cairn::layers {
namespace {

absl::Status InferBatchNormalization(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>* variables) {
  const Shape& input = inputs[0];
  v1::BatchNormalization* bn = node->layer.mutable_batch_normalization();
  CAIRN_RETURN_IF_ERROR(NeedLastAxis(input, bn));
  if (!bn->has_momentum()) bn->set_momentum(0.99f);
  if (!bn->has_epsilon()) bn->set_epsilon(0.001f);
  if (!(bn->momentum() >= 0 && bn->momentum() <= 1)) {
    return Bad("momentum ", bn->momentum(), " is outside [0, 1]; use a number such as 0.99");
  }
  CAIRN_RETURN_IF_ERROR(NeedEpsilon(bn->epsilon()));
  CAIRN_RETURN_IF_ERROR(AddGammaAndBeta(*node, {input.back()}, bn, variables));
  const Shape shape = {input.back()};
  CAIRN_RETURN_IF_ERROR(
      ResolveInitializer("moving_mean_initializer", v1::Initializer::ZEROS, bn->mutable_moving_mean_initializer()));
  CAIRN_RETURN_IF_ERROR(ResolveInitializer("moving_variance_initializer", v1::Initializer::ONES,
                                           bn->mutable_moving_variance_initializer()));
  CAIRN_RETURN_IF_ERROR(AddVariable(*node, "moving_mean", shape, bn->moving_mean_initializer(), variables));
  CAIRN_RETURN_IF_ERROR(AddVariable(*node, "moving_variance", shape, bn->moving_variance_initializer(), variables));
  for (size_t i = variables->size() - 2; i < variables->size(); ++i) {
    (*variables)[i].kind = VariableKind::kMovingAverage;
    (*variables)[i].momentum = bn->momentum();
  }
  return absl::OkStatus();
}

void ReadBatchNormalization(KerasConfig& c, v1::Layer* layer) {
  v1::BatchNormalization* bn = layer->mutable_batch_normalization();
  float momentum = 0.99f;
  c.Float("momentum", &momentum);
  bn->set_momentum(momentum);
  const auto initializer = [&](const char* key, auto mutable_field) {
    if (c.Has(key)) c.Initializer(key, (bn->*mutable_field)());
  };
  initializer("moving_mean_initializer", &v1::BatchNormalization::mutable_moving_mean_initializer);
  initializer("moving_variance_initializer", &v1::BatchNormalization::mutable_moving_variance_initializer);
  c.Only("synchronized", false, "each replica has the statistics of its own batch");
  c.Only("renorm", false, keras::kLeaveAway);
  c.Ignore("renorm_clipping");  // has no effect without renorm
  c.Ignore("renorm_momentum");
  c.Ignore("fused");
  c.Axis("axis");
  Scaled(c, bn);
}

void WriteBatchNormalization(const Node& node, KerasWriter& c) {
  c["axis"] = -1;
  c["momentum"] = KerasWriter::Rounded(node.layer.batch_normalization().momentum());
  WriteScaled(node.layer.batch_normalization(), c);
  c.Initializer("moving_mean_initializer", node.layer.batch_normalization().moving_mean_initializer());
  c.Initializer("moving_variance_initializer", node.layer.batch_normalization().moving_variance_initializer());
  c["synchronized"] = false;
}

void WriteOnnx(const Node& node, OnnxWriter& w) {
  const v1::BatchNormalization& bn = node.layer.batch_normalization();
  const int64_t channels = node.output.back();
  const std::string x = w.In(node, 0, Channels::kFirst);
  std::string gamma = w.VariableOf(node, "gamma"), beta = w.VariableOf(node, "beta");
  if (gamma.empty()) gamma = w.Numbers("ones", {channels}, std::vector<float>(static_cast<size_t>(channels), 1.0f));
  if (beta.empty()) beta = w.Numbers("zeros", {channels}, std::vector<float>(static_cast<size_t>(channels), 0.0f));
  const std::string mean = w.VariableOf(node, "moving_mean"), variance = w.VariableOf(node, "moving_variance");
  const std::string y = w.Op("BatchNormalization", {x, gamma, beta, mean, variance});
  w.Float("epsilon", bn.epsilon());
  w.Float("momentum", bn.momentum());
  w.SetOutput(node, y, Channels::kFirst);
}

absl::Status ImportBatchNormalization(OnnxImporter& importer) {
  CAIRN_ASSIGN_OR_RETURN(const OnnxView x, importer.ViewOf(0));
  if (x.dims.empty()) return Lacks("on an input without channels");
  OnnxAttributes attributes(importer.node());
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
    CAIRN_ASSIGN_OR_RETURN(std::vector<float> values, importer.FloatsOf(i + 1, whats[i], channels));
    variables.push_back({names[i], {channels}, std::move(values)});
  }
  if (x.dims.size() == 1) {
    std::vector<int64_t> order;
    CAIRN_ASSIGN_OR_RETURN(const int from, importer.layers().PlaceRow(x, &order));
    for (OnnxVariable& v : variables) {
      std::vector<float> ordered;
      for (const int64_t c : order) ordered.push_back(v.values[static_cast<size_t>(c)]);
      v.values = std::move(ordered);
    }
    CAIRN_ASSIGN_OR_RETURN(const int id,
                           importer.AddLayer(LayerKind::kBatchNormalization, layer, {from}, std::move(variables), 1));
    importer.SetView({id, x.grid, x.axes, x.dims});
    return absl::OkStatus();
  }
  CAIRN_ASSIGN_OR_RETURN(const int from, importer.layers().PlaceChannelsLast(x));
  CAIRN_ASSIGN_OR_RETURN(const int id,
                         importer.AddLayer(LayerKind::kBatchNormalization, layer, {from}, std::move(variables), 1));
  importer.SetView(OnnxView::Of(id, importer.layers().ShapeOf(id), ChannelsLast(x.dims.size())));
  return absl::OkStatus();
}

std::optional<TorchPlace> PlaceVariable(const Graph&, const Variable& v, absl::string_view name) {
  if (name == "moving_mean") return TorchPlace{"running_mean", v.shape, {0}, v.shape};
  if (name == "moving_variance") return TorchPlace{"running_var", v.shape, {0}, v.shape};
  return std::nullopt;
}

constexpr KerasClass kKeras[] = {{"BatchNormalization", ReadBatchNormalization, "inputs,training,mask"}};
constexpr OnnxOperator kOnnx[] = {{"BatchNormalization", ImportBatchNormalization}};

}  // namespace

constinit const LayerType kBatchNormalizationLayer = {
    .kind = LayerKind::kBatchNormalization,
    .field = v1::Layer::kBatchNormalization,
    .name = "batch_normalization",
    .infer = InferBatchNormalization,
    .keras = kKeras,
    .write_keras = WriteBatchNormalization,
    .write_onnx = WriteOnnx,
    .onnx = kOnnx,
    .torch = PlaceVariable,
};

}  // namespace cairn::layers
