// Goal: in an epoch every place belongs to exactly one (step, replica), whatever the sizes; shares and partitions cover
// without overlap.
#include "common/model/step_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "common/model/job_check.h"

namespace cairn {
namespace {

TEST(StepPlan, EveryPlaceOnceAnEpoch) {
  for (int64_t examples : {1, 2, 7, 31, 32, 33, 100, 257}) {
    for (int64_t batch : {1, 2, 8, 32, 300}) {
      for (int32_t replicas : {1, 2, 3, 4, 8}) {
        SCOPED_TRACE(testing::Message() << examples << " examples, batch " << batch << ", replicas " << replicas);
        const StepPlan plan = StepPlan::Make(examples, batch, replicas, 0, 3);
        EXPECT_EQ(plan.steps_per_epoch, (examples + batch - 1) / batch);
        EXPECT_EQ(plan.total_steps, plan.steps_per_epoch * 3);
        for (int64_t epoch = 0; epoch < 3; ++epoch) {
          std::vector<int> seen(examples, 0);
          for (int64_t s = epoch * plan.steps_per_epoch; s < (epoch + 1) * plan.steps_per_epoch; ++s) {
            EXPECT_EQ(plan.EpochOf(s), epoch);
            int64_t smallest = examples, largest = 0, total = 0;
            for (int32_t r = 0; r < replicas; ++r) {
              const PlaceRange places = plan.Places(s, ReplicaId(r));
              smallest = std::min(smallest, places.size());
              largest = std::max(largest, places.size());
              total += places.size();
              for (int64_t p = places.begin; p < places.end; ++p) ++seen.at(p);
            }
            EXPECT_LE(largest - smallest, 1);
            EXPECT_LE(total, batch);
            EXPECT_GT(total, 0);
          }
          EXPECT_EQ(seen, std::vector<int>(examples, 1));
        }
      }
    }
  }
}

TEST(StepPlan, FewerStepsTakeTheFirstBatches) {
  const StepPlan plan = StepPlan::Make(100, 10, 2, 3, 2);
  EXPECT_EQ(plan.steps_per_epoch, 3);
  EXPECT_EQ(plan.total_steps, 6);
  EXPECT_EQ(plan.Places(3, ReplicaId(0)).begin, 0);
  EXPECT_EQ(plan.Places(5, ReplicaId(1)).end, 30);
}

// 23 steps an epoch over 10 batches: two passes and the first 3 batches of a third one; the next epoch begins a new
// one.
TEST(StepPlan, MoreStepsThanBatchesGoThroughTheDataAgain) {
  const StepPlan plan = StepPlan::Make(95, 10, 2, 23, 2);
  EXPECT_EQ(plan.batches, 10);
  EXPECT_EQ(plan.steps_per_epoch, 23);
  EXPECT_EQ(plan.total_steps, 46);
  std::map<int64_t, std::vector<int>> seen;  // by pass
  for (int64_t step = 0; step < plan.total_steps; ++step) {
    std::vector<int>& places = seen[plan.PassOf(step)];
    places.resize(95);
    for (int r = 0; r < 2; ++r) {
      const PlaceRange range = plan.Places(step, ReplicaId(r));
      for (int64_t p = range.begin; p < range.end; ++p) ++places.at(p);
    }
  }
  ASSERT_EQ(seen.size(), 6u);
  for (int64_t pass : {0, 1, 3, 4}) EXPECT_EQ(seen[pass], std::vector<int>(95, 1)) << "pass " << pass;
  for (int64_t pass : {2, 5}) {
    EXPECT_EQ(std::accumulate(seen[pass].begin(), seen[pass].end(), 0), 30) << "pass " << pass;
    EXPECT_EQ(std::accumulate(seen[pass].begin(), seen[pass].begin() + 30, 0), 30) << "the first places";
  }
}

TEST(StepPlan, APassIsAnEpochWhereNoneHasMoreSteps) {
  for (int64_t steps : {0, 1, 4, 10}) {
    const StepPlan plan = StepPlan::Make(100, 10, 2, steps, 3);
    for (int64_t step = 0; step < plan.total_steps; ++step) EXPECT_EQ(plan.PassOf(step), plan.EpochOf(step));
  }
}

TEST(StepPlan, ShortBatchesAreDroppedIfAsked) {
  const StepPlan plan = StepPlan::Make(95, 10, 3, 0, 2, /*drop_remainder=*/true);
  EXPECT_EQ(plan.steps_per_epoch, 9);
  for (int64_t step = 0; step < plan.total_steps; ++step) {
    int64_t examples = 0;
    for (int r = 0; r < 3; ++r) examples += plan.Places(step, ReplicaId(r)).size();
    EXPECT_EQ(examples, 10) << "step " << step;
  }
  EXPECT_EQ(StepPlan::Make(100, 10, 3, 0, 1, true).steps_per_epoch, 10);
  EXPECT_EQ(StepPlan::Make(7, 10, 3, 0, 1, true).steps_per_epoch, 1) << "the only batch stays";
  EXPECT_EQ(StepPlan::Make(95, 10, 3, 20, 1, true).steps_per_epoch, 20);
}

TEST(StepPlan, OfAJob) {
  v1::JobSpec spec;
  spec.set_batch_size(10);
  spec.set_epochs(2);
  EXPECT_EQ(StepPlan::Of(spec, 95).total_steps, 20);
  spec.mutable_data()->set_drop_remainder(true);
  EXPECT_EQ(StepPlan::Of(spec, 95).total_steps, 18);
  spec.set_steps_per_epoch(4);
  EXPECT_EQ(StepPlan::Of(spec, 95).total_steps, 8);
}

// A step with accumulation has accumulate_steps batches; pieces cover a replica's run in order, and none is larger than
// a replica's share of a batch.
TEST(StepPlanPieces, CoverAReplicasRun) {
  v1::JobSpec spec;
  for (int64_t examples : {64, 70, 97}) {
    for (int32_t replicas : {1, 3, 5}) {
      for (int32_t pieces : {1, 2, 4}) {
        spec.set_batch_size(8);
        spec.set_replicas(replicas);
        spec.set_epochs(2);
        spec.set_accumulate_steps(pieces);
        const StepPlan plan = StepPlan::Of(spec, examples);
        EXPECT_EQ(plan.steps_per_epoch, (examples + 8 * pieces - 1) / (8 * pieces));
        EXPECT_EQ(plan.piece_max(), (8 + replicas - 1) / replicas);
        for (int64_t step = 0; step < plan.total_steps; ++step) {
          for (int32_t r = 0; r < replicas; ++r) {
            const PlaceRange places = plan.Places(step, ReplicaId(r));
            int64_t end = places.begin;
            for (int32_t i = 0; i < pieces; ++i) {
              const PlaceRange piece = plan.Piece(step, ReplicaId(r), i);
              EXPECT_EQ(piece.begin, end);
              EXPECT_LE(piece.size(), plan.piece_max());
              end = piece.end;
            }
            EXPECT_EQ(end, places.end);
          }
        }
      }
    }
  }
}

TEST(Share, CoversInOrder) {
  for (int64_t items : {0, 1, 5, 6, 7, 1000}) {
    for (int64_t parts : {1, 2, 3, 7, 16}) {
      int64_t end = 0;
      for (int64_t i = 0; i < parts; ++i) {
        const PlaceRange share = Share(items, i, parts);
        EXPECT_EQ(share.begin, end);
        EXPECT_GE(share.size(), items / parts);
        EXPECT_LE(share.size(), items / parts + 1);
        end = share.end;
      }
      EXPECT_EQ(end, items);
    }
  }
  EXPECT_EQ(Share(int64_t{1} << 60, 1023, 1024).end, int64_t{1} << 60);  // no product that overflows
}

TEST(CutPartitions, CoverTheSpaceInOrder) {
  for (int64_t space : {16, 32, 1008, 34848, 100000}) {
    for (int64_t bytes : {64, 128, 4096, 1 << 22}) {
      const std::vector<v1::PartitionRange> ranges = CutPartitions(space, bytes);
      uint64_t end = 0;
      for (size_t i = 0; i < ranges.size(); ++i) {
        EXPECT_EQ(ranges[i].partition(), i);
        EXPECT_EQ(ranges[i].begin(), end);
        EXPECT_EQ(ranges[i].begin() % 16, 0u);
        EXPECT_LE((ranges[i].end() - ranges[i].begin()) * 4, static_cast<uint64_t>(bytes));
        EXPECT_GT(ranges[i].end(), ranges[i].begin());
        end = ranges[i].end();
      }
      EXPECT_EQ(end, static_cast<uint64_t>(space));
      EXPECT_EQ(ranges.size(), static_cast<size_t>((space * 4 + bytes - 1) / bytes));
    }
  }
  EXPECT_TRUE(CutPartitions(0, 64).empty());
}

TEST(CutPartitions, TheFirstOfLargeOnesIsCutAgain) {
  const auto ends = [](int64_t space, int64_t bytes) {
    std::vector<uint64_t> ends;
    for (const v1::PartitionRange& range : CutPartitions(space, bytes)) ends.push_back(range.end());
    return ends;
  };
  constexpr int64_t kMega = 1 << 20;
  EXPECT_THAT(ends(3 * kMega - 16, 4 * kMega),
              testing::ElementsAre(kMega / 8, kMega / 4, kMega / 2, kMega, 2 * kMega, 3 * kMega - 16));
  EXPECT_THAT(ends(kMega + 16, 4 * kMega), testing::ElementsAre(kMega / 8, kMega / 4, kMega / 2, kMega, kMega + 16));
  EXPECT_THAT(ends(kMega, 4 * kMega), testing::ElementsAre(kMega));  // alone
  EXPECT_THAT(ends(kMega, kMega),
              testing::ElementsAre(kMega / 32, kMega / 16, kMega / 8, kMega / 4, kMega / 2, 3 * kMega / 4, kMega));
  EXPECT_EQ(ends(kMega, kMega / 2).size(), 8u);   // small ones
  EXPECT_EQ(ends(kMega, kMega + 64).size(), 4u);  // its eighth is not of whole 64 bytes
}

TEST(DefaultPartitionBytes, EveryServerHasWork) {
  EXPECT_EQ(DefaultPartitionBytes(int64_t{1} << 30, 2), int64_t{4} << 20);
  for (int64_t space : {16, 64, 1024, 34848, 3000000, 50000000}) {
    for (int ps : {1, 2, 3, 5, 8}) {
      const int64_t bytes = DefaultPartitionBytes(space, ps);
      EXPECT_EQ(bytes % 64, 0);
      EXPECT_GE(bytes, 64);
      EXPECT_LE(bytes, int64_t{4} << 20);
      const int64_t partitions = static_cast<int64_t>(CutPartitions(space, bytes).size());
      if (space >= 16 * ps * ps) {
        EXPECT_GE(partitions, ps) << space << " " << ps;
      }
      const int64_t least = space * 4 >= 2 * ps * (128 << 10) ? 2 * ps : ps;
      EXPECT_LE(partitions, std::max<int64_t>(least, 2 * (space * 4 / (4 << 20)) + ps) + (bytes >= 1 << 20 ? 3 : 0));
    }
  }
  EXPECT_GE(DefaultPartitionBytes(0, 0), 64);
  // Two for each server from 128 KiB each.
  EXPECT_EQ(DefaultPartitionBytes(101770, 1), 203584) << "an MLP 784-128-10";
  EXPECT_EQ(CutPartitions(101770, 203584).size(), 2u);
  EXPECT_EQ(DefaultPartitionBytes(65536, 1), 128 << 10);
  EXPECT_EQ(DefaultPartitionBytes(65535, 1), 256 << 10);
  EXPECT_EQ(DefaultPartitionBytes(400000, 2), 400000);
}

}  // namespace
}  // namespace cairn
