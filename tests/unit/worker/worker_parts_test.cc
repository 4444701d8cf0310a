// Goal: the small parts around the core: devices by name, options, connections that come and go, evaluation in blocks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <optional>

#include "absl/synchronization/notification.h"
#include "common/model/epoch_figures.h"
#include "tests/unit/worker/fake_backend.h"
#include "worker/core/report_book.h"
#include "worker/limits.h"
#include "worker/node/backend_select.h"
#include "worker/node/device_watch.h"
#include "worker/node/worker_node.h"
#include "worker/train/evaluate_blocks.h"
#include "worker/train/prediction.h"
#include "worker/train/ps_connections.h"
#include "worker/train/trainer.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;

TEST(SelectBackendTest, KnowsItsDevices) {
  const auto backend = SelectBackend("cpu");
  ASSERT_TRUE(backend.ok());
  EXPECT_THAT((*backend)->device(), HasSubstr("cpu"));
  EXPECT_FALSE((*backend)->fingerprint().empty());
  for (const char* device : {"tpu", "gpu:", "gpu:x", "gpu:-1", "gpu:99999"}) {
    EXPECT_EQ(SelectBackend(device).status().code(), absl::StatusCode::kInvalidArgument) << device;
  }
}

TEST(WorkerOptionsTest, ErrorsNameTheFlag) {
  WorkerOptions options;
  EXPECT_THAT(options.Validate().message(), HasSubstr("--coordinator"));
  options.coordinator = "127.0.0.1:1";
  EXPECT_THAT(options.Validate().message(), HasSubstr("--name"));
  options.name = "worker-7";
  EXPECT_TRUE(options.Validate().ok());
  options.slots = 0;
  EXPECT_THAT(options.Validate().message(), HasSubstr("--slots"));
  options.slots = 1;
  options.decode_threads = 1000;
  EXPECT_THAT(options.Validate().message(), HasSubstr("--decode-threads"));
}

TEST(PsConnectionsTest, AnswersWithAnErrorWhereNobodyListensAndForgetsUnusedOnes) {
  PsConnections connections;
  for (int round = 0; round < 2; ++round) {
    Frame pull;
    pull.kind = v1::ExchangeFrame::PULL;
    absl::Notification done;
    absl::Status status;
    // Port 1 of this machine: nobody listens there.
    connections.Send("127.0.0.1:1", pull, [&](absl::StatusOr<Frame> frame) {
      status = frame.status();
      done.Notify();
    });
    done.WaitForNotification();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    connections.Retain({});
  }
  connections.Clear();
  connections.Send("127.0.0.1:1", Frame(), [](absl::StatusOr<Frame>) { ADD_FAILURE() << "closed for good"; });
}

// Example i of a split is the number i; label i.
class CountingDataset : public Dataset {
 public:
  const v1::DataInfo& info() const override { return info_; }
  int64_t size(v1::Split) const override { return 100; }
  int64_t example_size() const override { return 1; }
  int64_t label_size() const override { return 1; }
  absl::Status Read(v1::Split, int64_t index, float* example, float* label) const override {
    if (index >= 100) return absl::DataLossError("index");
    *example = *label = static_cast<float>(index);
    return absl::OkStatus();
  }

 private:
  v1::DataInfo info_;
};

// Loss: the sum of the inputs times the value; metric: the sum of the labels.
class SummingProgram : public IdleProgram {
 public:
  absl::StatusOr<BatchSums> Evaluate(const Batch& batch, absl::Span<const float> values) override {
    EXPECT_EQ(batch.inputs.floats().size(), static_cast<size_t>(batch.examples));
    largest = std::max(largest, batch.examples);
    BatchSums sums{static_cast<uint64_t>(batch.examples), 0, {0}};
    for (float x : batch.inputs.floats()) sums.loss += x * values[0];
    for (float x : batch.labels.floats()) sums.metrics[0] += x;
    return sums;
  }
  int64_t largest = 0;
};

// As CountingDataset, of bytes.
class CountingBytes : public CountingDataset {
 public:
  Element element() const override { return Element::kByte; }
  absl::Status ReadBytes(v1::Split, int64_t index, uint8_t* example, float* label) const override {
    *example = static_cast<uint8_t>(index);
    *label = static_cast<float>(index);
    return absl::OkStatus();
  }
};

class SummingBytes : public IdleProgram {
 public:
  absl::StatusOr<BatchSums> Evaluate(const Batch& batch, absl::Span<const float>) override {
    EXPECT_EQ(batch.element, Element::kByte);
    EXPECT_EQ(static_cast<int64_t>(batch.inputs.size()), batch.examples);
    BatchSums sums{static_cast<uint64_t>(batch.examples), 0, {}};
    for (size_t i = 0; i < batch.inputs.size(); ++i) sums.loss += batch.inputs.data()[i];
    return sums;
  }
};

TEST(EvaluateBlocksTest, BytesAreReadAsBytes) {
  JobModel model;
  model.options.batch_max = 4;
  SummingBytes program;
  const std::atomic<bool> go{false};
  const auto sums = EvaluateBlocks(program, model, {CountingBytes(), v1::TEST, {1, 11}}, {}, go);
  ASSERT_TRUE(sums.ok()) << sums.status();
  EXPECT_EQ(sums->loss, 55);
}

// Names that are no UTF-8; one is too long.
class BadlyNamed : public CountingDataset {
 public:
  std::string NameOf(v1::Split, int64_t index) const override {
    return index == 0 ? "a\xff.png" : std::string(1000, 'n') + "\xff";
  }
};

TEST(InputNamesTest, AreShortUtf8OrNone) {
  const BadlyNamed dataset;
  const std::vector<std::string> names = InputNames({dataset, v1::TEST, {0, 2}}, kPredictBlockBytesMax);
  EXPECT_THAT(names, ::testing::ElementsAre("a\xef\xbf\xbd.png", std::string(kInputNameBytesMax, 'n')));
  const size_t bytes = names[0].size() + names[1].size() + 2 * kInputNameHeadBytes;
  EXPECT_EQ(InputNames({dataset, v1::TEST, {0, 2}}, bytes), names);
  EXPECT_TRUE(InputNames({dataset, v1::TEST, {0, 2}}, bytes - 1).empty()) << "all or none";
}

TEST(DeviceWatchTest, EndsWhenNoReplicaIsLeftAndAtLast) {
  const absl::Time lost = absl::FromUnixSeconds(1000);
  const absl::Status bad = absl::UnavailableError("GPU 0 is lost");
  const auto at = [&](absl::Duration after) { return lost + after; };
  DeviceWatch watch;
  EXPECT_FALSE(watch.Look(absl::OkStatus(), false, lost - absl::Hours(1)));
  EXPECT_FALSE(watch.lost());
  EXPECT_FALSE(watch.Look(bad, false, lost)) << "before the coordinator was told";
  EXPECT_TRUE(watch.lost());
  EXPECT_FALSE(watch.Look(bad, false, at(DeviceWatch::kTellFor - absl::Milliseconds(1))));
  EXPECT_FALSE(watch.Look(bad, true, at(DeviceWatch::kTellFor))) << "its replicas are still to be moved";
  EXPECT_TRUE(watch.Look(bad, false, at(DeviceWatch::kTellFor)));
  EXPECT_FALSE(watch.Look(bad, true, at(DeviceWatch::kLeaveWithin - absl::Milliseconds(1))));
  EXPECT_TRUE(watch.Look(bad, true, at(DeviceWatch::kLeaveWithin))) << "nobody takes them";
}

TEST(EvaluateBlocksTest, EachExampleOfTheShardOnce) {
  JobModel model;
  model.options.batch_max = 4;
  model.options.metrics.resize(1);
  const CountingDataset dataset;
  SummingProgram program;
  const float value = 2;
  const std::atomic<bool> go{false}, stop{true};
  const auto sums = EvaluateBlocks(program, model, {dataset, v1::TEST, {1, 11}}, {&value, 1}, go);
  ASSERT_TRUE(sums.ok());
  EXPECT_EQ(sums->examples, 10u);
  EXPECT_EQ(sums->loss, 110.0);
  EXPECT_EQ(sums->metrics[0], 55.0);
  EXPECT_EQ(program.largest, 4);
  EXPECT_EQ(EvaluateBlocks(program, model, {dataset, v1::TEST, {0, 0}}, {&value, 1}, go)->examples, 0u);
  EXPECT_EQ(EvaluateBlocks(program, model, {dataset, v1::TEST, {70, 110}}, {&value, 1}, go).status().code(),
            absl::StatusCode::kDataLoss);
  EXPECT_TRUE(
      absl::IsCancelled(EvaluateBlocks(program, model, {dataset, v1::TEST, {0, 10}}, {&value, 1}, stop).status()));
}

// Figures that no binary fraction holds, and that depend on the block's size as a backend's may.
class OddProgram : public IdleProgram {
 public:
  absl::StatusOr<BatchSums> Evaluate(const Batch& batch, absl::Span<const float>) override {
    BatchSums sums{static_cast<uint64_t>(batch.examples), 0, {0}};
    for (float x : batch.inputs.floats()) sums.loss += 1.0 / (3 + x) + 1e-3 / static_cast<double>(batch.examples);
    sums.loss += static_cast<double>(batch.examples) * 4.2458751510502117;  // a penalty
    for (float x : batch.labels.floats()) sums.metrics[0] += std::sqrt(x);
    sums.loss *= scale;
    sums.metrics[0] *= scale;
    return sums;
  }
  double scale = 1;
};

TEST(EvaluateBlocksTest, TheBitsDoNotDependOnTheShards) {
  JobModel model;
  model.options.batch_max = 7;  // 15 blocks, the last one short
  model.options.metrics.resize(1);
  const CountingDataset dataset;
  OddProgram program;
  const std::atomic<bool> go{false};
  // With the last scale a block's figures are about 2e11: errors of prices, squared.
  for (double scale : {1e-9, 1.0, 5e9}) {
    program.scale = scale;
    std::optional<v1::MetricSums> whole;
    for (int64_t shards : {1, 2, 3, 4, 7, 15, 40}) {
      v1::MetricSums total;
      int64_t end = 0;
      for (int64_t shard = 0; shard < shards; ++shard) {
        const PlaceRange examples = ExamplesOfShard(100, 7, shard, shards);
        EXPECT_EQ(examples.begin, end);
        end = examples.end;
        const auto sums = EvaluateBlocks(program, model, {dataset, v1::TEST, examples}, {}, go);
        ASSERT_TRUE(sums.ok()) << sums.status();
        AddSums(ToMetricSums(*sums), 1, total);
      }
      EXPECT_EQ(end, 100);
      if (!whole) whole = total;
      EXPECT_EQ(total.examples(), 100u) << shards;
      EXPECT_EQ(total.ShortDebugString(), whole->ShortDebugString()) << shards << " shards";
      EXPECT_EQ(total.SerializeAsString(), whole->SerializeAsString()) << shards << " shards";
    }
  }
}

}  // namespace
}  // namespace cairn
