// A primary and a backup that are connected by hand, for the tests of replication.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "server/core/partition_core.h"
#include "server/storage/persistence.h"
#include "tests/unit/server/server_test_util.h"

namespace cairn {

inline const absl::Time kNow = absl::FromUnixSeconds(1'000'000);

inline PartitionConfig Config(v1::Durability durability, bool backup = false) {
  PartitionConfig c = TestConfig(UpdateMode::kSynchronous, 1);
  v1::Optimizer adam;
  adam.mutable_adam();
  Dense(c).optimizer = OptimizerRule::From(adam);
  c.durability = durability;
  c.backup = backup;
  return c;
}

inline AssignEvent PrimaryOf(uint64_t generation, bool in_sync) {
  AssignEvent e{Generation(generation), false, {}};
  v1::BackupRoute& route = e.backups.emplace_back();
  route.set_node("ps-b");
  route.set_address("b:1");
  route.set_in_sync(in_sync);
  return e;
}

struct Copy {
  Copy(const PartitionConfig& config, AssignEvent role)
      : store(NewMemoryKvStore()), persistence(*store), core(config, PartitionState::Initial(config)) {
    Run(std::move(role));
  }
  PartitionEffects Run(PartitionEvent event, absl::Time now = kNow) {
    auto effects = RunEvent(core, persistence, std::move(event), now);
    EXPECT_TRUE(effects.ok()) << effects.status();
    return *std::move(effects);
  }
  // Restarts the process.
  void Restart(const PartitionConfig& config, PartitionState state) {
    std::destroy_at(&core);
    std::construct_at(&core, config, std::move(state));
  }
  std::unique_ptr<KvStore> store;
  Persistence persistence;
  PartitionCore core;
};

// A primary and a backup that are connected by hand.
class PairTest : public testing::TestWithParam<v1::Durability> {
 protected:
  static constexpr uint64_t kStream = 7;

  // Gives the backup what the primary sent. Returns its answers.
  std::vector<Frame> Pass(const PartitionEffects& e) {
    std::vector<Frame> answers;
    for (const PeerSend& send : e.sends) {
      for (Frame f : send.frames) {
        f.payload = Buffer::CopyOf(f.payload.data(), f.payload.size());
        for (PartitionReply& r : backup_.Run(FrameEvent{kStream, std::move(f)}).replies) answers.push_back(r.frame);
      }
    }
    return answers;
  }
  PartitionEffects Answer(const std::vector<Frame>& answers, uint64_t epoch = 1, absl::Time now = kNow) {
    PartitionEffects all;
    for (const Frame& f : answers) {
      PartitionEffects e = primary_.Run(PeerFrameEvent{"b:1", epoch, f}, now);
      for (auto& r : e.replies) all.replies.push_back(std::move(r));
      for (auto& r : e.reports) all.reports.push_back(std::move(r));
      for (auto& s : e.sends) all.sends.push_back(std::move(s));
      if (e.wake_at) all.wake_at = e.wake_at;
    }
    return all;
  }
  PartitionEffects Push(uint64_t sequence) {
    Frame f = PushFrame(primary_.core.config(), 0, 1, sequence, static_cast<float>(sequence));
    f.generation = primary_.core.generation();
    return primary_.Run(FrameEvent{1, std::move(f)});
  }
  void Sync() {
    primary_.Run(LinkUpEvent{"b:1", 1});
    ASSERT_TRUE(primary_.core.image_to_send(kNow));
    Answer(Pass(primary_.Run(SendImageEvent{})));
    ASSERT_EQ(primary_.core.links()[0].stage(), BackupLink::Stage::kFollowing);
  }

  Copy primary_{Config(GetParam()), PrimaryOf(5, false)};
  Copy backup_{Config(GetParam(), true), AssignEvent{Generation(5), true, {}}};
};

}  // namespace cairn
