#include "worker/backend/cudnn/masked_loss.h"

namespace cairn::cudnn {

std::vector<float> WeightsBeforeMask(const v1::Loss& loss, const LossPlan& plan, const Batch& batch) {
  const absl::Span<const float> labels = batch.labels.floats();
  const int64_t numbers = batch.examples * batch.label_size;
  const bool weighted = static_cast<int64_t>(labels.size()) == numbers + batch.examples;
  if (!weighted && !loss.has_ignore_class()) return {};
  std::vector<float> rows(static_cast<size_t>(batch.examples * plan.positions), 1.0f);
  for (int64_t r = 0; r < static_cast<int64_t>(rows.size()); ++r) {
    if (weighted) rows[r] = labels[numbers + r / plan.positions];
    if (loss.has_ignore_class() && labels[r] == static_cast<float>(loss.ignore_class())) rows[r] = -1;
  }
  return rows;
}

}  // namespace cairn::cudnn
