// GlobalAveragePooling and GlobalMaxPooling of images, sequences and volumes.
#include <set>

#include "common/base/lacks.h"
#include "common/model/layers/table.h"
#include "common/model/layers/window_axes.h"
#include "common/model/layers/windows.h"
#include "common/model/limits.h"
#include "common/model/onnx/axis_order.h"
#include "common/model/onnx/onnx_operations.h"

namespace cairn::layers {
namespace {

// Pools over all axes but the channels; with keepdims they remain, with size 1. The maximum is that of a window as
// large as the input.
absl::Status InferGlobal(int rank, bool max, const Shape& input, const v1::GlobalPooling& pooling, Node* node) {
  CAIRN_RETURN_IF_ERROR(NeedAxes(input, rank));
  node->output = pooling.keepdims() ? Shape(input.size(), 1) : Shape{1};
  node->output.back() = input.back();
  for (int i = 0; max && i < rank; ++i) {
    const int64_t size = input[static_cast<size_t>(i)];
    if (size > kWindowMax) return Bad("its input ", ToString(input), " is larger than ", kWindowMax, " along an axis");
    SetAxis({size, size}, rank, i, &node->window);
  }
  return absl::OkStatus();
}

void ReadGlobalPooling(KerasConfig& c, v1::GlobalPooling* pooling) {
  keras::ChannelsLast(c);
  bool keepdims = false;
  c.Bool("keepdims", &keepdims);
  pooling->set_keepdims(keepdims);
}

void WriteGlobalPooling(const v1::GlobalPooling& pooling, KerasWriter& c) {
  c.ChannelsLast();
  c["keepdims"] = pooling.keepdims();
}

void WriteOnnx(const Node& node, OnnxWriter& w) {
  const Channels channels = w.Has(node, 0);
  const size_t rank = w.ShapeOf(node, 0).size() - 1;
  const bool keep = node.output.size() > 1;
  const bool max = node.kind == LayerKind::kGlobalMaxPooling1D || node.kind == LayerKind::kGlobalMaxPooling2D ||
                   node.kind == LayerKind::kGlobalMaxPooling3D;
  const std::string y = w.Op(max ? "ReduceMax" : "ReduceMean", {w.In(node, 0, channels)});
  std::vector<int64_t> axes;
  for (size_t i = 0; i < rank; ++i) axes.push_back(static_cast<int64_t>(i) + (channels == Channels::kFirst ? 2 : 1));
  w.Ints("axes", axes);
  w.Int("keepdims", keep ? 1 : 0);
  w.SetOutput(node, y, keep ? channels : Channels::kLast);
}

// The layer that pools over all of `rank` axes.
struct Described {
  LayerKind kind;
  v1::Layer layer;
};
Described DescribeGlobal(size_t rank, bool max) {
  Described d;
  v1::Layer& l = d.layer;
  switch (rank) {
    case 1:
      d.kind = max ? LayerKind::kGlobalMaxPooling1D : LayerKind::kGlobalAveragePooling1D;
      max ? l.mutable_global_max_pooling1d() : l.mutable_global_average_pooling1d();
      break;
    case 2:
      d.kind = max ? LayerKind::kGlobalMaxPooling2D : LayerKind::kGlobalAveragePooling2D;
      max ? l.mutable_global_max_pooling2d() : l.mutable_global_average_pooling2d();
      break;
    default:
      d.kind = max ? LayerKind::kGlobalMaxPooling3D : LayerKind::kGlobalAveragePooling3D;
      max ? l.mutable_global_max_pooling3d() : l.mutable_global_average_pooling3d();
  }
  return d;
}

// [channels, height, width] to [channels, 1, 1].
absl::Status ImportGlobalPool(OnnxImporter& importer) {
  CAIRN_ASSIGN_OR_RETURN(const OnnxView x, importer.ViewOf(0));
  CAIRN_RETURN_IF_ERROR(OnnxAttributes(importer.node()).Finish());
  if (x.dims.size() < 2 || x.dims.size() > 4)
    return Lacks("on an input ", ToString(x.dims), "; pictures, volumes and sequences are pooled");
  CAIRN_ASSIGN_OR_RETURN(const int from, importer.layers().PlaceChannelsLast(x));
  Shape ones(x.dims.size(), 1);
  ones[0] = x.dims[0];
  const Described pool = DescribeGlobal(x.dims.size() - 1, importer.node().op_type() == "GlobalMaxPool");
  CAIRN_ASSIGN_OR_RETURN(const int id, importer.AddLayer(pool.kind, pool.layer, {from}));
  importer.SetView(OnnxView::Of(id, {x.dims[0]}).As(std::move(ones)));
  return absl::OkStatus();
}

// Over all axes but one, wherever the channels are.
absl::Status ImportReduce(OnnxImporter& importer) {
  CAIRN_ASSIGN_OR_RETURN(const OnnxView x, importer.LaidViewOf(0));
  OnnxAttributes attributes(importer.node());
  std::vector<int64_t> given = attributes.Ints("axes");
  const bool keep = attributes.Int("keepdims", 1) != 0;
  attributes.Only("noop_with_empty_axes", 0, "give axes");
  CAIRN_RETURN_IF_ERROR(attributes.Finish());
  if (importer.HasInput(1)) {
    CAIRN_ASSIGN_OR_RETURN(given, importer.IntsOf(1, "axes"));
  }
  std::set<int> axes;
  for (const int64_t axis : given) {
    CAIRN_ASSIGN_OR_RETURN(const int a, x.AxisOf(axis));
    axes.insert(a);
  }
  const size_t rank = x.dims.size();
  if (rank < 2 || rank > 4 || axes.size() != rank - 1) return ImportOnnxReduce(importer);
  int left = 0;
  while (axes.contains(left)) ++left;
  CAIRN_ASSIGN_OR_RETURN(const int from, importer.layers().PlaceInOrder(x, AxisLast(rank, left)));
  const Described pool = DescribeGlobal(rank - 1, importer.node().op_type() == "ReduceMax");
  CAIRN_ASSIGN_OR_RETURN(const int id, importer.AddLayer(pool.kind, pool.layer, {from}));
  OnnxView pooled = OnnxView::Of(id, importer.layers().ShapeOf(id));
  if (keep) {
    Shape dims(rank, 1);
    dims[static_cast<size_t>(left)] = x.dims[static_cast<size_t>(left)];
    pooled = pooled.As(std::move(dims));
  }
  const int batch = keep ? x.batch : left < x.batch ? 1 : 0;
  importer.SetLaidView(pooled.WithBatchAt(batch));
  return absl::OkStatus();
}

constexpr OnnxOperator kOnnx[] = {{"GlobalAveragePool", ImportGlobalPool},
                                  {"GlobalMaxPool", ImportGlobalPool},
                                  {"ReduceMean", ImportReduce},
                                  {"ReduceMax", ImportReduce}};

constexpr KerasClass kGlobalAveragePooling1DKeras[] = {
    {"GlobalAveragePooling1D",
     [](KerasConfig& c, v1::Layer* layer) { ReadGlobalPooling(c, layer->mutable_global_average_pooling1d()); },
     "inputs,mask"}};
constexpr KerasClass kGlobalAveragePooling2DKeras[] = {
    {"GlobalAveragePooling2D",
     [](KerasConfig& c, v1::Layer* layer) { ReadGlobalPooling(c, layer->mutable_global_average_pooling2d()); }}};
constexpr KerasClass kGlobalAveragePooling3DKeras[] = {
    {"GlobalAveragePooling3D",
     [](KerasConfig& c, v1::Layer* layer) { ReadGlobalPooling(c, layer->mutable_global_average_pooling3d()); }}};
constexpr KerasClass kGlobalMaxPooling1DKeras[] = {{"GlobalMaxPooling1D", [](KerasConfig& c, v1::Layer* layer) {
                                                      ReadGlobalPooling(c, layer->mutable_global_max_pooling1d());
                                                    }}};
constexpr KerasClass kGlobalMaxPooling2DKeras[] = {{"GlobalMaxPooling2D", [](KerasConfig& c, v1::Layer* layer) {
                                                      ReadGlobalPooling(c, layer->mutable_global_max_pooling2d());
                                                    }}};
constexpr KerasClass kGlobalMaxPooling3DKeras[] = {{"GlobalMaxPooling3D", [](KerasConfig& c, v1::Layer* layer) {
                                                      ReadGlobalPooling(c, layer->mutable_global_max_pooling3d());
                                                    }}};

}  // namespace

constinit const LayerType kGlobalAveragePooling1DLayer = {
    .kind = LayerKind::kGlobalAveragePooling1D,
    .field = v1::Layer::kGlobalAveragePooling1D,
    .name = "global_average_pooling1d",
    .infer =
        [](absl::Span<const Shape> inputs, Node* node, std::vector<Variable>*) {
          return InferGlobal(1, false, inputs[0], node->layer.global_average_pooling1d(), node);
        },
    .keras = kGlobalAveragePooling1DKeras,
    .write_keras = [](const Node& node,
                      KerasWriter& c) { WriteGlobalPooling(node.layer.global_average_pooling1d(), c); },
    .write_onnx = WriteOnnx,
};

constinit const LayerType kGlobalAveragePooling2DLayer = {
    .kind = LayerKind::kGlobalAveragePooling2D,
    .field = v1::Layer::kGlobalAveragePooling2D,
    .name = "global_average_pooling2d",
    .infer =
        [](absl::Span<const Shape> inputs, Node* node, std::vector<Variable>*) {
          return InferGlobal(2, false, inputs[0], node->layer.global_average_pooling2d(), node);
        },
    .keras = kGlobalAveragePooling2DKeras,
    .write_keras = [](const Node& node,
                      KerasWriter& c) { WriteGlobalPooling(node.layer.global_average_pooling2d(), c); },
    .write_onnx = WriteOnnx,
    .onnx = kOnnx,
};

constinit const LayerType kGlobalAveragePooling3DLayer = {
    .kind = LayerKind::kGlobalAveragePooling3D,
    .field = v1::Layer::kGlobalAveragePooling3D,
    .name = "global_average_pooling3d",
    .infer =
        [](absl::Span<const Shape> inputs, Node* node, std::vector<Variable>*) {
          return InferGlobal(3, false, inputs[0], node->layer.global_average_pooling3d(), node);
        },
    .keras = kGlobalAveragePooling3DKeras,
    .write_keras = [](const Node& node,
                      KerasWriter& c) { WriteGlobalPooling(node.layer.global_average_pooling3d(), c); },
    .write_onnx = WriteOnnx,
};

constinit const LayerType kGlobalMaxPooling1DLayer = {
    .kind = LayerKind::kGlobalMaxPooling1D,
    .field = v1::Layer::kGlobalMaxPooling1D,
    .name = "global_max_pooling1d",
    .infer =
        [](absl::Span<const Shape> inputs, Node* node, std::vector<Variable>*) {
          return InferGlobal(1, true, inputs[0], node->layer.global_max_pooling1d(), node);
        },
    .keras = kGlobalMaxPooling1DKeras,
    .write_keras = [](const Node& node, KerasWriter& c) { WriteGlobalPooling(node.layer.global_max_pooling1d(), c); },
    .write_onnx = WriteOnnx,
};

constinit const LayerType kGlobalMaxPooling2DLayer = {
    .kind = LayerKind::kGlobalMaxPooling2D,
    .field = v1::Layer::kGlobalMaxPooling2D,
    .name = "global_max_pooling2d",
    .infer =
        [](absl::Span<const Shape> inputs, Node* node, std::vector<Variable>*) {
          return InferGlobal(2, true, inputs[0], node->layer.global_max_pooling2d(), node);
        },
    .keras = kGlobalMaxPooling2DKeras,
    .write_keras = [](const Node& node, KerasWriter& c) { WriteGlobalPooling(node.layer.global_max_pooling2d(), c); },
    .write_onnx = WriteOnnx,
};

constinit const LayerType kGlobalMaxPooling3DLayer = {
    .kind = LayerKind::kGlobalMaxPooling3D,
    .field = v1::Layer::kGlobalMaxPooling3D,
    .name = "global_max_pooling3d",
    .infer =
        [](absl::Span<const Shape> inputs, Node* node, std::vector<Variable>*) {
          return InferGlobal(3, true, inputs[0], node->layer.global_max_pooling3d(), node);
        },
    .keras = kGlobalMaxPooling3DKeras,
    .write_keras = [](const Node& node, KerasWriter& c) { WriteGlobalPooling(node.layer.global_max_pooling3d(), c); },
    .write_onnx = WriteOnnx,
};

}  // namespace cairn::layers
