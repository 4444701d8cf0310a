// Layers on tensors that have no variables: operations, reductions, parts; activations.
#include <algorithm>

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

// An activation of its own is computed after its layer; GLU is the one that changes the shape.
absl::Status Activate(const Pass& p) {
  if (p.node().activation == v1::GLU) return Compute(p);
  std::copy(p.x().begin(), p.x().end(), p.y().begin());
  return absl::OkStatus();
}

void ActivateBackward(const Pass& p) {
  if (p.node().activation == v1::GLU) return ComputeBackward(p);
  for (size_t i = 0; i < p.dy().size(); ++i) p.dx()[i] += p.dy()[i];
}

constexpr Layer kLayers[] = {
    {LayerKind::kActivation, Activate, ActivateBackward}, {LayerKind::kOperation, Compute, ComputeBackward},
    {LayerKind::kSubtract, Compute, ComputeBackward},     {LayerKind::kMinimum, Compute, ComputeBackward},
    {LayerKind::kReduce, Compute, ComputeBackward},       {LayerKind::kSlice, Compute, ComputeBackward},
    {LayerKind::kStack, Compute, ComputeBackward},        {LayerKind::kPad, Compute, ComputeBackward},
    {LayerKind::kTile, Compute, ComputeBackward},         {LayerKind::kTake, Compute, ComputeBackward},
    {LayerKind::kOneHot, Compute, ComputeBackward},       {LayerKind::kEinsum, Compute, ComputeBackward},
    {LayerKind::kTopK, Compute, ComputeBackward},
};

}  // namespace

absl::Span<const Layer> TensorLayers() { return kLayers; }

}  // namespace cairn::reference
