#include "common/formats/onnx/onnx_constants.h"

#include "common/model/category_function.h"
#include "common/model/recurrent.h"
#include "common/model/resample.h"

namespace cairn {
namespace {

// Of one place of an adaptive maximum: two operators and three constants.
constexpr double kNumbersOfWindow = 64;

bool IsCausal(const v1::Layer& layer) {
  return layer.multi_head_attention().use_causal_mask() || layer.attention().use_causal_mask() ||
         layer.additive_attention().use_causal_mask();
}

// Places are found one by one, so that more of them than `most` are not looked at.
double OfResampled(const Node& node, const Shape& input, double most) {
  double places = 0, numbers = 0, positions = 1;
  for (size_t axis = 0; axis + 1 < input.size(); ++axis) {
    places += static_cast<double>(node.output[axis]) + static_cast<double>(input[axis]);
    positions *= static_cast<double>(node.output[axis]);
  }
  if (FillOf(node) != 0) numbers += positions;
  constexpr double kPlacesLookedAt = 1 << 20;
  if (places > kPlacesLookedAt && places > most) return places;
  for (const ResampledAxis& axis : ResampledAxesOf(node, input)) {
    if (!axis.identity()) numbers += static_cast<double>(axis.in) * static_cast<double>(axis.places.size());
  }
  return numbers;
}

double OfRecurrent(const Node& node, const Shape& input) {
  double numbers = 0;
  for (const Recurrence& r : RecurrencesOf(node.layer)) {
    if (r.return_sequences && r.go_backwards != r.turned) numbers += static_cast<double>(input[0]);
  }
  return numbers;
}

double NumbersOf(const Graph& graph, const Node& node, double most) {
  if (node.inputs.empty()) return 0;
  const auto input = [&](size_t i) -> const Shape& {
    return graph.nodes()[static_cast<size_t>(node.inputs[i])].output;
  };
  if (IsCausal(node.layer)) return static_cast<double>(input(0)[0]) * static_cast<double>(input(1)[0]);
  if (IsRecurrent(node.kind)) return OfRecurrent(node, input(0));
  switch (node.kind) {
    case LayerKind::kBatchNormalization:
    case LayerKind::kGroupNormalization: return 2 * static_cast<double>(node.output.back());
    case LayerKind::kResizing:
    case LayerKind::kCenterCrop:
    case LayerKind::kAdaptiveAveragePooling1D:
    case LayerKind::kAdaptiveAveragePooling2D:
    case LayerKind::kAdaptiveAveragePooling3D: return OfResampled(node, input(0), most);
    case LayerKind::kAdaptiveMaxPooling1D:
    case LayerKind::kAdaptiveMaxPooling2D:
    case LayerKind::kAdaptiveMaxPooling3D: {
      double windows = 0;
      for (size_t axis = 0; axis + 1 < node.output.size(); ++axis) windows += static_cast<double>(node.output[axis]);
      return kNumbersOfWindow * windows;
    }
    case LayerKind::kTake: return static_cast<double>(node.layer.take().indices_size());
    case LayerKind::kOneHot: return static_cast<double>(node.layer.one_hot().num_classes());
    case LayerKind::kPad: {  // the places of the mirrored axes
      double places = 0;
      for (const int64_t side : node.output) places += static_cast<double>(side);
      return places;
    }
    case LayerKind::kIntegerLookup: {
      if (node.layer.integer_lookup().output_mode() != v1::TF_IDF) return 0;
      return static_cast<double>(CategoryCodeOf(node.layer).depth);
    }
    default: return 0;
  }
}

}  // namespace

bool ConstantsFit(const Graph& graph, int64_t most) {
  double sum = 0;
  for (const Node& node : graph.nodes()) {
    sum += NumbersOf(graph, node, static_cast<double>(most));
    if (sum > static_cast<double>(most)) return false;
  }
  return true;
}

}  // namespace cairn
