// A core's Context without a core, for tests of the parts that share it: a job of four replicas and three partitions of
// 16 numbers, two epochs of two steps of eight examples.
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
    context_.job = JobId(7);
    context_.generation = Generation(3);
    context_.spec.set_replicas(4);
    context_.spec.set_epochs(2);
    context_.spec.mutable_optimizer()->set_learning_rate(0.5f);
    context_.plan = StepPlan::Make(/*examples=*/16, /*batch_size=*/8, /*replicas=*/4, /*steps_per_epoch=*/0,
                                   /*epochs=*/2);
    context_.rates = EpochRates(context_.spec, context_.plan.steps_per_epoch);
    for (uint32_t p = 0; p < kPartitions; ++p) {
      v1::PartitionRange range;
      range.set_partition(p);
      range.set_begin(p * kNumbers);
      range.set_end((p + 1) * kNumbers);
      context_.ranges.push_back(range);
      context_.parts.push_back({range, "ps-" + std::to_string(p)});
    }
    context_.space_bytes = kPartitions * kNumbers * sizeof(float);
    context_.pool.Resize(context_.space_bytes, 8);
    context_.now = absl::FromUnixSeconds(100);
  }

  // The effects of this type since the last call; those of other types are dropped.
  template <typename T>
  std::vector<T> Take() {
    std::vector<T> found;
    for (Effect& effect : std::exchange(context_.effects, {})) {
      if (T* t = std::get_if<T>(&effect)) found.push_back(std::move(*t));
    }
    return found;
  }

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
