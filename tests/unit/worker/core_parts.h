// The Context of a core without a core, for tests of the parts that share it: a job of four replicas and three
// partitions of 16 numbers, two epochs of two steps of eight examples.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "worker/core/replica_context.h"

namespace cairn::replica {

class CorePartsTest : public testing::Test {
 protected:
  static constexpr uint32_t kPartitions = 3;
  static constexpr size_t kNumbers = 16;  // of a partition

  CorePartsTest() {
    context_.assignment.job = JobId(7);
    context_.assignment.generation = Generation(3);
    context_.job.spec.set_replicas(4);
    context_.job.spec.set_epochs(2);
    context_.job.spec.mutable_optimizer()->set_learning_rate(0.5f);
    context_.schedule.plan = StepPlan::Make(/*examples=*/16, /*batch_size=*/8, /*replicas=*/4, /*steps_per_epoch=*/0,
                                            /*epochs=*/2);
    context_.schedule.rates = EpochRates(context_.job.spec, context_.schedule.plan.steps_per_epoch);
    for (uint32_t p = 0; p < kPartitions; ++p) {
      v1::PartitionRange range;
      range.set_partition(p);
      range.set_begin(p * kNumbers);
      range.set_end((p + 1) * kNumbers);
      context_.job.ranges.push_back(range);
      context_.assignment.parts.push_back({range, "ps-" + std::to_string(p)});
    }
    context_.job.space_bytes = kPartitions * kNumbers * sizeof(float);
    context_.pool.Resize(context_.job.space_bytes, 8);
    context_.output.Begin(absl::FromUnixSeconds(100));
  }

  // The effects of this type since the last call; those of other types are dropped.
  template <typename T>
  std::vector<T> Take() {
    std::vector<T> found;
    for (Effect& effect : context_.output.Take()) {
      if (T* t = std::get_if<T>(&effect)) found.push_back(std::move(*t));
    }
    return found;
  }

  void Advance(absl::Duration time) { context_.output.Begin(context_.output.now() + time); }

  static Frame Values(uint32_t partition, uint64_t version) {
    Frame frame;
    frame.kind = v1::ExchangeFrame::VALUES;
    frame.partition = PartitionId(partition);
    frame.version = frame.sequence = version;
    frame.dtype = v1::FLOAT32;
    frame.payload = Buffer::Zeros(kNumbers * sizeof(float));
    return frame;
  }

  Context context_{ReplicaCoreOptions()};
};

}  // namespace cairn::replica
