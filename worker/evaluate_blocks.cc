#include "worker/evaluate_blocks.h"

#include <algorithm>

namespace cairn {

absl::StatusOr<BatchSums> EvaluateBlocks(Program& program, const JobModel& model, const Dataset& dataset,
                                         v1::Split split, PlaceRange places,
                                         const std::function<int64_t(int64_t)>& index, absl::Span<const float> values,
                                         const std::atomic<bool>& stop) {
  const Element element = dataset.element();
  const auto example_bytes = static_cast<size_t>(dataset.example_size() * SizeOf(element));
  const auto label_size = static_cast<size_t>(dataset.label_size());
  const int64_t block = std::min(model.options.batch_max, places.size());
  Buffer inputs = Buffer::Allocate(static_cast<size_t>(block) * example_bytes);
  Buffer labels = Buffer::Allocate(static_cast<size_t>(block) * label_size * sizeof(float));
  BatchSums total;
  total.metrics.resize(model.options.metrics.size());
  for (int64_t begin = places.begin; begin < places.end; begin += block) {
    if (stop) return absl::CancelledError("stopped");
    const auto examples = static_cast<size_t>(std::min(block, places.end - begin));
    for (size_t i = 0; i < examples; ++i) {
      CAIRN_RETURN_IF_ERROR(dataset.ReadAs(element, split, index(begin + static_cast<int64_t>(i)), inputs.mutable_data() + i * example_bytes,
                                           labels.mutable_floats().data() + i * label_size));
    }
    Batch batch;
    batch.examples = static_cast<int64_t>(examples);
    batch.label_size = dataset.label_size();
    batch.element = element;
    batch.inputs = inputs.Slice(0, examples * example_bytes);
    batch.labels = labels.Slice(0, examples * label_size * sizeof(float));
    CAIRN_ASSIGN_OR_RETURN(const BatchSums sums, program.Evaluate(batch, values));
    total.examples += sums.examples;
    total.loss += sums.loss;
    for (size_t m = 0; m < std::min(total.metrics.size(), sums.metrics.size()); ++m)
      total.metrics[m] += sums.metrics[m];
  }
  return total;
}

}  // namespace cairn
