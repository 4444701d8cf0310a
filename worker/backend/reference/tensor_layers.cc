// Layers on tensors that have no variables: operations, reductions, parts.
#include "worker/backend/reference/reference_layer.h"
#include "worker/backend/tensor_function.h"

namespace cairn::reference {
namespace {

std::vector<const double*> Inputs(const Pass& p) {
  std::vector<const double*> x;
  for (size_t k = 0; k < p.inputs(); ++k) x.push_back(p.x(k).data());
  return x;
}

absl::Status Compute(const Pass& p) {
  MakeTensorFunction<double>(p.graph(), p.node(), p.examples())->Forward(Inputs(p), p.y().data());
  return absl::OkStatus();
}

void ComputeBackward(const Pass& p) {
  const auto function = MakeTensorFunction<double>(p.graph(), p.node(), p.examples());
  for (size_t k = 0; k < p.inputs(); ++k) {
    function->Backward(Inputs(p), p.here().before.data(), p.dy().data(), k, p.dx(k).data());
  }
}

constexpr Layer kLayers[] = {
    {LayerKind::kOperation, Compute, ComputeBackward}, {LayerKind::kSubtract, Compute, ComputeBackward},
    {LayerKind::kMinimum, Compute, ComputeBackward},   {LayerKind::kReduce, Compute, ComputeBackward},
    {LayerKind::kSlice, Compute, ComputeBackward},
};

}  // namespace

absl::Span<const Layer> TensorLayers() { return kLayers; }

}  // namespace cairn::reference
