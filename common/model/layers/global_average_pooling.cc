// GlobalAveragePooling of pictures and of sequences.
#include <set>

#include "common/base/lacks.h"
#include "common/model/layers/table.h"
#include "common/model/layers/windows.h"
#include "common/model/onnx/axis_order.h"
#include "common/model/onnx/onnx_operations.h"

namespace cairn::layers {
namespace {

absl::Status Infer2D(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>*) {
  CAIRN_RETURN_IF_ERROR(NeedImage(inputs[0]));
  node->output = {inputs[0][2]};
  return absl::OkStatus();
}

absl::Status Infer1D(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>*) {
  CAIRN_RETURN_IF_ERROR(NeedSequence(inputs[0]));
  node->output = {inputs[0][1]};
  return absl::OkStatus();
}

void ReadGlobalPooling(KerasConfig& c) {
  keras::ChannelsLast(c);
  c.Only("keepdims", false, keras::kLeaveAway);
}

void WriteGlobalPooling(const Node&, KerasWriter& c) {
  c.ChannelsLast();
  c["keepdims"] = false;
}

void WriteOnnx(const Node& node, OnnxWriter& w) {
  const Channels channels = w.Has(node, 0);
  const std::string y = w.Op("ReduceMean", {w.In(node, 0, channels)});
  std::vector<int64_t> axes = {channels == Channels::kFirst ? 2 : 1};
  if (w.ShapeOf(node, 0).size() == 3) axes.push_back(axes[0] + 1);
  w.Ints("axes", axes);
  w.Int("keepdims", 0);
  w.SetOutput(node, y, Channels::kLast);
}

// [channels, 1, 1] of [channels, height, width].
absl::Status ImportGlobalPool(OnnxImporter& importer) {
  CAIRN_ASSIGN_OR_RETURN(const OnnxView x, importer.ViewOf(0));
  CAIRN_RETURN_IF_ERROR(OnnxAttributes(importer.node()).Finish());
  if (x.dims.size() != 2 && x.dims.size() != 3)
    return Lacks("on an input ", ToString(x.dims), "; pictures and sequences are pooled");
  CAIRN_ASSIGN_OR_RETURN(const int from, importer.layers().PlaceChannelsLast(x));
  const bool picture = x.dims.size() == 3;
  Shape ones(x.dims.size(), 1);
  ones[0] = x.dims[0];
  v1::Layer layer;
  LayerKind kind;
  if (importer.node().op_type() == "GlobalAveragePool") {
    kind = picture ? LayerKind::kGlobalAveragePooling2D : LayerKind::kGlobalAveragePooling1D;
    picture ? static_cast<void>(layer.mutable_global_average_pooling2d())
            : static_cast<void>(layer.mutable_global_average_pooling1d());
  } else if (picture) {
    kind = LayerKind::kMaxPooling2D;
    SetPair({x.dims[1], x.dims[2]}, layer.mutable_max_pooling2d()->mutable_pool_size());
  } else {
    kind = LayerKind::kMaxPooling1D;
    layer.mutable_max_pooling1d()->set_pool_size(static_cast<int32_t>(x.dims[1]));
  }
  CAIRN_ASSIGN_OR_RETURN(const int id, importer.AddLayer(kind, layer, {from}));
  importer.SetView(OnnxView::Of(id, {x.dims[0]}).As(std::move(ones)));
  return absl::OkStatus();
}

// Over height and width, or over the steps, wherever the channels stand.
absl::Status ImportReduceMean(OnnxImporter& importer) {
  CAIRN_ASSIGN_OR_RETURN(const OnnxView x, importer.ViewOf(0));
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
  if ((rank != 2 && rank != 3) || axes.size() != rank - 1) return ImportOnnxReduce(importer);
  int left = 0;
  while (axes.contains(left)) ++left;
  CAIRN_ASSIGN_OR_RETURN(const int from, importer.layers().PlaceInOrder(x, AxisLast(rank, left)));
  v1::Layer layer;
  if (rank == 3) {
    layer.mutable_global_average_pooling2d();
  } else {
    layer.mutable_global_average_pooling1d();
  }
  CAIRN_ASSIGN_OR_RETURN(const int id, importer.AddLayer(rank == 3 ? LayerKind::kGlobalAveragePooling2D
                                                                   : LayerKind::kGlobalAveragePooling1D,
                                                         layer, {from}));
  OnnxView mean = OnnxView::Of(id, importer.layers().ShapeOf(id));
  if (keep) {
    Shape dims(rank, 1);
    dims[static_cast<size_t>(left)] = x.dims[static_cast<size_t>(left)];
    mean = mean.As(std::move(dims));
  }
  importer.SetView(std::move(mean));
  return absl::OkStatus();
}

constexpr KerasClass kGlobalAveragePooling2DKeras[] = {{"GlobalAveragePooling2D", [](KerasConfig& c, v1::Layer* layer) {
                                                          layer->mutable_global_average_pooling2d();
                                                          ReadGlobalPooling(c);
                                                        }}};
constexpr KerasClass kGlobalAveragePooling1DKeras[] = {{"GlobalAveragePooling1D",
                                                        [](KerasConfig& c, v1::Layer* layer) {
                                                          layer->mutable_global_average_pooling1d();
                                                          ReadGlobalPooling(c);
                                                        },
                                                        "inputs,mask"}};
constexpr OnnxOperator kOnnx[] = {
    {"GlobalAveragePool", ImportGlobalPool}, {"GlobalMaxPool", ImportGlobalPool}, {"ReduceMean", ImportReduceMean}};

}  // namespace

constinit const LayerType kGlobalAveragePooling2DLayer = {
    .kind = LayerKind::kGlobalAveragePooling2D,
    .field = v1::Layer::kGlobalAveragePooling2D,
    .name = "global_average_pooling2d",
    .infer = Infer2D,
    .keras = kGlobalAveragePooling2DKeras,
    .write_keras = WriteGlobalPooling,
    .write_onnx = WriteOnnx,
    .onnx = kOnnx,
};

constinit const LayerType kGlobalAveragePooling1DLayer = {
    .kind = LayerKind::kGlobalAveragePooling1D,
    .field = v1::Layer::kGlobalAveragePooling1D,
    .name = "global_average_pooling1d",
    .infer = Infer1D,
    .keras = kGlobalAveragePooling1DKeras,
    .write_keras = WriteGlobalPooling,
    .write_onnx = WriteOnnx,
};

}  // namespace cairn::layers
