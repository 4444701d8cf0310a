// PReLU (He et al. 2015): y = x where x > 0, else alpha * x, with a trainable alpha.
#include <algorithm>

#include "common/base/bad.h"
#include "common/base/lacks.h"
#include "common/model/keras/keras_config.h"
#include "common/model/keras/keras_fields.h"
#include "common/model/keras/keras_writer.h"
#include "common/model/layers/fields.h"
#include "common/model/layers/table.h"
#include "common/model/limits.h"
#include "common/model/onnx/axis_order.h"
#include "common/model/onnx/onnx_importer.h"
#include "common/model/onnx/onnx_writer.h"

namespace cairn::layers {
namespace {

absl::Status InferPReLU(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>* variables) {
  v1::PReLU* prelu = node->layer.mutable_prelu();
  Shape shape = inputs[0];
  if (shape.size() > kPermutedAxesMax) {
    return Bad("its input ", ToString(shape), " has more than three axes; join some by a Reshape before it");
  }
  for (const int32_t axis : prelu->shared_axes()) {
    if (axis < 1 || axis > static_cast<int32_t>(shape.size())) {
      return Bad("shared_axes names axis ", axis, " of its input ", ToString(inputs[0]), "; use 1 .. ", shape.size());
    }
    if (std::count(prelu->shared_axes().begin(), prelu->shared_axes().end(), axis) > 1) {
      return Bad("shared_axes names axis ", axis, " twice; name it once");
    }
    shape[static_cast<size_t>(axis) - 1] = 1;
  }
  CAIRN_RETURN_IF_ERROR(
      ResolveInitializer("alpha_initializer", v1::Initializer::ZEROS, prelu->mutable_alpha_initializer()));
  CAIRN_RETURN_IF_ERROR(AddVariable(*node, "alpha", shape, prelu->alpha_initializer(), variables));
  return Regularize("alpha_regularizer", prelu->has_alpha_regularizer(), prelu->alpha_regularizer(), variables);
}

void ReadPReLU(KerasConfig& c, v1::Layer* layer) {
  v1::PReLU* prelu = layer->mutable_prelu();
  if (c.Has("alpha_initializer")) c.Initializer("alpha_initializer", prelu->mutable_alpha_initializer());
  keras::Regularizer(c, "alpha_regularizer", [&] { return prelu->mutable_alpha_regularizer(); });
  c.Ints("shared_axes", prelu->mutable_shared_axes());
}

void WritePReLU(const Node& node, KerasWriter& c) {
  const v1::PReLU& prelu = node.layer.prelu();
  c.Initializer("alpha_initializer", prelu.alpha_initializer());
  c.Regularizer("alpha_regularizer", prelu.has_alpha_regularizer(), prelu.alpha_regularizer());
  c["alpha_constraint"] = nullptr;
  if (prelu.shared_axes().empty()) {
    c["shared_axes"] = nullptr;
  } else {
    c.Ints("shared_axes", prelu.shared_axes());
  }
}

void WriteOnnx(const Node& node, OnnxWriter& w) {
  const size_t rank = node.output.size();
  const Channels channels = w.Has(node, 0);
  const bool first = channels == Channels::kFirst && rank > 1;
  const std::vector<int> axes = first ? AxisFirst(rank, static_cast<int>(rank) - 1) : SameOrder(rank);
  Shape shape = node.output;
  for (const int32_t axis : node.layer.prelu().shared_axes()) shape[static_cast<size_t>(axis) - 1] = 1;
  const std::string x = w.In(node, 0, channels);
  w.SetOutput(node, w.Op("PRelu", {x, w.VariableOf(node, "alpha", axes, ShapeInOrder(shape, axes))}), channels);
}

// The slopes are broadcast to the input, aligned at the last axis.
absl::Status ImportPRelu(OnnxImporter& importer) {
  CAIRN_ASSIGN_OR_RETURN(const OnnxView x, importer.ViewOf(0));
  CAIRN_ASSIGN_OR_RETURN(const OnnxTensor slope, importer.ConstantOf(1, "slope"));
  CAIRN_RETURN_IF_ERROR(OnnxAttributes(importer.node()).Finish());
  const size_t rank = x.dims.size();
  Shape dims = slope.dims;
  if (dims.size() == rank + 1 && dims[0] == 1) dims.erase(dims.begin());  // the batch
  bool fits = !slope.whole && rank > 0 && dims.size() <= rank;
  if (fits) dims.insert(dims.begin(), rank - dims.size(), 1);
  for (size_t i = 0; fits && i < rank; ++i) fits = dims[i] == 1 || dims[i] == x.dims[i];
  if (!fits) {
    return Lacks("slope ", ToString(slope.dims), " on an input ", ToString(x.dims),
                 "; one number for each index of some axes is read");
  }
  const std::vector<int> order = x.LayerOrder();
  CAIRN_ASSIGN_OR_RETURN(const int from, importer.layers().PlaceInOrder(x, order));
  const Shape shape = ShapeInOrder(dims, order);
  v1::Layer layer;
  layer.mutable_prelu();
  for (size_t i = 0; i < rank; ++i) {
    if (shape[i] == 1) layer.mutable_prelu()->add_shared_axes(static_cast<int32_t>(i) + 1);
  }
  CAIRN_ASSIGN_OR_RETURN(const int id, importer.AddLayer(LayerKind::kPReLU, layer, {from},
                                                         {{"alpha", shape, InOrder(slope.floats, dims, order)}}, 1));
  importer.SetView(OnnxView::Of(id, importer.layers().ShapeOf(id), order));
  return absl::OkStatus();
}

// PyTorch has one slope, or one for each channel.
std::optional<TorchPlace> PlaceAlpha(const Graph&, const Variable& v, absl::string_view) {
  if (NumElements(v.shape) != v.shape.back()) return std::nullopt;
  return TorchPlace{"weight", v.shape, SameOrder(v.shape.size()), {v.shape.back()}};
}

constexpr KerasClass kKeras[] = {{"PReLU", ReadPReLU}};
constexpr OnnxOperator kOnnx[] = {{"PRelu", ImportPRelu}};

}  // namespace

constinit const LayerType kPReLULayer = {
    .kind = LayerKind::kPReLU,
    .field = v1::Layer::kPrelu,
    .name = "p_re_lu",
    .infer = InferPReLU,
    .keras = kKeras,
    .write_keras = WritePReLU,
    .write_onnx = WriteOnnx,
    .onnx = kOnnx,
    .torch = PlaceAlpha,
};

}  // namespace cairn::layers
