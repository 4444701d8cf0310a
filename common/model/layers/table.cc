// The table: every row, in the order of LayerKind.
#include "common/model/layers/table.h"

#include <iterator>
#include <limits>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/limits.h"
#include "common/model/activity.h"
#include "common/model/constraint.h"
#include "common/model/layer_type.h"
#include "common/model/limits.h"

namespace cairn {
namespace {

constexpr const LayerType* kTable[] = {
#define CAIRN_LAYER_ROW(name) &layers::k##name##Layer,
    CAIRN_LAYERS(CAIRN_LAYER_ROW)
#undef CAIRN_LAYER_ROW
};

}  // namespace

const LayerType& TypeOf(LayerKind kind) { return *kTable[static_cast<size_t>(kind)]; }

absl::Span<const LayerType* const> LayerTypes() { return kTable; }

const LayerType* FindLayerType(v1::Layer::KindCase field) {
  for (const LayerType* type : kTable) {
    if (type->field == field) return type;
  }
  return nullptr;
}

FoundKerasClass FindKerasClass(absl::string_view name) {
  for (const LayerType* type : kTable) {
    for (const KerasClass& keras : type->keras) {
      if (name == keras.name) return {type, &keras};
    }
  }
  return {};
}

const OnnxOperator* FindOnnxOperator(absl::string_view name) {
  for (const LayerType* type : kTable) {
    for (const OnnxOperator& op : type->onnx) {
      if (name == op.name) return &op;
    }
  }
  return nullptr;
}

const char* LayerTypeName(LayerKind kind) { return TypeOf(kind).name; }

int64_t SaturatingMultiply(int64_t a, int64_t b) {
  int64_t product;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<int64_t>::max() : product;
}

namespace {

// Whether the layer takes volumes in steps (kSequenceDimensionsMax), as ConvLSTM3D does.
bool TakesVolumesInSteps(LayerKind kind) {
  switch (kind) {
    case LayerKind::kConvLSTM3D:
    case LayerKind::kBidirectional:
    case LayerKind::kTimeDistributed:
    case LayerKind::kSlice:  // of its states
    case LayerKind::kFlatten:
    case LayerKind::kReshape:
    case LayerKind::kActivation:
    case LayerKind::kActivityRegularization:
    case LayerKind::kRescaling:
    case LayerKind::kDropout:
    case LayerKind::kBatchNormalization:
    case LayerKind::kAdd:
    case LayerKind::kConcatenate: return true;
    default: return false;
  }
}

absl::Status CheckAxes(absl::Span<const Shape> inputs, LayerKind kind) {
  for (const Shape& input : inputs) {
    if (input.size() <= kLayerDimensionsMax || TakesVolumesInSteps(kind)) continue;
    return absl::InvalidArgumentError(absl::StrCat("its input ", ToString(input), " has ", input.size(),
                                                   " axes, and a ", TypeOf(kind).name, " takes at most ",
                                                   kLayerDimensionsMax, "; let a flatten or a reshape come before it"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status InferLayer(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>* variables) {
  CAIRN_RETURN_IF_ERROR(CheckAxes(inputs, node->kind));
  if (!inputs.empty()) node->output = inputs[0];  // most layers keep it, or change it only in part
  CAIRN_RETURN_IF_ERROR(TypeOf(node->kind).infer(inputs, node, variables));
  CAIRN_RETURN_IF_ERROR(CheckActivityRegularizer(&node->layer));
  CAIRN_RETURN_IF_ERROR(ResolveConstraints(&node->layer, *variables));
  int64_t size = 1;
  for (int64_t dim : node->output) size = SaturatingMultiply(size, dim);
  if (size <= kLayerOutputMax) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("its output ", ToString(node->output),
                                                 " has too many numbers; the limit is ", kLayerOutputMax,
                                                 " for one example"));
}

}  // namespace cairn
