#include "worker/backend/cudnn/step_gradient.h"

#include <algorithm>
#include <cstring>

#include "common/base/limits.h"

namespace cairn::cudnn {

StepGradient::StepGradient(const Graph& graph, Machine& machine) : graph_(graph), machine_(machine) {
  for (const Variable& v : graph_.variables()) {
    if (v.kind == VariableKind::kTrainable) continue;
    not_scaled_.emplace_back(v.offset, v.offset + (v.size + kSpaceAlignment - 1) / kSpaceAlignment * kSpaceAlignment);
  }
}

absl::Status StepGradient::Prepare() {
  const int64_t bytes = graph_.space_size() * static_cast<int64_t>(sizeof(float));
  CAIRN_RETURN_IF_ERROR(gradient_.Allocate(machine_, bytes));
  return machine_.Zero(gradient_.device.data(), bytes);
}

absl::Status StepGradient::PrepareJoin(v1::DataType type, bool pieces) {
  if (type != v1::FLOAT32 && rounded_.bytes() == 0) {
    CAIRN_ASSIGN_OR_RETURN(rounded_, machine_.Allocate(graph_.space_size() * 2));
  }
  return pieces ? pieces_.Prepare(machine_, graph_.space_size()) : absl::OkStatus();
}

int64_t StepGradient::bytes() const { return gradient_.device.bytes() + rounded_.bytes() + pieces_.bytes(); }

void StepGradient::Take(int64_t begin, int64_t end, float loss_scale, absl::Span<float> to) const {
  std::memcpy(to.data() + begin, pinned() + begin, static_cast<size_t>(end - begin) * sizeof(float));
  if (loss_scale == 1) return;
  const float factor = 1 / loss_scale;
  for (const Variable& v : graph_.variables()) {
    if (v.kind != VariableKind::kTrainable) continue;
    for (int64_t i = std::max(v.offset, begin); i < std::min(v.offset + v.size, end); ++i) to[i] *= factor;
  }
}

DeviceJoin::Source StepGradient::Own(float factor) const {
  return {machine_, device(), factor, not_scaled_, rounded_.data(), gradient_.pinned.data()};
}

DeviceJoin::Source StepGradient::Pieces() const {
  return {machine_, pieces_.sum(), 1, not_scaled_, rounded_.data(), gradient_.pinned.data()};
}

}  // namespace cairn::cudnn
