// A PartitionCore whose store accepts everything, and the frames that a client sends to it.
#pragma once

#include <gmock/gmock.h>

#include <memory>
#include <string>
#include <utility>

#include "server/core/partition_core.h"
#include "tests/unit/server/server_test_util.h"

namespace cairn {

class PartitionCoreTest : public testing::Test {
 protected:
  static constexpr uint64_t kClient = 11;
  const absl::Time kNow = absl::FromUnixSeconds(1'000'000);

  void Start(UpdateMode mode, uint32_t replicas) {
    config_ = TestConfig(mode, replicas);
    Start();
  }
  void Start() { core_ = std::make_unique<PartitionCore>(config_, PartitionState::Initial(config_)); }
  PartitionEffects Send(Frame frame, uint64_t client = kClient) {
    return core_->Step(FrameEvent{client, std::move(frame)}, kNow);
  }
  // Sends a frame; everything that is under way reaches the store at once.
  PartitionEffects SendAndPersist(Frame frame, uint64_t client = kClient) {
    PartitionEffects effects = Send(std::move(frame), client);
    while (!effects.persists.empty()) {
      const uint64_t version = effects.persists.back().entry.version();
      effects.persists.clear();
      PartitionEffects more = core_->Step(PersistedEvent{version}, kNow);
      for (PartitionReply& r : more.replies) effects.replies.push_back(std::move(r));
    }
    return effects;
  }
  Frame Push(uint32_t first, uint32_t count, uint64_t sequence, float gradient) {
    return PushFrame(config_, first, count, sequence, gradient);
  }
  // Expects one reply, an error of this code.
  void ExpectError(const PartitionEffects& e, absl::StatusCode code, const std::string& part) {
    ASSERT_EQ(e.replies.size(), 1u);
    EXPECT_EQ(e.replies[0].frame.kind, v1::ExchangeFrame::ERROR);
    EXPECT_EQ(e.replies[0].frame.status.code(), code) << e.replies[0].frame.status;
    EXPECT_THAT(std::string(e.replies[0].frame.status.message()), testing::HasSubstr(part));
    EXPECT_TRUE(e.persists.empty());
  }
  float FirstValue() const { return Dense(core_->state()).values().floats()[0]; }

  PartitionConfig config_;
  std::unique_ptr<PartitionCore> core_;
};

}  // namespace cairn
