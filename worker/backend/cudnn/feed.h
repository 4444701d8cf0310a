// Feed: copies to the device what a step needs: the values, the batch, the key of its random numbers.
//
// Used on the program's thread. Invariants:
//   1. Pinned memory that is copied from is not written again before the step that reads it has ended.
//   2. Values are copied in the type that they have, chunk by chunk, in the order in which the plan reads them.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/model/graph.h"
#include "common/model/model_inputs.h"
#include "worker/backend/backend.h"
#include "worker/backend/cudnn/plan.h"

namespace cairn::cudnn {

// Host and device memory of one size.
struct Pair {
  Block device, pinned;
  // Both, or on an error none: what was there stays.
  absl::Status Allocate(Machine& machine, int64_t bytes);
};

class Feed {
 public:
  // Both outlive it.
  Feed(const Graph& graph, Machine& machine);

  // labels: the numbers to expect of an example's labels, with the weights of its rows. inputs: the element type of the
  // batches to expect; memory for the other type is allocated when the first such batch comes.
  absl::Status Prepare(int64_t examples_max, int64_t labels, const std::vector<float>& class_weights, Element inputs);
  // How many numbers of labels and weights of rows there is room for, and more room: only while the device uses none.
  int64_t label_numbers() const { return labels_.device.bytes() / static_cast<int64_t>(sizeof(float)); }
  absl::Status AllocateLabels(int64_t numbers) {
    labels_ = {};  // before the larger ones
    return labels_.Allocate(machine_, numbers * static_cast<int64_t>(sizeof(float)));
  }
  // From now on values come from `source`; null: they are all in memory.
  void UseWeightSource(WeightSource* source) { source_ = source; }

  // The element type of the batch's inputs on the device: bytes stay bytes, except for an Embedding that reads them: it
  // takes float32.
  Element OnDevice(const Batch& batch) const { return widens_ ? Element::kFloat : batch.element; }
  // Starts to copy the inputs of the next CopyBatch if there is memory for two batches; else does nothing.
  void Prefetch(const Batch& next);
  // Copies the inputs; for training and evaluation the labels, followed by the weights of their rows; and for training
  // the key.
  absl::Status CopyBatch(Mode mode, const Batch& batch, absl::Span<const float> row_weights, const StepInfo& info);
  // Copies the values [from, to), which are exact in `type`. Work that is enqueued later finds them and the batch on
  // the device. wanted_end: the end of all values that the plan reads.
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
  int64_t InputBytes(Element element) const { return examples_max_ * ModelInputSize(graph_) * cairn::SizeOf(element); }
  void ToPinned(const Batch& batch, char* pinned) const;

  const Graph& graph_;
  Machine& machine_;
  const bool widens_;
  int64_t examples_max_ = 0;
  Pair values_, labels_, key_, class_weights_;
  Pair inputs_[2], next_[2];  // by Element; next: of Prefetch
  Buffer next_inputs_;        // the inputs that are in next_, or on their way there; empty: none
  bool prefetch_refused_ = false;
  Block value_bits_;  // the values before they are widened; only for types of 16 bits
  WeightSource* source_ = nullptr;
};

}  // namespace cairn::cudnn
