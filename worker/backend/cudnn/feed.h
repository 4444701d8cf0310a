// Feed: what a step brings to the device: values, the batch, the key of its random numbers.
//
// Of the program's thread. Invariants:
//   1. What is copied lies in pinned memory that is not written again before the device has read it: the step that read
//      it is over.
//   2. Values cross in the type that they have, chunk by chunk, in the order in which the plan reads them.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/model/graph.h"
#include "worker/backend/backend.h"
#include "worker/backend/cudnn/plan.h"

namespace cairn::cudnn {

// Host and device memory of one size.
struct Pair {
  Block device, pinned;
  absl::Status Allocate(Machine& machine, int64_t bytes);
};

class Feed {
 public:
  // Both outlive it.
  Feed(const Graph& graph, Machine& machine);

  // labels: of an example, with the weights of its rows, at most. inputs: of the batches to be expected; for others
  // there is memory when the first comes.
  absl::Status Prepare(int64_t examples_max, int64_t labels, const std::vector<float>& class_weights, Element inputs);
  // From here on values are asked of `source`, if it is not null.
  void UseWeightSource(WeightSource* source) { source_ = source; }

  // What the batch's inputs are on the device: bytes cross as bytes, but for an Embedding, which reads float32.
  Element OnDevice(const Batch& batch) const { return widens_ ? Element::kFloat : batch.element; }
  // Brings the inputs of the next CopyBatch, if there is memory for two batches; else does nothing.
  void Prefetch(const Batch& next);
  // Inputs, and for training and evaluation labels with the weights of their rows behind them, and for training the
  // key.
  absl::Status CopyBatch(Mode mode, const Batch& batch, absl::Span<const float> row_weights, const StepInfo& info);
  // Values [from, to), which come as numbers of `type`; later work finds them, and the batch. wanted_end: of all values
  // that the plan reads.
  absl::Status CopyValues(absl::Span<const float> values, v1::DataType type, int64_t from, int64_t to,
                          int64_t wanted_end);

  // On the device.
  float* values() const { return values_.device.as<float>(); }
  void* inputs(Element element) const { return inputs_[static_cast<int>(element)].device.data(); }
  float* labels() const { return labels_.device.as<float>(); }
  float* class_weights() const { return class_weights_.device.as<float>(); }
  kernels::StepKey* key() const { return key_.device.as<kernels::StepKey>(); }
  int64_t bytes() const;  // on the device, all of it

 private:
  absl::Status Widen(v1::DataType type, int64_t from, int64_t to);
  int64_t InputBytes(Element element) const {
    return examples_max_ * NumElements(graph_.input_shape()) * cairn::SizeOf(element);
  }
  void ToPinned(const Batch& batch, char* pinned) const;

  const Graph& graph_;
  Machine& machine_;
  const bool widens_;
  int64_t examples_max_ = 0;
  Pair values_, labels_, key_, class_weights_;
  Pair inputs_[2], next_[2];  // by Element; next: of Prefetch
  Buffer next_inputs_;        // what stands in next_, or is on its way there; empty: nothing
  bool prefetch_refused_ = false;
  Block value_bits_;  // values as they come; with values of 16 bits only
  WeightSource* source_ = nullptr;
};

}  // namespace cairn::cudnn
