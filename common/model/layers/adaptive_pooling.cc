// Adaptive average and maximum pooling of sequences, images and volumes to a given size.
#include <string>
#include <vector>

#include "common/model/layers/resample.h"
#include "common/model/layers/table.h"
#include "common/model/layers/window_axes.h"
#include "common/model/resample.h"

namespace cairn::layers {
namespace {

absl::Status InferAdaptive(int rank, const Shape& input, v1::AdaptivePooling* pooling, Node* node) {
  int64_t size[kWindowAxesMax];
  CAIRN_RETURN_IF_ERROR(NeedAxes(input, rank));
  CAIRN_RETURN_IF_ERROR(ReadAxes("output_size", rank, 0, pooling->mutable_output_size(), size));
  for (int i = 0; i < rank; ++i) node->output[static_cast<size_t>(i)] = size[i];
  return absl::OkStatus();
}

void ReadAdaptive(KerasConfig& c, v1::AdaptivePooling* pooling) {
  c.Ints("output_size", pooling->mutable_output_size());
  keras::ChannelsLast(c);
}

void WriteAdaptive(const v1::AdaptivePooling& pooling, KerasWriter& c) {
  c.Ints("output_size", pooling.output_size());
  c.ChannelsLast();
}

// Axis by axis: the maximum of each window, concatenated.
void WriteOnnxMax(const Node& node, OnnxWriter& w) {
  const Shape& input = w.ShapeOf(node, 0);
  std::string y = w.In(node, 0, Channels::kFirst);
  for (size_t axis = 0; axis + 1 < input.size(); ++axis) {
    const int64_t at = static_cast<int64_t>(axis) + 2, out = node.output[axis];
    OnnxWriter::Names windows;
    for (int64_t o = 0; o < out; ++o) {
      const AdaptiveWindow window = AdaptiveWindowOf(o, input[axis], out);
      const std::string part =
          w.Op("Slice", {y, w.Whole("starts", {window.begin}), w.Whole("ends", {window.end}), w.Whole("axes", {at})});
      windows.push_back(w.Op("ReduceMax", {part}));
      w.Ints("axes", {at});
      w.Int("keepdims", 1);
    }
    y = w.Op("Concat", windows);
    w.Int("axis", at);
  }
  w.SetOutput(node, y, Channels::kFirst);
}

constexpr KerasClass kAdaptiveAveragePooling1DKeras[] = {
    {"AdaptiveAveragePooling1D",
     [](KerasConfig& c, v1::Layer* layer) { ReadAdaptive(c, layer->mutable_adaptive_average_pooling1d()); }}};
constexpr KerasClass kAdaptiveAveragePooling2DKeras[] = {
    {"AdaptiveAveragePooling2D",
     [](KerasConfig& c, v1::Layer* layer) { ReadAdaptive(c, layer->mutable_adaptive_average_pooling2d()); }}};
constexpr KerasClass kAdaptiveAveragePooling3DKeras[] = {
    {"AdaptiveAveragePooling3D",
     [](KerasConfig& c, v1::Layer* layer) { ReadAdaptive(c, layer->mutable_adaptive_average_pooling3d()); }}};
constexpr KerasClass kAdaptiveMaxPooling1DKeras[] = {{"AdaptiveMaxPooling1D", [](KerasConfig& c, v1::Layer* layer) {
                                                        ReadAdaptive(c, layer->mutable_adaptive_max_pooling1d());
                                                      }}};
constexpr KerasClass kAdaptiveMaxPooling2DKeras[] = {{"AdaptiveMaxPooling2D", [](KerasConfig& c, v1::Layer* layer) {
                                                        ReadAdaptive(c, layer->mutable_adaptive_max_pooling2d());
                                                      }}};
constexpr KerasClass kAdaptiveMaxPooling3DKeras[] = {{"AdaptiveMaxPooling3D", [](KerasConfig& c, v1::Layer* layer) {
                                                        ReadAdaptive(c, layer->mutable_adaptive_max_pooling3d());
                                                      }}};

}  // namespace

constinit const LayerType kAdaptiveAveragePooling1DLayer = {
    .kind = LayerKind::kAdaptiveAveragePooling1D,
    .field = v1::Layer::kAdaptiveAveragePooling1D,
    .name = "adaptive_average_pooling1d",
    .infer =
        [](absl::Span<const Shape> inputs, Node* node, std::vector<Variable>*) {
          return InferAdaptive(1, inputs[0], node->layer.mutable_adaptive_average_pooling1d(), node);
        },
    .keras = kAdaptiveAveragePooling1DKeras,
    .write_keras = [](const Node& node, KerasWriter& c) { WriteAdaptive(node.layer.adaptive_average_pooling1d(), c); },
    .write_onnx = WriteOnnxResampled,
};

constinit const LayerType kAdaptiveAveragePooling2DLayer = {
    .kind = LayerKind::kAdaptiveAveragePooling2D,
    .field = v1::Layer::kAdaptiveAveragePooling2D,
    .name = "adaptive_average_pooling2d",
    .infer =
        [](absl::Span<const Shape> inputs, Node* node, std::vector<Variable>*) {
          return InferAdaptive(2, inputs[0], node->layer.mutable_adaptive_average_pooling2d(), node);
        },
    .keras = kAdaptiveAveragePooling2DKeras,
    .write_keras = [](const Node& node, KerasWriter& c) { WriteAdaptive(node.layer.adaptive_average_pooling2d(), c); },
    .write_onnx = WriteOnnxResampled,
};

constinit const LayerType kAdaptiveAveragePooling3DLayer = {
    .kind = LayerKind::kAdaptiveAveragePooling3D,
    .field = v1::Layer::kAdaptiveAveragePooling3D,
    .name = "adaptive_average_pooling3d",
    .infer =
        [](absl::Span<const Shape> inputs, Node* node, std::vector<Variable>*) {
          return InferAdaptive(3, inputs[0], node->layer.mutable_adaptive_average_pooling3d(), node);
        },
    .keras = kAdaptiveAveragePooling3DKeras,
    .write_keras = [](const Node& node, KerasWriter& c) { WriteAdaptive(node.layer.adaptive_average_pooling3d(), c); },
    .write_onnx = WriteOnnxResampled,
};

constinit const LayerType kAdaptiveMaxPooling1DLayer = {
    .kind = LayerKind::kAdaptiveMaxPooling1D,
    .field = v1::Layer::kAdaptiveMaxPooling1D,
    .name = "adaptive_max_pooling1d",
    .infer =
        [](absl::Span<const Shape> inputs, Node* node, std::vector<Variable>*) {
          return InferAdaptive(1, inputs[0], node->layer.mutable_adaptive_max_pooling1d(), node);
        },
    .keras = kAdaptiveMaxPooling1DKeras,
    .write_keras = [](const Node& node, KerasWriter& c) { WriteAdaptive(node.layer.adaptive_max_pooling1d(), c); },
    .write_onnx = WriteOnnxMax,
};

constinit const LayerType kAdaptiveMaxPooling2DLayer = {
    .kind = LayerKind::kAdaptiveMaxPooling2D,
    .field = v1::Layer::kAdaptiveMaxPooling2D,
    .name = "adaptive_max_pooling2d",
    .infer =
        [](absl::Span<const Shape> inputs, Node* node, std::vector<Variable>*) {
          return InferAdaptive(2, inputs[0], node->layer.mutable_adaptive_max_pooling2d(), node);
        },
    .keras = kAdaptiveMaxPooling2DKeras,
    .write_keras = [](const Node& node, KerasWriter& c) { WriteAdaptive(node.layer.adaptive_max_pooling2d(), c); },
    .write_onnx = WriteOnnxMax,
};

constinit const LayerType kAdaptiveMaxPooling3DLayer = {
    .kind = LayerKind::kAdaptiveMaxPooling3D,
    .field = v1::Layer::kAdaptiveMaxPooling3D,
    .name = "adaptive_max_pooling3d",
    .infer =
        [](absl::Span<const Shape> inputs, Node* node, std::vector<Variable>*) {
          return InferAdaptive(3, inputs[0], node->layer.mutable_adaptive_max_pooling3d(), node);
        },
    .keras = kAdaptiveMaxPooling3DKeras,
    .write_keras = [](const Node& node, KerasWriter& c) { WriteAdaptive(node.layer.adaptive_max_pooling3d(), c); },
    .write_onnx = WriteOnnxMax,
};

}  // namespace cairn::layers
