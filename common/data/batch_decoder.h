// BatchDecoder: makes one batch: reads its examples in the order of their pass, augments and mixes them, and fills in
// targets that are the input itself.
//
// Any thread; several at a time. Invariants:
//   1. A batch is a pure function of (dataset, plan, options, step, replica).
//   2. Every batch fits a block of block_bytes(): inputs first, then labels with any weights behind them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "common/base/ids.h"
#include "common/base/random.h"
#include "common/base/status.h"
#include "common/data/augment.h"
#include "common/data/batch_mixer.h"
#include "common/data/block_pool.h"
#include "common/data/dataset.h"
#include "common/model/step_plan.h"
#include "common/tensor/batch.h"

namespace cairn {

// The memory layout of a job's batches.
struct BatchForm {
  Element element = Element::kFloat;
  int64_t example_size = 0;  // numbers of an example, as the model sees it
  int64_t label_size = 0;    // numbers of its label, without its weight
  bool weighted = false;
  // The sizes of the largest batch, rounded up to whole cache lines.
  size_t input_bytes = 0, label_bytes = 0;

  static BatchForm Of(const Dataset& dataset, const StepPlan& plan, const BatchSourceOptions& options);
};

// Which example of the training split stands at a place of the pass that a step belongs to.
class ExampleOrder {
 public:
  ExampleOrder(uint64_t seed, bool shuffle, const StepPlan& plan, int64_t step);
  int64_t operator()(int64_t place) const {
    return shuffle_ ? static_cast<int64_t>(order_(static_cast<uint64_t>(place))) : place;
  }

 private:
  const bool shuffle_;
  const Permutation order_;
};

class BatchDecoder {
 public:
  BatchDecoder(std::shared_ptr<const Dataset> dataset, const StepPlan& plan, const BatchSourceOptions& options);

  const StepPlan& plan() const { return plan_; }
  const BatchForm& form() const { return form_; }
  size_t block_bytes() const { return form_.input_bytes + form_.label_bytes; }
  // Whether a batch is merely copied from memory, which is cheaper than waiting for another thread.
  bool cheap() const { return dataset_->in_memory() && augmenter_ == nullptr; }
  const std::string& path() const { return dataset_->info().path(); }

  // Errors: FAILED_PRECONDITION if this machine's data differs from what the job was planned with; OUT_OF_RANGE.
  absl::Status Check(int64_t step, ReplicaId replica, int32_t piece) const;
  // piece: numbered across all steps (step * plan().pieces + the step's piece). pool: its blocks have block_bytes().
  // Errors: those of Dataset::Read.
  absl::StatusOr<Batch> Decode(int64_t piece, ReplicaId replica, BlockPool& pool) const;

 private:
  // Whether the target is the example itself, without a label of the data set.
  bool target_alone() const { return input_target_.has_value() && input_target_place_ < 0; }

  const std::shared_ptr<const Dataset> dataset_;
  const StepPlan plan_;
  const uint64_t seed_;
  const bool shuffle_;
  const std::shared_ptr<const Augmenter> augmenter_;
  const std::shared_ptr<const BatchMixer> mixer_;
  const std::optional<InputScale> input_target_;
  const int64_t input_target_place_;
  const BatchForm form_;
};

}  // namespace cairn
