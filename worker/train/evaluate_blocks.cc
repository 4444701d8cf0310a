#include "worker/train/evaluate_blocks.h"

#include <algorithm>
#include <vector>

#include "common/base/exact_sum.h"
#include "common/model/metric_sums.h"

namespace cairn {

PlaceRange ExamplesOfShard(int64_t examples, int64_t block, int64_t shard, int64_t shards) {
  const PlaceRange blocks = Share((examples + block - 1) / block, shard, shards);
  return {std::min(blocks.begin * block, examples), std::min(blocks.end * block, examples)};
}

absl::StatusOr<BatchSums> EvaluateBlocks(Program& program, const JobModel& model, const ExampleRange& range,
                                         absl::Span<const float> values, const std::atomic<bool>& stop) {
  const Dataset& dataset = range.dataset;
  const v1::Split split = range.split;
  const PlaceRange places = range.places;
  const Element element = dataset.element();
  const auto example_bytes = static_cast<size_t>(dataset.example_size() * SizeOf(element));
  const auto label_size = static_cast<size_t>(dataset.label_size());
  const bool weighted = dataset.weighted();
  const int64_t block = std::min(model.options.batch_max, places.size());
  Buffer inputs = Buffer::Allocate(static_cast<size_t>(block) * example_bytes);
  Buffer labels =
      Buffer::Allocate(static_cast<size_t>(block) * static_cast<size_t>(LabelNumbers(dataset)) * sizeof(float));
  uint64_t counted = 0;
  ExactSum loss;
  std::vector<ExactSum> metrics(static_cast<size_t>(MetricSumCount(model.options.metrics)));
  for (int64_t begin = places.begin; begin < places.end; begin += block) {
    if (stop) return absl::CancelledError("stopped");
    const auto examples = static_cast<size_t>(std::min(block, places.end - begin));
    for (size_t i = 0; i < examples; ++i) {
      CAIRN_RETURN_IF_ERROR(dataset.ReadAs(element, split, begin + static_cast<int64_t>(i),
                                           inputs.mutable_data() + i * example_bytes,
                                           labels.mutable_floats().data() + i * label_size));
      if (weighted)
        labels.mutable_floats()[examples * label_size + i] = dataset.Weight(split, begin + static_cast<int64_t>(i));
    }
    Batch batch;
    batch.examples = static_cast<int64_t>(examples);
    batch.label_size = dataset.label_size();
    batch.element = element;
    batch.inputs = inputs.Slice(0, examples * example_bytes);
    batch.labels = labels.Slice(0, examples * (label_size + (weighted ? 1 : 0)) * sizeof(float));
    CAIRN_ASSIGN_OR_RETURN(const BatchSums sums, program.Evaluate(batch, values));
    counted += sums.examples;
    loss.Add(RoundForSum(sums.loss));
    for (size_t m = 0; m < std::min(metrics.size(), sums.metrics.size()); ++m) {
      metrics[m].Add(RoundForSum(sums.metrics[m]));
    }
  }
  BatchSums total{counted, loss.value, {}, loss.rest, {}};
  for (const ExactSum& sum : metrics) {
    total.metrics.push_back(sum.value);
    total.metrics_rest.push_back(sum.rest);
  }
  return total;
}

}  // namespace cairn
