// Activation, and the Keras classes that are activations: ReLU, LeakyReLU, ELU, Softmax.
#include <cmath>
#include <limits>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/bad.h"
#include "common/base/lacks.h"
#include "common/model/activation_numbers.h"
#include "common/model/keras/keras_config.h"
#include "common/model/keras/keras_fields.h"
#include "common/model/keras/keras_values.h"
#include "common/model/keras/keras_writer.h"
#include "common/model/layers/axes.h"
#include "common/model/layers/fields.h"
#include "common/model/layers/table.h"
#include "common/model/onnx/axis_order.h"
#include "common/model/onnx/onnx_importer.h"
#include "common/model/onnx/onnx_writer.h"

namespace cairn::layers {
namespace {

constexpr float kLeakyReluLayerSlope = 0.3f;  // keras.layers.LeakyReLU

absl::Status NeedFinite(const char* field, float value) {
  if (std::isfinite(value)) return absl::OkStatus();
  return Bad(field, " ", value, " is not finite; use a number such as 0.5");
}

absl::Status NeedNotNegative(const char* field, float value, const char* example) {
  if (value >= 0 && std::isfinite(value)) return absl::OkStatus();
  return Bad(field, " ", value, " is negative or not finite; use a number such as ", example);
}

// keras.layers.ReLU: its maximum, and the threshold below which its input is cut off.
absl::Status ReadRelu(const v1::ActivationLayer& layer, Node* node) {
  const bool bounded = layer.has_max_value(), shifted = layer.has_threshold() && layer.threshold() != 0;
  if (bounded) {
    if (!(layer.max_value() > 0 && std::isfinite(layer.max_value())))
      return Bad("max_value ", layer.max_value(), " is not positive; use a number such as 6, or leave it out");
    node->activation = v1::RELU6;
    node->alpha = layer.max_value();
  }
  if (!shifted) return absl::OkStatus();
  if (bounded) return Bad("threshold and max_value together are not supported; leave one of the two out");
  if (layer.threshold() < 0) return Bad("threshold ", layer.threshold(), " is negative; use a number from 0");
  node->activation = v1::THRESHOLD;
  node->alpha = layer.threshold();
  return NeedFinite("threshold", layer.threshold());
}

// Reads the arguments of the activations that have some.
absl::Status ReadArguments(v1::ActivationLayer* layer, Node* node) {
  const v1::Activation f = layer->activation();
  const auto only = [](const char* field, const char* owners) {
    return Bad(field, " is only for ", owners, "; leave it out");
  };
  if (f == v1::LEAKY_RELU) {
    if (!layer->has_negative_slope()) layer->set_negative_slope(kLeakyReluLayerSlope);
    CAIRN_RETURN_IF_ERROR(NeedNotNegative("negative_slope", layer->negative_slope(), "0.3"));
    node->negative_slope = layer->negative_slope();
  } else if (layer->has_negative_slope()) {
    return only("negative_slope", "LEAKY_RELU");
  }
  if (f == v1::ELU || f == v1::CELU) {
    if (!layer->has_alpha()) layer->set_alpha(kEluAlpha);
    CAIRN_RETURN_IF_ERROR(NeedNotNegative("alpha", layer->alpha(), "1"));
    if (f == v1::CELU && layer->alpha() == 0) return Bad("alpha 0 is not positive; use a number such as 1");
    node->alpha = layer->alpha();
  } else if (f == v1::HARD_SIGMOID && layer->has_alpha()) {
    if (!(layer->alpha() > 0 && std::isfinite(layer->alpha())))
      return Bad("alpha ", layer->alpha(), " is not positive; use a number such as 0.2");
    node->alpha = layer->alpha();
  } else if (layer->has_alpha()) {
    return only("alpha", "ELU, CELU and HARD_SIGMOID");
  }
  const bool shrinks = f == v1::SOFT_SHRINK || f == v1::HARD_SHRINK;
  if (layer->has_max_value() && f != v1::RELU) return only("max_value", "RELU");
  if (layer->has_threshold() && f != v1::RELU && f != v1::THRESHOLD && !shrinks)
    return only("threshold", "RELU, THRESHOLD, SOFT_SHRINK and HARD_SHRINK");
  if (layer->has_value() && f != v1::THRESHOLD) return only("value", "THRESHOLD");
  if (f == v1::THRESHOLD) {
    if (!layer->has_threshold()) return Bad("threshold is missing; give a number such as 1");
    CAIRN_RETURN_IF_ERROR(NeedFinite("threshold", layer->threshold()));
    if (layer->value() != 0)
      return Bad("value ", layer->value(), ": only 0 below the threshold is supported; leave it out");
    node->alpha = layer->threshold();
  }
  if (shrinks) {
    if (!layer->has_threshold()) layer->set_threshold(DefaultAlpha(f));
    CAIRN_RETURN_IF_ERROR(NeedNotNegative("threshold", layer->threshold(), "0.5"));
    node->alpha = layer->threshold();
  }
  return f == v1::RELU ? ReadRelu(*layer, node) : absl::OkStatus();
}

bool IsAlongAxis(v1::Activation f) {
  return f == v1::SOFTMAX || f == v1::LOG_SOFTMAX || f == v1::SPARSEMAX || f == v1::GLU;
}

// For its parameters see common/model/activation_numbers.h.
absl::Status InferActivation(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>*) {
  v1::ActivationLayer* layer = node->layer.mutable_activation();
  if (layer->activation() == v1::ACTIVATION_UNSPECIFIED) return Bad("activation is missing; use RELU, say");
  if (layer->activation() == v1::THRESHOLD || layer->activation() == v1::GLU) {
    node->activation = layer->activation();
  } else {
    CAIRN_RETURN_IF_ERROR(ReadActivation(layer, node));
  }
  node->alpha = DefaultAlpha(node->activation);
  CAIRN_RETURN_IF_ERROR(ReadArguments(layer, node));
  if (layer->activation() == v1::GLU) {
    if (inputs[0].back() % 2 != 0) {
      return Bad("its input is ", ToString(inputs[0]), "; GLU halves the last axis, so it needs an even size");
    }
    node->output.back() /= 2;
  }
  if (layer->axis().empty()) return absl::OkStatus();
  if (!IsAlongAxis(layer->activation()))
    return Bad("axis is only for SOFTMAX, LOG_SOFTMAX, SPARSEMAX and GLU; leave it out");
  CAIRN_RETURN_IF_ERROR(ResolveAxes("axis", inputs[0], layer->mutable_axis()));
  if (layer->axis_size() > 1 || layer->axis(0) != static_cast<int32_t>(inputs[0].size())) {
    return Bad("axis: ", v1::Activation_Name(layer->activation()), " over an axis of ", ToString(inputs[0]),
               " other than the last one is not supported; put a permute before it and one after it");
  }
  layer->clear_axis();
  return absl::OkStatus();
}

// Keras 2's hard_sigmoid has slope 0.2 (keras_dialect.h gives it its own name).
void ReadActivationLayer(KerasConfig& c, v1::Layer* out) {
  v1::ActivationLayer* layer = out->mutable_activation();
  const Json* const given = c.Take("activation");
  if (given != nullptr && *given == kOldHardSigmoid) {
    layer->set_activation(v1::HARD_SIGMOID);
    layer->set_alpha(0.2f);
    return;
  }
  v1::Activation activation = v1::LINEAR;
  c.Activation("activation", &activation);
  layer->set_activation(activation);
  // The default of the function, not that of the layer.
  if (activation == v1::LEAKY_RELU) layer->set_negative_slope(0.2f);
}

void ReadIdentity(KerasConfig&, v1::Layer* layer) { layer->mutable_activation()->set_activation(v1::LINEAR); }

void ReadReLU(KerasConfig& c, v1::Layer* out) {
  v1::ActivationLayer* layer = out->mutable_activation();
  float slope = 0, threshold = 0, max_value = std::numeric_limits<float>::infinity();
  c.Float("negative_slope", &slope);
  c.Float("threshold", &threshold);
  c.Float("max_value", &max_value);
  const bool open = max_value == std::numeric_limits<float>::infinity();
  if (slope != 0 && (threshold != 0 || !open))
    c.Refuse("negative_slope: together with max_value or threshold it is not supported; leave it out");
  layer->set_activation(max_value == 6 && threshold == 0 ? v1::RELU6 : slope != 0 ? v1::LEAKY_RELU : v1::RELU);
  if (slope != 0) layer->set_negative_slope(slope);
  if (layer->activation() != v1::RELU) return;
  if (!open) layer->set_max_value(max_value);
  if (threshold != 0) layer->set_threshold(threshold);
}

void ReadLeakyReLU(KerasConfig& c, v1::Layer* out) {
  v1::ActivationLayer* layer = out->mutable_activation();
  float slope = 0.3f;
  c.Float(c.Has("negative_slope") ? "negative_slope" : "alpha", &slope);  // in Keras 3; in Keras 2
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
  if (c.Has("axis")) ReadAxes(c, layer->mutable_activation()->mutable_axis());
}

// Activations with arguments that no Keras class has.
const char* ClassOf(const Node& node) {
  const v1::ActivationLayer& layer = node.layer.activation();
  switch (layer.activation()) {
    case v1::LEAKY_RELU: return "LeakyReLU";
    case v1::ELU: return "ELU";
    case v1::RELU6: return "ReLU";
    case v1::GLU: return "Glu";  // an operation: the layer of Keras says that it keeps the shape
    case v1::RELU: return layer.has_max_value() || layer.has_threshold() ? "ReLU" : "Activation";
    default: return "Activation";
  }
}

void WriteActivation(const Node& node, KerasWriter& c) {
  const v1::ActivationLayer& layer = node.layer.activation();
  const bool relu = std::string(ClassOf(node)) == "ReLU";
  if (layer.activation() == v1::GLU) {
    c.Clear();
    c["axis"] = -1;
    return;
  }
  if (layer.activation() == v1::LEAKY_RELU) {
    c["negative_slope"] = KerasWriter::Rounded(node.negative_slope);
  } else if (layer.activation() == v1::ELU) {
    c["alpha"] = KerasWriter::Rounded(layer.has_alpha() ? layer.alpha() : 1.0f);
  } else if (relu) {
    c["max_value"] = nullptr;
    if (layer.activation() == v1::RELU6) c["max_value"] = 6.0;
    if (layer.has_max_value()) c["max_value"] = KerasWriter::Rounded(layer.max_value());
    c["negative_slope"] = 0.0;
    c["threshold"] = KerasWriter::Rounded(layer.threshold());
  } else {
    c.Activation("activation", layer.activation());
  }
}

// a * sigmoid(b) of the halves a, b.
void WriteGlu(const Node& node, OnnxWriter& w) {
  const std::string x = w.In(node, 0, Channels::kLast);
  const int64_t half = node.output.back(), axis = static_cast<int64_t>(node.output.size());
  const auto part = [&](int64_t begin) {
    return w.Op("Slice", {x, w.Whole("starts", {begin}), w.Whole("ends", {begin + half}), w.Whole("axes", {axis})});
  };
  const std::string gate = w.Op("Sigmoid", {part(half)});
  w.SetOutput(node, w.Op("Mul", {part(0), gate}), Channels::kLast);
}

void WriteOnnx(const Node& node, OnnxWriter& w) {
  if (node.activation == v1::GLU) return WriteGlu(node, w);
  w.Finish(node, w.In(node, 0, w.Has(node, 0)), w.Has(node, 0));
}

constexpr float kSeluAlpha = 1.67326319f, kSeluScale = 1.05070102f;

bool Near(float a, float b) { return std::abs(a - b) <= 1e-5f * std::abs(b); }

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
  } else if (type == "Selu") {
    activation->set_activation(v1::SELU);
    const bool usual = Near(attributes.Float("alpha", kSeluAlpha), kSeluAlpha) &&
                       Near(attributes.Float("gamma", kSeluScale), kSeluScale);
    if (!usual) return Lacks("attributes \"alpha\" and \"gamma\" are not those of Klambauer et al. 2017");
  } else if (type == "Celu") {
    activation->set_activation(v1::CELU);
    activation->set_alpha(attributes.Float("alpha", 1.0f));
  } else if (type == "HardSigmoid") {
    activation->set_activation(v1::HARD_SIGMOID);
    activation->set_alpha(attributes.Float("alpha", 0.2f));
    if (attributes.Float("beta", 0.5f) != 0.5f) return Lacks("attribute \"beta\" is not 0.5");
    if (Near(activation->alpha(), DefaultAlpha(v1::HARD_SIGMOID))) activation->clear_alpha();
  } else if (type == "ThresholdedRelu") {
    activation->set_activation(v1::THRESHOLD);
    activation->set_threshold(attributes.Float("alpha", 1.0f));
  } else if (type == "Shrink") {
    const float lambda = attributes.Float("lambd", 0.5f), bias = attributes.Float("bias", 0.0f);
    if (bias != 0 && bias != lambda) return Lacks("attribute \"bias\" is neither 0 nor \"lambd\"");
    activation->set_activation(bias == 0 ? v1::HARD_SHRINK : v1::SOFT_SHRINK);
    activation->set_threshold(lambda);
  } else {
    activation->set_activation(type == "Relu"        ? v1::RELU
                               : type == "Sigmoid"   ? v1::SIGMOID
                               : type == "Tanh"      ? v1::TANH
                               : type == "HardSwish" ? v1::HARD_SILU
                               : type == "Softsign"  ? v1::SOFTSIGN
                               : type == "Mish"      ? v1::MISH
                               : type == "Exp"       ? v1::EXPONENTIAL
                                                     : v1::SOFTPLUS);
  }
  CAIRN_RETURN_IF_ERROR(attributes.Finish());
  CAIRN_ASSIGN_OR_RETURN(x.layer, importer.AddLayer(LayerKind::kActivation, layer, {x.layer}));
  importer.SetView(std::move(x));
  return absl::OkStatus();
}

// Softmax and LogSoftmax. Before opset 13 all axes from `axis` on are treated as one.
absl::Status ImportSoftmax(OnnxImporter& importer) {
  CAIRN_ASSIGN_OR_RETURN(const OnnxView x, importer.LaidViewOf(0));
  OnnxAttributes attributes(importer.node());
  const int64_t given = attributes.Int("axis", importer.opset() < 13 ? 1 : -1);
  CAIRN_RETURN_IF_ERROR(attributes.Finish());
  CAIRN_ASSIGN_OR_RETURN(const int axis, x.AxisOf(given));
  v1::Layer layer;
  layer.mutable_activation()->set_activation(importer.node().op_type() == "Softmax" ? v1::SOFTMAX : v1::LOG_SOFTMAX);
  const int rank = static_cast<int>(x.dims.size());
  if (importer.opset() < 13 && axis + 1 != rank) {
    if (axis < x.batch)
      return Lacks("over the batch, axis ", x.batch, ", as it takes all axes from ", given, " on as one");
    // Flatten all axes from `axis` on, in their present order, to rows.
    CAIRN_ASSIGN_OR_RETURN(int from, importer.layers().Place(x));
    int64_t rows = 1, columns = 1;
    for (int i = 0; i < rank; ++i) (i < axis ? rows : columns) *= x.dims[static_cast<size_t>(i)];
    CAIRN_ASSIGN_OR_RETURN(
        from, importer.layers().Place(OnnxView::Of(from, axis == 0 ? Shape{columns} : Shape{rows, columns})));
    CAIRN_ASSIGN_OR_RETURN(const int id, importer.AddLayer(LayerKind::kActivation, layer, {from}));
    importer.SetLaidView(OnnxView::Of(id, x.dims).WithBatchAt(x.batch));
    return absl::OkStatus();
  }
  const std::vector<int> order = AxisLast(x.dims.size(), axis);
  CAIRN_ASSIGN_OR_RETURN(const int from, importer.layers().PlaceInOrder(x, order));
  CAIRN_ASSIGN_OR_RETURN(const int id, importer.AddLayer(LayerKind::kActivation, layer, {from}));
  importer.SetLaidView(OnnxView::Of(id, importer.layers().ShapeOf(id), order).WithBatchAt(x.batch));
  return absl::OkStatus();
}

// A Clip to [0, max] or [-1, 1] becomes an activation, any other one an Operation.
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
  } else if (bounds[0] == 0 && bounds[1] > 0) {
    layer.mutable_activation()->set_activation(v1::RELU);
    layer.mutable_activation()->set_max_value(bounds[1]);
  } else if (bounds[0] == -1 && bounds[1] == 1) {
    layer.mutable_activation()->set_activation(v1::HARD_TANH);
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

constexpr KerasClass kKeras[] = {
    {"Activation", ReadActivationLayer},     {"ReLU", ReadReLU},        {"LeakyReLU", ReadLeakyReLU}, {"ELU", ReadELU},
    {"Softmax", ReadSoftmax, "inputs,mask"}, {"Identity", ReadIdentity}};
constexpr OnnxOperator kOnnx[] = {{"Relu", ImportActivation},        {"LeakyRelu", ImportActivation},
                                  {"Elu", ImportActivation},         {"Sigmoid", ImportActivation},
                                  {"Tanh", ImportActivation},        {"Softplus", ImportActivation},
                                  {"Swish", ImportActivation},       {"Gelu", ImportActivation},
                                  {"Selu", ImportActivation},        {"Celu", ImportActivation},
                                  {"HardSigmoid", ImportActivation}, {"HardSwish", ImportActivation},
                                  {"Softsign", ImportActivation},    {"Mish", ImportActivation},
                                  {"Exp", ImportActivation},         {"ThresholdedRelu", ImportActivation},
                                  {"Shrink", ImportActivation},      {"Softmax", ImportSoftmax},
                                  {"LogSoftmax", ImportSoftmax},     {"Clip", ImportClip}};

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
