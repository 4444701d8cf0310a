// EinsumDense: y = einsum(equation, x, kernel) + bias.
#include <algorithm>

#include "common/base/lacks.h"
#include "common/model/einsum_equation.h"
#include "common/model/keras/keras_config.h"
#include "common/model/keras/keras_fields.h"
#include "common/model/keras/keras_writer.h"
#include "common/model/layers/fields.h"
#include "common/model/layers/table.h"
#include "common/model/limits.h"
#include "common/model/onnx/onnx_importer.h"
#include "common/model/onnx/onnx_moves.h"
#include "common/model/onnx/onnx_writer.h"

namespace cairn::layers {
namespace {

// The axes of "..." are those of the input and are not in output_shape.
absl::Status InferOutput(const EinsumEquation& e, const Shape& input, const Numbers& given, Node* node) {
  const auto is_elided = [](char c) { return c <= '9'; };
  const int elided = static_cast<int>(std::count_if(e.y.begin(), e.y.end(), is_elided));
  if (given.size() != static_cast<int>(e.y.size()) - elided) {
    return Bad("output_shape has ", given.size(), " numbers, but the equation's output has ",
               static_cast<int>(e.y.size()) - elided,
               " axes after the batch; give one for each, or -1 for that of the input");
  }
  node->output.clear();
  for (size_t i = 0; i < e.y.size(); ++i) {
    const size_t at = e.x.find(e.y[i]);
    const bool in_input = at != std::string::npos;
    const int64_t number = is_elided(e.y[i]) ? -1 : given.Get(static_cast<int>(i) - elided);
    if (number == -1 && !in_input)
      return Bad("output_shape: -1 for \"", std::string(1, e.y[i]), "\", which the input lacks; give its size");
    if (number != -1 && number < 1) return Bad("output_shape: ", number, " is not positive; give sizes, or -1");
    if (number != -1 && in_input && number != input[at])
      return Bad("output_shape: ", number, " for \"", std::string(1, e.y[i]), "\", of which the input has ", input[at]);
    node->output.push_back(in_input ? input[at] : number);
  }
  if (node->output.empty() || node->output.size() > kLayerDimensionsMax)
    return Bad("its output ", ToString(node->output), " has ", node->output.size(), " axes; 1 .. ", kLayerDimensionsMax,
               " are supported");
  return absl::OkStatus();
}

absl::Status InferEinsumDense(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>* variables) {
  v1::EinsumDense* dense = node->layer.mutable_einsum_dense();
  const Shape& input = inputs[0];
  CAIRN_ASSIGN_OR_RETURN(const EinsumEquation e, ParseEinsum(dense->equation(), input.size()));
  CAIRN_RETURN_IF_ERROR(InferOutput(e, input, dense->output_shape(), node));
  CAIRN_RETURN_IF_ERROR(ReadActivation(dense, node));
  Shape kernel;
  for (const char c : e.kernel) {
    const size_t in = e.x.find(c);
    kernel.push_back(in != std::string::npos ? input[in] : node->output[e.y.find(c)]);
  }
  CAIRN_RETURN_IF_ERROR(AddKernel(*node, kernel, dense, variables));
  CAIRN_RETURN_IF_ERROR(
      ResolveInitializer("bias_initializer", v1::Initializer::ZEROS, dense->mutable_bias_initializer()));
  if (dense->bias_axes().empty()) return absl::OkStatus();
  size_t first = e.y.size();
  for (const char c : dense->bias_axes()) {
    const size_t at = e.y.find(c);
    if (at == std::string::npos || c <= '9')
      return Bad("bias_axes: \"", dense->bias_axes(),
                 "\" has characters that are not letters of the output after the batch");
    first = std::min(first, at);
  }
  Shape bias;
  for (size_t i = first; i < e.y.size(); ++i)
    bias.push_back(dense->bias_axes().find(e.y[i]) != std::string::npos ? node->output[i] : 1);
  CAIRN_RETURN_IF_ERROR(AddVariable(*node, "bias", bias, dense->bias_initializer(), variables));
  return Regularize("bias_regularizer", dense->has_bias_regularizer(), dense->bias_regularizer(), variables);
}

// Keras' output_shape, without the batch: a number or a list; null means the axis of the input.
void ReadEinsumDense(KerasConfig& c, v1::Layer* layer) {
  v1::EinsumDense* dense = layer->mutable_einsum_dense();
  c.Text("equation", dense->mutable_equation());
  if (const Json* shape = c.Take("output_shape")) {
    const Json list = shape->is_array() ? *shape : Json::array({*shape});
    if (list.size() > kKerasListMax) return c.Refuse("output_shape: too many numbers");
    for (const Json& item : list) {
      const bool whole = item.is_number_integer() && item.get<double>() >= 1 && item.get<double>() <= INT32_MAX;
      if (!whole && !item.is_null())
        return c.Refuse(absl::StrCat("output_shape: ", ShownJson(*shape), " is not a shape"));
      dense->add_output_shape(whole ? item.get<int32_t>() : -1);
    }
  }
  c.Text("bias_axes", dense->mutable_bias_axes());
  keras::Kernel(c, dense);
  if (dense->bias_axes().empty()) {
    c.Ignore("bias_initializer");
    c.Ignore("bias_regularizer");
  } else {
    if (c.Has("bias_initializer")) c.Initializer("bias_initializer", dense->mutable_bias_initializer());
    keras::Regularizer(c, "bias_regularizer", [&] { return dense->mutable_bias_regularizer(); });
  }
  v1::Activation activation = v1::ACTIVATION_UNSPECIFIED;
  c.Activation("activation", &activation);
  dense->set_activation(activation);
  c.Only("lora_rank", nullptr, keras::kLeaveAway);
  c.Only("lora_alpha", nullptr, keras::kLeaveAway);
}

void WriteEinsumDense(const Node& node, KerasWriter& c) {
  const v1::EinsumDense& dense = node.layer.einsum_dense();
  c["equation"] = dense.equation();
  c["output_shape"] = OrderedJson::array();
  for (const int32_t number : dense.output_shape())
    c["output_shape"].push_back(number == -1 ? OrderedJson(nullptr) : OrderedJson(number));
  c.Activation("activation", dense.activation());
  c["bias_axes"] = nullptr;
  if (!dense.bias_axes().empty()) c["bias_axes"] = dense.bias_axes();
  c.KernelAndBias(dense);
}

void WriteOnnx(const Node& node, OnnxWriter& w) {
  const v1::EinsumDense& dense = node.layer.einsum_dense();
  std::string y = w.Op("Einsum", {w.In(node, 0, Channels::kLast), w.VariableOf(node, "kernel")});
  w.Text("equation", dense.equation().c_str());
  if (const std::string bias = w.VariableOf(node, "bias"); !bias.empty()) y = w.Op("Add", {y, bias});
  w.Finish(node, y, Channels::kLast);
}

// Imports an Einsum of two values, or of one and a constant, the kernel.
absl::Status ImportEinsum(OnnxImporter& importer) {
  if (!importer.IsConstant(1)) return ImportOnnxEinsumOfTwo(importer);
  CAIRN_ASSIGN_OR_RETURN(const OnnxView x, importer.ViewOf(0));
  CAIRN_ASSIGN_OR_RETURN(OnnxTensor kernel, importer.ConstantOf(1, "kernel"));
  OnnxAttributes attributes(importer.node());
  const std::string equation = attributes.Text("equation", "");
  CAIRN_RETURN_IF_ERROR(attributes.Finish());
  if (kernel.whole) return Lacks("a kernel of whole numbers");
  CAIRN_ASSIGN_OR_RETURN(const EinsumEquation e, ParseEinsum(equation, x.dims.size()));
  if (kernel.dims.size() != e.kernel.size()) return Bad("kernel ", ToString(kernel.dims), " for \"", e.kernel, "\"");
  v1::Layer layer;
  v1::EinsumDense* dense = layer.mutable_einsum_dense();
  dense->set_equation(equation);
  for (const char c : e.y) {
    if (c <= '9') continue;
    const size_t at = e.x.find(c);
    dense->add_output_shape(at != std::string::npos ? -1 : static_cast<int32_t>(kernel.dims[e.kernel.find(c)]));
  }
  CAIRN_ASSIGN_OR_RETURN(const int from, importer.layers().Place(x));
  CAIRN_ASSIGN_OR_RETURN(const int id, importer.AddLayer(LayerKind::kEinsumDense, layer, {from},
                                                         {{"kernel", kernel.dims, std::move(kernel.floats)}}, 1));
  importer.SetView(OnnxView::Of(id, importer.layers().ShapeOf(id)));
  return absl::OkStatus();
}

constexpr KerasClass kKeras[] = {{"EinsumDense", ReadEinsumDense}};
constexpr OnnxOperator kOnnx[] = {{"Einsum", ImportEinsum}};

}  // namespace

constinit const LayerType kEinsumDenseLayer = {
    .kind = LayerKind::kEinsumDense,
    .field = v1::Layer::kEinsumDense,
    .name = "einsum_dense",
    .infer = InferEinsumDense,
    .keras = kKeras,
    .write_keras = WriteEinsumDense,
    .write_onnx = WriteOnnx,
    .onnx = kOnnx,
};

}  // namespace cairn::layers
