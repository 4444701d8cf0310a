// MaxPooling and AveragePooling over windows of images, sequences and volumes.
#include "common/base/lacks.h"
#include "common/model/layers/table.h"
#include "common/model/layers/window_axes.h"
#include "common/model/layers/windows.h"
#include "common/model/onnx/axis_order.h"

namespace cairn::layers {
namespace {

absl::Status InferPooling2D(const Shape& input, v1::Pooling2D* pooling, Node* node) {
  CAIRN_RETURN_IF_ERROR(NeedImage(input));
  CAIRN_RETURN_IF_ERROR(ReadPair("pool_size", 2, pooling->mutable_pool_size(), node->window.kernel));
  if (pooling->strides().empty()) *pooling->mutable_strides() = pooling->pool_size();
  CAIRN_RETURN_IF_ERROR(ReadPair("strides", 1, pooling->mutable_strides(), node->window.strides));
  CAIRN_RETURN_IF_ERROR(ReadPadding(pooling));
  return SlideWindow("pool", input, pooling->padding(), &node->window, &node->output);
}

absl::Status InferPooling1D(const Shape& input, v1::Pooling1D* pooling, Node* node) {
  CAIRN_RETURN_IF_ERROR(NeedSequence(input));
  CAIRN_ASSIGN_OR_RETURN(const int32_t pool_size,
                         ReadOne("pool_size", 2, pooling->has_pool_size(), pooling->pool_size()));
  CAIRN_ASSIGN_OR_RETURN(const int32_t strides,
                         ReadOne("strides", pool_size, pooling->has_strides(), pooling->strides()));
  pooling->set_pool_size(pool_size);
  pooling->set_strides(strides);
  node->window.kernel[1] = pool_size;
  node->window.strides[1] = strides;
  CAIRN_RETURN_IF_ERROR(ReadPadding(pooling));
  return SlideAlong("pool", input, pooling->padding(), node);
}

absl::Status InferPooling3D(const Shape& input, v1::Pooling3D* pooling, Node* node) {
  int64_t size[3], strides[3];
  CAIRN_RETURN_IF_ERROR(NeedAxes(input, 3));
  CAIRN_RETURN_IF_ERROR(ReadAxes("pool_size", 3, 2, pooling->mutable_pool_size(), size));
  if (pooling->strides().empty()) *pooling->mutable_strides() = pooling->pool_size();
  CAIRN_RETURN_IF_ERROR(ReadAxes("strides", 3, 1, pooling->mutable_strides(), strides));
  CAIRN_RETURN_IF_ERROR(ReadPadding(pooling));
  for (int i = 0; i < 3; ++i) SetAxis({size[i], strides[i]}, 3, i, &node->window);
  return SlideAxes("pool", 3, input, pooling->padding(), node);
}

template <typename Pooling>
void ReadPooling(KerasConfig& c, Pooling* pooling) {
  c.Ints("pool_size", pooling->mutable_pool_size());
  c.Ints("strides", pooling->mutable_strides());
  PaddingAndChannels(c, pooling);
}

void ReadPooling1D(KerasConfig& c, v1::Pooling1D* pooling) {
  pooling->set_pool_size(OneInt(c, "pool_size", 2));
  if (const int32_t strides = OneInt(c, "strides", 0); strides != 0) pooling->set_strides(strides);
  PaddingAndChannels(c, pooling);
}

template <typename Pooling>
void WritePooling(const Pooling& pooling, KerasWriter* c) {
  c->Ints("pool_size", pooling.pool_size());
  c->Padding(pooling.padding());
  c->Ints("strides", pooling.strides());
  c->ChannelsLast();
}

void WriteOnnx(const Node& node, OnnxWriter& w) {
  const bool max = node.kind == LayerKind::kMaxPooling1D || node.kind == LayerKind::kMaxPooling2D ||
                   node.kind == LayerKind::kMaxPooling3D;
  const std::string x = w.In(node, 0, Channels::kFirst);
  const std::string y = w.Op(max ? "MaxPool" : "AveragePool", {x});
  WriteOnnxWindow(w, node, /*dilations=*/false);
  if (!max) w.Int("count_include_pad", 0);
  w.SetOutput(node, y, Channels::kFirst);
}

// Whether the layer's output is never negative.
bool NotNegative(const OnnxImporter& importer, int layer) {
  const v1::Layer& l = importer.layers().at(layer);
  const auto input = [&](int i) {
    for (int id = 0; id < layer; ++id) {
      if (importer.layers().at(id).name() == l.inputs(i)) return id;
    }
    return 0;
  };
  switch (importer.layers().KindOf(layer)) {
    case LayerKind::kActivation:
      switch (l.activation().activation()) {
        case v1::RELU:
        case v1::RELU6:
        case v1::SIGMOID:
        case v1::SOFTMAX:
        case v1::SOFTPLUS: return true;
        default: return false;
      }
    case LayerKind::kMaxPooling1D:
    case LayerKind::kMaxPooling2D:
    case LayerKind::kMaxPooling3D:
    case LayerKind::kAveragePooling1D:
    case LayerKind::kAveragePooling2D:
    case LayerKind::kAveragePooling3D:
    case LayerKind::kZeroPadding1D:
    case LayerKind::kZeroPadding2D:
    case LayerKind::kZeroPadding3D:
    case LayerKind::kCropping2D:
    case LayerKind::kPermute:
    case LayerKind::kReshape:
    case LayerKind::kDropout: return NotNegative(importer, input(0));
    default: return false;
  }
}

struct Described {
  LayerKind kind;
  v1::Layer layer;
};

// The pooling layer with this window, for `rank` axes.
Described DescribePool(const Window& w, int rank, bool max, v1::Padding padding) {
  Described d;
  const auto set = [&](LayerKind max_kind, LayerKind average_kind, auto* pool) {
    d.kind = max ? max_kind : average_kind;
    for (int i = 0; i < rank; ++i) {
      pool->add_pool_size(static_cast<int32_t>(AxisOf(w, rank, i).kernel));
      pool->add_strides(static_cast<int32_t>(AxisOf(w, rank, i).stride));
    }
    pool->set_padding(padding);
  };
  if (rank == 3) {
    set(LayerKind::kMaxPooling3D, LayerKind::kAveragePooling3D,
        max ? d.layer.mutable_max_pooling3d() : d.layer.mutable_average_pooling3d());
  } else if (rank == 2) {
    set(LayerKind::kMaxPooling2D, LayerKind::kAveragePooling2D,
        max ? d.layer.mutable_max_pooling2d() : d.layer.mutable_average_pooling2d());
  } else {
    d.kind = max ? LayerKind::kMaxPooling1D : LayerKind::kAveragePooling1D;
    v1::Pooling1D* pool = max ? d.layer.mutable_max_pooling1d() : d.layer.mutable_average_pooling1d();
    pool->set_pool_size(static_cast<int32_t>(w.kernel[1]));
    pool->set_strides(static_cast<int32_t>(w.strides[1]));
    pool->set_padding(padding);
  }
  return d;
}

absl::Status ImportPool(OnnxImporter& importer) {
  const bool max = importer.node().op_type() == "MaxPool";
  CAIRN_ASSIGN_OR_RETURN(const OnnxView x, importer.ViewOf(0));
  if (x.dims.size() < 2 || x.dims.size() > 4)
    return Lacks("on an input ", ToString(x.dims), "; pictures, volumes and sequences are pooled");
  const int rank = static_cast<int>(x.dims.size()) - 1;
  OnnxAttributes attributes(importer.node());
  const std::vector<int64_t> kernel = attributes.Ints("kernel_shape");
  if (kernel.size() != x.dims.size() - 1)
    return Bad("attribute \"kernel_shape\" has ", kernel.size(), " numbers; ", x.dims.size() - 1, " are needed");
  Window w;
  CAIRN_RETURN_IF_ERROR(ReadOnnxWindow(&attributes, kernel, x, &w));
  const bool ceil = attributes.Int("ceil_mode", 0) != 0;
  const bool counts_pads = !max && attributes.Int("count_include_pad", 0) != 0;
  attributes.Ignore("storage_order");  // affects the second output only
  CAIRN_RETURN_IF_ERROR(attributes.Finish());
  bool padded = false;
  for (int i = 0; i < rank; ++i) {
    const WindowAxis axis = AxisOf(w, rank, i);
    if (axis.dilation != 1) return Lacks("attribute \"dilations\" is not 1");
    padded = padded || axis.pad_begin > 0 || axis.pad_end > 0;
    const int64_t left =
        (x.dims[static_cast<size_t>(i) + 1] + axis.pad_begin + axis.pad_end - axis.kernel) % axis.stride;
    if (ceil && left > 0) return Lacks("ceil_mode lets the last window go beyond its input ", ToString(x.dims));
  }
  CAIRN_ASSIGN_OR_RETURN(int from, importer.layers().PlaceChannelsLast(x));
  v1::Padding padding = v1::VALID;
  if (counts_pads && padded) {  // the zeros of the pads are averaged too: a padding layer makes them
    CAIRN_ASSIGN_OR_RETURN(from, AddPadding(importer, w, rank, from));
  } else {
    CAIRN_ASSIGN_OR_RETURN(padding, PadFor(importer, w, x, max && NotNegative(importer, from), &from));
  }
  const Described pool = DescribePool(w, rank, max, padding);
  CAIRN_ASSIGN_OR_RETURN(const int id, importer.AddLayer(pool.kind, pool.layer, {from}));
  importer.SetView(OnnxView::Of(id, importer.layers().ShapeOf(id), ChannelsLast(x.dims.size())));
  return absl::OkStatus();
}

constexpr KerasClass kMaxPooling2DKeras[] = {
    {"MaxPooling2D", [](KerasConfig& c, v1::Layer* layer) { ReadPooling(c, layer->mutable_max_pooling2d()); }}};
constexpr KerasClass kMaxPooling1DKeras[] = {
    {"MaxPooling1D", [](KerasConfig& c, v1::Layer* layer) { ReadPooling1D(c, layer->mutable_max_pooling1d()); }}};
constexpr KerasClass kAveragePooling2DKeras[] = {
    {"AveragePooling2D", [](KerasConfig& c, v1::Layer* layer) { ReadPooling(c, layer->mutable_average_pooling2d()); }}};
constexpr KerasClass kAveragePooling1DKeras[] = {{"AveragePooling1D", [](KerasConfig& c, v1::Layer* layer) {
                                                    ReadPooling1D(c, layer->mutable_average_pooling1d());
                                                  }}};
constexpr KerasClass kMaxPooling3DKeras[] = {
    {"MaxPooling3D", [](KerasConfig& c, v1::Layer* layer) { ReadPooling(c, layer->mutable_max_pooling3d()); }}};
constexpr KerasClass kAveragePooling3DKeras[] = {
    {"AveragePooling3D", [](KerasConfig& c, v1::Layer* layer) { ReadPooling(c, layer->mutable_average_pooling3d()); }}};
constexpr OnnxOperator kOnnx[] = {{"MaxPool", ImportPool}, {"AveragePool", ImportPool}};

}  // namespace

constinit const LayerType kMaxPooling2DLayer = {
    .kind = LayerKind::kMaxPooling2D,
    .field = v1::Layer::kMaxPooling2D,
    .name = "max_pooling2d",
    .infer =
        [](absl::Span<const Shape> inputs, Node* node, std::vector<Variable>*) {
          return InferPooling2D(inputs[0], node->layer.mutable_max_pooling2d(), node);
        },
    .keras = kMaxPooling2DKeras,
    .write_keras = [](const Node& node, KerasWriter& c) { WritePooling(node.layer.max_pooling2d(), &c); },
    .write_onnx = WriteOnnx,
    .onnx = kOnnx,
};

constinit const LayerType kMaxPooling1DLayer = {
    .kind = LayerKind::kMaxPooling1D,
    .field = v1::Layer::kMaxPooling1D,
    .name = "max_pooling1d",
    .infer =
        [](absl::Span<const Shape> inputs, Node* node, std::vector<Variable>*) {
          return InferPooling1D(inputs[0], node->layer.mutable_max_pooling1d(), node);
        },
    .keras = kMaxPooling1DKeras,
    .write_keras = [](const Node& node, KerasWriter& c) { WritePooling(node.layer.max_pooling1d(), &c); },
    .write_onnx = WriteOnnx,
};

constinit const LayerType kAveragePooling2DLayer = {
    .kind = LayerKind::kAveragePooling2D,
    .field = v1::Layer::kAveragePooling2D,
    .name = "average_pooling2d",
    .infer =
        [](absl::Span<const Shape> inputs, Node* node, std::vector<Variable>*) {
          return InferPooling2D(inputs[0], node->layer.mutable_average_pooling2d(), node);
        },
    .keras = kAveragePooling2DKeras,
    .write_keras = [](const Node& node, KerasWriter& c) { WritePooling(node.layer.average_pooling2d(), &c); },
    .write_onnx = WriteOnnx,
};

constinit const LayerType kAveragePooling1DLayer = {
    .kind = LayerKind::kAveragePooling1D,
    .field = v1::Layer::kAveragePooling1D,
    .name = "average_pooling1d",
    .infer =
        [](absl::Span<const Shape> inputs, Node* node, std::vector<Variable>*) {
          return InferPooling1D(inputs[0], node->layer.mutable_average_pooling1d(), node);
        },
    .keras = kAveragePooling1DKeras,
    .write_keras = [](const Node& node, KerasWriter& c) { WritePooling(node.layer.average_pooling1d(), &c); },
    .write_onnx = WriteOnnx,
};

constinit const LayerType kMaxPooling3DLayer = {
    .kind = LayerKind::kMaxPooling3D,
    .field = v1::Layer::kMaxPooling3D,
    .name = "max_pooling3d",
    .infer =
        [](absl::Span<const Shape> inputs, Node* node, std::vector<Variable>*) {
          return InferPooling3D(inputs[0], node->layer.mutable_max_pooling3d(), node);
        },
    .keras = kMaxPooling3DKeras,
    .write_keras = [](const Node& node, KerasWriter& c) { WritePooling(node.layer.max_pooling3d(), &c); },
    .write_onnx = WriteOnnx,
};

constinit const LayerType kAveragePooling3DLayer = {
    .kind = LayerKind::kAveragePooling3D,
    .field = v1::Layer::kAveragePooling3D,
    .name = "average_pooling3d",
    .infer =
        [](absl::Span<const Shape> inputs, Node* node, std::vector<Variable>*) {
          return InferPooling3D(inputs[0], node->layer.mutable_average_pooling3d(), node);
        },
    .keras = kAveragePooling3DKeras,
    .write_keras = [](const Node& node, KerasWriter& c) { WritePooling(node.layer.average_pooling3d(), &c); },
    .write_onnx = WriteOnnx,
};

}  // namespace cairn::layers
