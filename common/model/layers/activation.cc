// Activation, and the classes of Keras that are one: ReLU, LeakyReLU, ELU, Softmax.
#include <cmath>
#include <limits>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/bad.h"
#include "common/base/lacks.h"
#include "common/model/keras/keras_config.h"
#include "common/model/keras/keras_fields.h"
#include "common/model/keras/keras_writer.h"
#include "common/model/layers/fields.h"
#include "common/model/layers/table.h"
#include "common/model/onnx/axis_order.h"
#include "common/model/onnx/onnx_importer.h"
#include "common/model/onnx/onnx_writer.h"

namespace cairn::layers {
namespace {

constexpr float kLeakyReluLayerSlope = 0.3f;  // keras.layers.LeakyReLU

absl::Status InferActivation(absl::Span<const Shape>, Node* node, std::vector<Variable>*) {
  v1::ActivationLayer* layer = node->layer.mutable_activation();
  if (layer->activation() == v1::ACTIVATION_UNSPECIFIED) return Bad("activation is missing; use RELU, say");
  CAIRN_RETURN_IF_ERROR(ReadActivation(layer, node));
  const auto positive = [](const char* field, float value, const char* example) {
    if (value >= 0 && std::isfinite(value)) return absl::OkStatus();
    return Bad(field, " ", value, " is negative or not finite; use a number such as ", example);
  };
  if (node->activation == v1::LEAKY_RELU) {
    if (!layer->has_negative_slope()) layer->set_negative_slope(kLeakyReluLayerSlope);
    CAIRN_RETURN_IF_ERROR(positive("negative_slope", layer->negative_slope(), "0.3"));
    node->negative_slope = layer->negative_slope();
  } else if (layer->has_negative_slope()) {
    return Bad("negative_slope is only for LEAKY_RELU; leave it out");
  }
  if (node->activation == v1::ELU) {
    if (!layer->has_alpha()) layer->set_alpha(kEluAlpha);
    CAIRN_RETURN_IF_ERROR(positive("alpha", layer->alpha(), "1"));
    node->alpha = layer->alpha();
  } else if (layer->has_alpha()) {
    return Bad("alpha is only for ELU; leave it out");
  }
  return absl::OkStatus();
}

void ReadActivationLayer(KerasConfig& c, v1::Layer* out) {
  v1::ActivationLayer* layer = out->mutable_activation();
  v1::Activation activation = v1::LINEAR;
  c.Activation("activation", &activation);
  layer->set_activation(activation);
  if (activation == v1::LEAKY_RELU) layer->set_negative_slope(0.2f);  // the function's, not the layer's
}

void ReadReLU(KerasConfig& c, v1::Layer* out) {
  v1::ActivationLayer* layer = out->mutable_activation();
  float slope = 0, threshold = 0, max_value = std::numeric_limits<float>::infinity();
  c.Float("negative_slope", &slope);
  c.Float("threshold", &threshold);
  c.Float("max_value", &max_value);
  const bool open = max_value == std::numeric_limits<float>::infinity();
  if (threshold != 0) c.Refuse("threshold: other than 0 is not supported; leave it out");
  if (!open && (max_value != 6 || slope != 0)) c.Refuse("max_value: only 6 is supported, with negative_slope 0");
  layer->set_activation(!open ? v1::RELU6 : slope != 0 ? v1::LEAKY_RELU : v1::RELU);
  if (slope != 0) layer->set_negative_slope(slope);
}

void ReadLeakyReLU(KerasConfig& c, v1::Layer* out) {
  v1::ActivationLayer* layer = out->mutable_activation();
  float slope = 0.3f;
  c.Float(c.Has("negative_slope") ? "negative_slope" : "alpha", &slope);  // Keras 3; 2
  layer->set_activation(v1::LEAKY_RELU);
  layer->set_negative_slope(slope);
}

void ReadELU(KerasConfig& c, v1::Layer* out) {
  v1::ActivationLayer* layer = out->mutable_activation();
  float alpha = 1;
  c.Float("alpha", &alpha);
  layer->set_activation(v1::ELU);
  layer->set_alpha(alpha);
}

void ReadSoftmax(KerasConfig& c, v1::Layer* layer) {
  layer->mutable_activation()->set_activation(v1::SOFTMAX);
  c.Axis("axis");
}

const char* ClassOf(const Node& node) {
  switch (node.activation) {
    case v1::LEAKY_RELU: return "LeakyReLU";
    case v1::ELU: return "ELU";
    case v1::RELU6: return "ReLU";
    default: return "Activation";
  }
}

void WriteActivation(const Node& node, KerasWriter& c) {
  switch (node.activation) {
    case v1::LEAKY_RELU: c["negative_slope"] = KerasWriter::Rounded(node.negative_slope); break;
    case v1::ELU: {
      const v1::ActivationLayer& layer = node.layer.activation();
      c["alpha"] = KerasWriter::Rounded(layer.has_alpha() ? layer.alpha() : 1.0f);
      break;
    }
    case v1::RELU6:
      c["max_value"] = 6.0;
      c["negative_slope"] = 0.0;
      c["threshold"] = 0.0;
      break;
    default: c.Activation("activation", node.activation);
  }
}

void WriteOnnx(const Node& node, OnnxWriter& w) { w.Finish(node, w.In(node, 0, w.Has(node, 0)), w.Has(node, 0)); }

absl::Status ImportActivation(OnnxImporter& importer) {
  CAIRN_ASSIGN_OR_RETURN(OnnxView x, importer.ViewOf(0));
  OnnxAttributes attributes(importer.node());
  v1::Layer layer;
  v1::ActivationLayer* activation = layer.mutable_activation();
  const std::string& type = importer.node().op_type();
  if (type == "LeakyRelu") {
    activation->set_activation(v1::LEAKY_RELU);
    activation->set_negative_slope(attributes.Float("alpha", 0.01f));
  } else if (type == "Elu") {
    activation->set_activation(v1::ELU);
    activation->set_alpha(attributes.Float("alpha", 1.0f));
  } else if (type == "Swish") {
    activation->set_activation(v1::SILU);
    if (attributes.Float("alpha", 1.0f) != 1.0f) return Lacks("attribute \"alpha\" is not 1");
  } else if (type == "Gelu") {
    const std::string approximate = attributes.Text("approximate", "none");
    if (approximate != "none" && approximate != "tanh")
      return Lacks("attribute \"approximate\" is \"", absl::CEscape(approximate.substr(0, 64)),
                   "\"; none and tanh are known");
    activation->set_activation(approximate == "tanh" ? v1::GELU_TANH : v1::GELU);
  } else {
    activation->set_activation(type == "Relu"      ? v1::RELU
                               : type == "Sigmoid" ? v1::SIGMOID
                               : type == "Tanh"    ? v1::TANH
                                                   : v1::SOFTPLUS);
  }
  CAIRN_RETURN_IF_ERROR(attributes.Finish());
  CAIRN_ASSIGN_OR_RETURN(x.layer, importer.AddLayer(LayerKind::kActivation, layer, {x.layer}));
  importer.SetView(std::move(x));
  return absl::OkStatus();
}

// Before opset 13 all axes from `axis` on were taken as one.
absl::Status ImportSoftmax(OnnxImporter& importer) {
  CAIRN_ASSIGN_OR_RETURN(const OnnxView x, importer.ViewOf(0));
  OnnxAttributes attributes(importer.node());
  const int64_t given = attributes.Int("axis", importer.opset() < 13 ? 1 : -1);
  CAIRN_RETURN_IF_ERROR(attributes.Finish());
  CAIRN_ASSIGN_OR_RETURN(const int axis, x.AxisOf(given));
  if (importer.opset() < 13 && axis + 1 != static_cast<int>(x.dims.size()))
    return Lacks("before opset 13 it takes several axes as one; export with opset 13");
  const std::vector<int> order = AxisLast(x.dims.size(), axis);
  CAIRN_ASSIGN_OR_RETURN(const int from, importer.layers().PlaceInOrder(x, order));
  v1::Layer layer;
  layer.mutable_activation()->set_activation(v1::SOFTMAX);
  CAIRN_ASSIGN_OR_RETURN(const int id, importer.AddLayer(LayerKind::kActivation, layer, {from}));
  importer.SetView(OnnxView::Of(id, importer.layers().ShapeOf(id), order));
  return absl::OkStatus();
}

// Of 0 and 6, or 0 alone.
absl::Status ImportClip(OnnxImporter& importer) {
  CAIRN_ASSIGN_OR_RETURN(OnnxView x, importer.ViewOf(0));
  OnnxAttributes attributes(importer.node());
  float bounds[] = {attributes.Float("min", -INFINITY), attributes.Float("max", INFINITY)};
  CAIRN_RETURN_IF_ERROR(attributes.Finish());
  for (int i = 0; i < 2; ++i) {
    if (!importer.HasInput(i + 1)) continue;
    CAIRN_ASSIGN_OR_RETURN(const std::vector<float> bound, importer.FloatsOf(i + 1, i == 0 ? "min" : "max", 1));
    bounds[i] = bound[0];
  }
  v1::Layer layer;
  if (bounds[0] == 0 && bounds[1] == 6) {
    layer.mutable_activation()->set_activation(v1::RELU6);
  } else if (bounds[0] == 0 && bounds[1] >= 3e38f) {
    layer.mutable_activation()->set_activation(v1::RELU);
  } else {
    v1::Operation* clip = layer.mutable_operation();
    clip->set_kind(v1::Operation::CLIP);
    if (bounds[0] > -3e38f) clip->set_low(bounds[0]);
    if (bounds[1] < 3e38f) clip->set_high(bounds[1]);
    CAIRN_ASSIGN_OR_RETURN(x.layer, importer.AddLayer(LayerKind::kOperation, layer, {x.layer}));
    importer.SetView(std::move(x));
    return absl::OkStatus();
  }
  CAIRN_ASSIGN_OR_RETURN(x.layer, importer.AddLayer(LayerKind::kActivation, layer, {x.layer}));
  importer.SetView(std::move(x));
  return absl::OkStatus();
}

constexpr KerasClass kKeras[] = {{"Activation", ReadActivationLayer},
                                 {"ReLU", ReadReLU},
                                 {"LeakyReLU", ReadLeakyReLU},
                                 {"ELU", ReadELU},
                                 {"Softmax", ReadSoftmax, "inputs,mask"}};
constexpr OnnxOperator kOnnx[] = {{"Relu", ImportActivation},  {"LeakyRelu", ImportActivation},
                                  {"Elu", ImportActivation},   {"Sigmoid", ImportActivation},
                                  {"Tanh", ImportActivation},  {"Softplus", ImportActivation},
                                  {"Swish", ImportActivation}, {"Gelu", ImportActivation},
                                  {"Softmax", ImportSoftmax},  {"Clip", ImportClip}};

}  // namespace

constinit const LayerType kActivationLayer = {
    .kind = LayerKind::kActivation,
    .field = v1::Layer::kActivation,
    .name = "activation",
    .infer = InferActivation,
    .keras = kKeras,
    .keras_class = ClassOf,
    .write_keras = WriteActivation,
    .write_onnx = WriteOnnx,
    .onnx = kOnnx,
};

}  // namespace cairn::layers
