// CheckpointTest: a folder with checkpoints of one small job, of random numbers.
#pragma once

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "common/model/job_check.h"
#include "common/model/optimizer_slots.h"
#include "worker/checkpoint/checkpoint_writer.h"

namespace cairn {

inline constexpr char kJob[] = R"(
  name: "small"
  model {
    layers { input { shape: [6, 6, 1] } }
    layers { conv2d { filters: 3 kernel_size: 3 } }
    layers { batch_normalization { } }
    layers { flatten { } }
    layers { dense { units: 4 activation: SOFTMAX } }
  }
  data { path: "/data" }
  loss { kind: SPARSE_CATEGORICAL_CROSSENTROPY }
  optimizer { adam { amsgrad: true } }
  batch_size: 8 epochs: 4 replicas: 2 seed: 3
)";
inline constexpr int64_t kStepsPerEpoch = 10;

class CheckpointTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "cairn-checkpoint-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    dir_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  static v1::JobSpec Spec(const std::string& changes = "") {
    v1::JobSpec spec, more;
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(kJob, &spec));
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(changes, &more)) << changes;
    if (more.has_model()) spec.clear_model();
    if (more.has_optimizer()) spec.clear_optimizer();
    spec.MergeFrom(more);
    const absl::StatusOr<CheckedJob> checked = CheckJob(spec);
    EXPECT_TRUE(checked.ok()) << checked.status();
    return checked->spec;
  }

  // Random numbers everywhere, in the padding too: padding must not matter.
  CheckpointContents Contents(const v1::JobSpec& spec, int64_t step, uint64_t seed = 1) {
    CheckpointContents c;
    c.graph = std::make_shared<const Graph>(*Graph::Build(spec.model()));
    std::mt19937 random(static_cast<unsigned>(seed));
    const auto fill = [&] {
      Buffer b = Buffer::Allocate(static_cast<size_t>(c.graph->space_size()) * sizeof(float));
      for (float& f : b.mutable_floats()) f = static_cast<float>(random()) * 1e-9f;
      return b;
    };
    c.values = fill();
    for (size_t i = 0; i < SlotNames(spec.optimizer()).size(); ++i) c.slots.push_back(fill());
    c.manifest.job_id = 7;
    c.manifest.spec = spec;
    c.manifest.synchronous = spec.strategy() != v1::PARAMETER_SERVER;
    c.manifest.step = step;
    c.manifest.steps_per_epoch = kStepsPerEpoch;
    c.manifest.total_steps = kStepsPerEpoch * spec.epochs();
    c.manifest.train_examples = 80;
    const uint64_t half = static_cast<uint64_t>(c.graph->space_size() / 32 * 16);
    c.manifest.partitions = {{0, half, static_cast<uint64_t>(step), {}},
                             {half, static_cast<uint64_t>(c.graph->space_size()), static_cast<uint64_t>(step), {}}};
    if (!c.manifest.synchronous) {
      c.manifest.replica_step = {step, step + 2};
      c.manifest.partitions[0].version = 20;
      c.manifest.partitions[0].sequences = {static_cast<uint64_t>(step), static_cast<uint64_t>(step + 3)};
      c.manifest.partitions[1].version = 22;
      c.manifest.partitions[1].sequences = {static_cast<uint64_t>(step + 1), static_cast<uint64_t>(step + 2)};
    }
    return c;
  }

  std::string Write(const CheckpointContents& contents, int64_t time = 1000) {
    const absl::StatusOr<std::string> path = WriteCheckpoint(dir_, contents, time);
    EXPECT_TRUE(path.ok()) << path.status();
    return path.ok() ? *path : "";
  }

  static std::string Load(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static void Store(const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(dir_))
      names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }

  std::string dir_;
};

}  // namespace cairn
