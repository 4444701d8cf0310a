// Dense, on the last axis.
#include <algorithm>
#include <utility>

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

absl::Status InferDense(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>* variables) {
  const Shape& input = inputs[0];
  v1::Dense* dense = node->layer.mutable_dense();
  CAIRN_RETURN_IF_ERROR(NeedPositive("units", dense->units(), "10"));
  node->output.back() = dense->units();
  CAIRN_RETURN_IF_ERROR(ReadActivation(dense, node));
  CAIRN_RETURN_IF_ERROR(AddKernel(*node, {input.back(), dense->units()}, dense, variables));
  return AddBias(*node, dense->units(), dense, variables);
}

void ReadDense(KerasConfig& c, v1::Layer* layer) {
  v1::Dense* dense = layer->mutable_dense();
  int32_t units = 0;
  c.Int("units", &units);
  dense->set_units(units);
  keras::Kernel(c, dense);
  keras::BiasAndActivation(c, dense);
}

void WriteDense(const Node& node, KerasWriter& c) {
  c["units"] = node.layer.dense().units();
  c.ActivationAndBias(node.layer.dense());
  c.KernelAndBias(node.layer.dense());
}

void WriteOnnx(const Node& node, OnnxWriter& w) {
  const std::string x = w.In(node, 0, Channels::kLast);
  const std::string kernel = w.VariableOf(node, "kernel"), bias = w.VariableOf(node, "bias");
  std::string y;
  if (node.output.size() == 1) {
    y = w.Op("Gemm", bias.empty() ? OnnxWriter::Names{x, kernel} : OnnxWriter::Names{x, kernel, bias});
  } else {
    y = w.Op("MatMul", {x, kernel});
    if (!bias.empty()) y = w.Op("Add", {y, bias});
  }
  w.Finish(node, y, Channels::kLast);
}

// kernel: [in, out], its rows in the value's order.
absl::Status AddDense(OnnxImporter& importer, const OnnxView& x, std::vector<float> kernel, int64_t in, int64_t out,
                      std::vector<float> bias) {
  if (x.dims.empty() || x.dims.back() != in) return Bad("weight [", in, ",", out, "] on an input ", ToString(x.dims));
  int from = 0;
  if (x.dims.size() == 1 && !x.InPlace()) {
    std::vector<int64_t> order;
    CAIRN_ASSIGN_OR_RETURN(from, importer.layers().PlaceRow(x, &order));
    std::vector<float> ordered;
    ordered.reserve(kernel.size());
    for (const int64_t row : order)
      ordered.insert(ordered.end(), kernel.begin() + row * out, kernel.begin() + (row + 1) * out);
    kernel = std::move(ordered);
  } else {
    CAIRN_ASSIGN_OR_RETURN(from, importer.layers().Place(x));
  }
  v1::Layer layer;
  layer.mutable_dense()->set_units(static_cast<int32_t>(out));
  layer.mutable_dense()->set_use_bias(!bias.empty());
  std::vector<OnnxVariable> variables = {{"kernel", {in, out}, std::move(kernel)}};
  if (!bias.empty()) variables.push_back({"bias", {out}, std::move(bias)});
  CAIRN_ASSIGN_OR_RETURN(const int id, importer.AddLayer(LayerKind::kDense, layer, {from}, std::move(variables), 1));
  importer.MarkFoldable(id);
  importer.SetView(OnnxView::Of(id, importer.layers().ShapeOf(id)));
  return absl::OkStatus();
}

// alpha * x W + beta * c; W may be stored as [out, in].
absl::Status ImportGemm(OnnxImporter& importer) {
  CAIRN_ASSIGN_OR_RETURN(const OnnxView x, importer.ViewOf(0));
  CAIRN_ASSIGN_OR_RETURN(OnnxTensor weight, importer.ConstantOf(1, "weight"));
  OnnxAttributes attributes(importer.node());
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
  if (importer.HasInput(2)) {
    CAIRN_ASSIGN_OR_RETURN(const OnnxTensor c, importer.ConstantOf(2, "bias"));
    if (c.whole || (c.floats.size() != 1 && (c.floats.size() != static_cast<size_t>(out) || c.dims.back() != out))) {
      return Bad("bias ", ToString(c.dims), " for ", out, " outputs");
    }
    bias.assign(static_cast<size_t>(out), c.floats[0]);
    if (c.floats.size() != 1) bias = c.floats;
    for (float& b : bias) b *= beta;
  }
  return AddDense(importer, x, std::move(weight.floats), in, out, std::move(bias));
}

// The product of two layers' outputs, [rows, size] and [size, columns]: a Dot.
absl::Status ImportProduct(OnnxImporter& importer) {
  CAIRN_RETURN_IF_ERROR(OnnxAttributes(importer.node()).Finish());
  std::vector<int> inputs;
  for (int i = 0; i < 2; ++i) {
    CAIRN_ASSIGN_OR_RETURN(const OnnxView x, importer.ViewOf(i));
    if (x.dims.size() != 2) {
      return Lacks("a product of two layers' outputs, of which one is ", ToString(x.dims),
                   "; [rows,size] and [size,columns] are multiplied, and others within MultiHeadAttention alone, which "
                   "is read from files that Cairn wrote");
    }
    CAIRN_ASSIGN_OR_RETURN(const int placed, importer.layers().Place(x));
    inputs.push_back(placed);
  }
  v1::Layer layer;
  layer.mutable_dot()->add_axes(2);
  layer.mutable_dot()->add_axes(1);
  CAIRN_ASSIGN_OR_RETURN(const int id, importer.AddLayer(LayerKind::kDot, layer, inputs));
  importer.SetView(OnnxView::Of(id, importer.layers().ShapeOf(id)));
  return absl::OkStatus();
}

absl::Status ImportMatMul(OnnxImporter& importer) {
  CAIRN_ASSIGN_OR_RETURN(const OnnxView x, importer.ViewOf(0));
  if (!importer.HasInput(1)) return Bad("its weight (input 1) is missing");
  if (!importer.IsConstant(1)) return ImportProduct(importer);
  CAIRN_ASSIGN_OR_RETURN(OnnxTensor weight, importer.ConstantOf(1, "weight"));
  CAIRN_RETURN_IF_ERROR(OnnxAttributes(importer.node()).Finish());
  if (weight.whole || weight.dims.size() != 2 || weight.dims[1] < 1)
    return Lacks("weight ", ToString(weight.dims), "; one of [in,out] is read");
  return AddDense(importer, x, std::move(weight.floats), weight.dims[0], weight.dims[1], {});
}

// The shape of the image that was flattened to be the Dense layer's input; nullopt if it was not an image.
std::optional<Shape> FlattenedPicture(const Graph& graph, const Node& dense) {
  const Node* node = &graph.nodes()[static_cast<size_t>(dense.inputs[0])];
  while (node->kind == LayerKind::kDropout || node->kind == LayerKind::kActivation) {
    node = &graph.nodes()[static_cast<size_t>(node->inputs[0])];
  }
  if (node->kind != LayerKind::kFlatten) return std::nullopt;
  const Shape& picture = graph.nodes()[static_cast<size_t>(node->inputs[0])].output;
  if (picture.size() < 2) return std::nullopt;
  return picture;
}

std::optional<TorchPlace> PlaceKernel(const Graph& graph, const Variable& v, absl::string_view name) {
  if (name != "kernel") return std::nullopt;
  const int64_t in = v.shape[0], out = v.shape[1];
  const std::optional<Shape> picture = FlattenedPicture(graph, graph.nodes()[static_cast<size_t>(v.node)]);
  if (!picture.has_value()) return TorchPlace{"weight", {in, out}, {1, 0}, {out, in}};
  TorchPlace place{"weight", *picture, {}, {out, in}};
  const int rank = static_cast<int>(picture->size());
  place.grid.push_back(out);
  place.axes = {rank, rank - 1};  // channels first
  for (int i = 0; i + 1 < rank; ++i) place.axes.push_back(i);
  return place;
}

constexpr KerasClass kKeras[] = {{"Dense", ReadDense, "inputs,training"}};
constexpr OnnxOperator kOnnx[] = {{"Gemm", ImportGemm}, {"MatMul", ImportMatMul}};

}  // namespace

constinit const LayerType kDenseLayer = {
    .kind = LayerKind::kDense,
    .field = v1::Layer::kDense,
    .name = "dense",
    .infer = InferDense,
    .keras = kKeras,
    .write_keras = WriteDense,
    .write_onnx = WriteOnnx,
    .onnx = kOnnx,
    .torch = PlaceKernel,
};

}  // namespace cairn::layers
