// Goal: figures of training belong to updates: they are counted once, whoever pushes them and how often; they are the
// same at the backup, after a restart and in an image; nothing is reported before it is settled; what is kept is
// bounded; invalid figures are refused.
#include <cmath>
#include <limits>

#include "common/base/limits.h"
#include "common/model/epoch_figures.h"
#include "common/tensor/limits.h"
#include "tests/unit/server/replication_test_util.h"

namespace cairn {
namespace {

using testing::HasSubstr;

constexpr uint32_t kReplicas = 3;

PartitionConfig First(UpdateMode mode = UpdateMode::kSynchronous, bool backup = false) {
  PartitionConfig c = TestConfig(mode, kReplicas);
  c.partition = PartitionId(0);
  c.metrics = 1;
  c.durability = v1::LOGGED_AND_REPLICATED;
  c.backup = backup;
  return c;
}

v1::EpochFigures Figures(int epoch, uint64_t examples, double loss, uint64_t steps = 1) {
  v1::EpochFigures figures;
  figures.set_epoch(epoch);
  figures.mutable_train()->set_examples(examples);
  figures.mutable_train()->set_loss(loss);
  figures.mutable_train()->add_metrics(0.25);
  figures.set_replica_steps(steps);
  return figures;
}

Frame Push(const PartitionConfig& c, uint32_t first, uint32_t count, uint64_t sequence,
           const v1::EpochFigures& figures) {
  Frame f = PushFrame(c, first, count, sequence, 1.0f);
  f.figures = figures.SerializeAsString();
  return f;
}

AssignEvent Alone(uint64_t generation) { return {Generation(generation), false, {}}; }

TEST(Figures, AreCountedOnceWithTheirUpdate) {
  const PartitionConfig config = First();
  Copy copy(config, Alone(5));
  copy.Run(FrameEvent{1, Push(config, 0, 1, 1, Figures(0, 2, 1.5))});
  copy.Run(FrameEvent{2, Push(config, 0, 1, 1, Figures(0, 9, 9))});  // again, by another worker
  copy.Run(FrameEvent{1, Push(config, 2, 1, 1, Figures(0, 0, 0))});  // without examples: a step all the same
  EXPECT_TRUE(copy.core.state().figures.empty()) << "the step is open";
  copy.Run(FrameEvent{2, Push(config, 0, 2, 1, Figures(0, 5, 4, 2))});  // in place of what it contains
  copy.Run(FrameEvent{2, Push(config, 1, 1, 1, Figures(0, 7, 7))});     // too late
  ASSERT_EQ(copy.core.version(), 1u);
  ASSERT_EQ(copy.core.state().figures.size(), 1);
  const v1::EpochFigures& sums = copy.core.state().figures[0];
  EXPECT_EQ(sums.train().examples(), 5u);
  EXPECT_EQ(sums.train().loss(), 4);
  EXPECT_EQ(sums.train().metrics(0), 0.5);
  EXPECT_EQ(sums.replica_steps(), 3u);
  EXPECT_EQ(sums.staleness_count(), 0u);

  const auto recovered = copy.persistence.Recover(config);
  ASSERT_TRUE(recovered.ok()) << recovered.status();
  ASSERT_EQ(recovered->figures.size(), 1);
  EXPECT_EQ(recovered->figures[0].SerializeAsString(), sums.SerializeAsString());
  ASSERT_TRUE(copy.persistence.RollBack(config, 0).ok());
  EXPECT_TRUE(copy.persistence.Recover(config)->figures.empty()) << "version 0 has none";
}

TEST(Figures, OfAnAsynchronousPushSayHowStaleItWas) {
  const PartitionConfig config = First(UpdateMode::kAsynchronous);
  Copy copy(config, Alone(5));
  for (uint32_t replica : {0, 1, 2}) {
    Frame push = Push(config, replica, 1, 1, Figures(0, 2, 1));
    push.version = 0;  // all of the first values
    copy.Run(FrameEvent{1, push});
    copy.Run(FrameEvent{1, push});
  }
  const v1::EpochFigures& sums = copy.core.state().figures[0];
  EXPECT_EQ(sums.replica_steps(), 3u);
  EXPECT_EQ(sums.staleness_sum(), 0u + 1u + 2u);
  EXPECT_EQ(sums.staleness_count(), 3u);
  EXPECT_EQ(sums.staleness_max(), 2u);
}

TEST(Figures, GoToTheBackupWithTheImageAndWithUpdates) {
  Copy primary(First(), PrimaryOf(5, false)),
      backup(First(UpdateMode::kSynchronous, true), AssignEvent{Generation(5), true, {}});
  absl::Time now = kNow;
  const auto pass = [&](const PartitionEffects& e) {
    std::optional<v1::FiguresReport> told;
    for (const PeerSend& send : e.sends) {
      for (const Frame& f : send.frames) {
        for (const PartitionReply& r : backup.Run(FrameEvent{7, f}).replies) {
          if (auto figures = primary.Run(PeerFrameEvent{"b:1", 1, r.frame}, now).figures) told = figures;
        }
      }
    }
    return told;
  };
  primary.Run(FrameEvent{1, Push(First(), 0, 3, 1, Figures(0, 6, 3, 3))});
  primary.Run(LinkUpEvent{"b:1", 1});
  pass(primary.Run(SendImageEvent{}));
  EXPECT_EQ(backup.core.state().figures[0].train().examples(), 6u);
  primary.Run(TickEvent{}, now += absl::Minutes(1));
  now += absl::Minutes(1);
  const PartitionEffects pushed = primary.Run(FrameEvent{1, Push(First(), 0, 3, 2, Figures(1, 4, 2, 3))}, now);
  EXPECT_FALSE(pushed.figures) << "the backup has not confirmed it";
  EXPECT_EQ(primary.core.state().figures.size(), 1);
  const auto told = pass(pushed);
  ASSERT_TRUE(told);
  EXPECT_EQ(told->version(), 2u);
  EXPECT_TRUE(told->has_answers());
  EXPECT_EQ(told->answers(), 0u);
  EXPECT_EQ(told->epochs_size(), 2);
  ASSERT_EQ(backup.core.state().figures.size(), 2);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(backup.core.state().figures[i].SerializeAsString(), primary.core.state().figures[i].SerializeAsString());
  }
  const PartitionEffects promoted = backup.Run(Alone(6));
  ASSERT_TRUE(promoted.figures) << "a new primary tells of them at once";
  EXPECT_EQ(promoted.figures->generation(), 6u);
  EXPECT_EQ(promoted.figures->epochs_size(), 2);
}

TEST(Figures, AreToldNowAndThenAndWhenTheyAreAskedFor) {
  const PartitionConfig config = First(UpdateMode::kAsynchronous);
  Copy copy(config, Alone(5));
  absl::Time now = kNow;
  const auto push = [&](uint64_t sequence, int epoch) {
    return copy.Run(FrameEvent{1, Push(config, 0, 1, sequence, Figures(epoch, 2, 1))}, now);
  };
  EXPECT_FALSE(push(1, 0).figures) << "it was told of version 0 a moment ago";
  const PartitionEffects second = push(2, 0);
  EXPECT_FALSE(second.figures);
  ASSERT_TRUE(second.wake_at);
  now = *second.wake_at;
  const auto told = copy.Run(TickEvent{}, now).figures;
  ASSERT_TRUE(told);
  EXPECT_EQ(told->version(), 2u);
  EXPECT_EQ(told->epochs(0).train().examples(), 4u);
  EXPECT_FALSE(copy.Run(TickEvent{}, now + absl::Minutes(1)).figures) << "nothing is new";
  push(3, 1);
  const auto asked = copy.Run(FiguresStoredEvent{1, 77}, now).figures;
  ASSERT_TRUE(asked);
  EXPECT_EQ(asked->answers(), 77u);
  ASSERT_EQ(asked->epochs_size(), 1) << "what is stored is dropped";
  EXPECT_EQ(asked->epochs(0).epoch(), 1);
  copy.Run(AssignEvent{Generation(5), false, {}, true}, now);
  EXPECT_FALSE(copy.Run(FiguresStoredEvent{}, now).figures) << "the job trains no more";
}

TEST(Figures, AreKeptOfSoManyEpochsWhileTheCoordinatorIsAway) {
  PartitionConfig config = First(UpdateMode::kAsynchronous);
  config.metrics = kMetricSumsMax;
  v1::EpochFigures wide = Figures(0, (uint64_t{1} << 48) - 1, -1.0 / 3, 1);
  wide.mutable_train()->mutable_metrics()->Resize(kMetricSumsMax, 0.1);
  wide.mutable_train()->set_loss_rest(-0x1p-46);
  wide.mutable_train()->mutable_metrics_rest()->Resize(kMetricSumsMax, 0x1p-46);
  EXPECT_LE(wide.ByteSizeLong(), kFrameSumsBytesMax);
  Copy copy(config, Alone(5));
  const int most = OpenEpochsMax(config.metrics);
  for (int epoch = 0; epoch < most; ++epoch) {
    wide.set_epoch(epoch);
    copy.Run(FrameEvent{1, Push(config, 0, 1, static_cast<uint64_t>(epoch) + 1, wide)});
  }
  ASSERT_EQ(copy.core.state().figures.size(), most);
  EXPECT_LE(MakeImage(config, copy.core.state(), {.previous = true}).header.ByteSizeLong(), kImageHeaderBytesMax);
  wide.set_epoch(most);
  const Frame next = Push(config, 0, 1, static_cast<uint64_t>(most) + 1, wide);
  const PartitionEffects refused = copy.Run(FrameEvent{1, next});
  ASSERT_EQ(refused.replies.size(), 1u);
  EXPECT_EQ(refused.replies[0].frame.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(refused.replies[0].frame.status.message()), HasSubstr("has not stored those of epoch 0"));
  EXPECT_EQ(copy.core.version(), static_cast<uint64_t>(most));
  copy.Run(FiguresStoredEvent{1});
  copy.Run(FrameEvent{1, next});
  EXPECT_EQ(copy.core.version(), static_cast<uint64_t>(most) + 1);
  // A backup learns only of updates: of an epoch that the primary has accepted, those that are too old are stored.
  PartitionState state = PartitionState::Initial(config);
  for (int epoch : {0, most, 2 * most - 1}) {
    v1::LogEntry entry;
    entry.set_version(state.version + 1);
    entry.set_replica_count(1);
    entry.set_sequence(state.version + 1);
    wide.set_epoch(epoch);
    *entry.mutable_figures() = wide;
    ApplyEntry(config, entry, {}, state);
  }
  ASSERT_EQ(state.figures.size(), 2);
  EXPECT_EQ(state.figures[0].epoch(), most);
}

TEST(Figures, NonsenseIsRefused) {
  const PartitionConfig config = First();
  Copy copy(config, Alone(5));
  const auto refused = [&](Frame frame, const char* part) {
    const PartitionEffects e = copy.Run(FrameEvent{1, std::move(frame)});
    ASSERT_EQ(e.replies.size(), 1u) << part;
    EXPECT_EQ(e.replies[0].frame.status.code(), absl::StatusCode::kInvalidArgument) << part;
    EXPECT_THAT(std::string(e.replies[0].frame.status.message()), HasSubstr(part));
  };
  Frame frame = Push(config, 0, 1, 1, Figures(0, 2, 1));
  frame.figures = "nonsense";
  refused(frame, "not a valid EpochFigures message");
  refused(Push(config, 0, 1, 1, Figures(-1, 2, 1)), "epoch -1");
  refused(Push(config, 0, 1, 1, Figures(0, UINT64_MAX, 1)), "examples");
  refused(Push(config, 0, 1, 1, Figures(0, 1, 1, UINT64_MAX)), "steps of replicas");
  v1::EpochFigures more = Figures(0, 2, 1);
  more.mutable_train()->add_metrics(1);
  refused(Push(config, 0, 1, 1, more), "2 metrics, the job has 1");
  copy.Run(FrameEvent{1, Push(config, 0, 1, 1, Figures(0, 2, std::numeric_limits<double>::quiet_NaN()))});
  refused(Push(config, 1, 1, 1, Figures(1, 2, 1)), "began with");
  PartitionConfig other = config;
  other.partition = PartitionId(1);
  Copy second(other, Alone(5));
  const PartitionEffects e = second.Run(FrameEvent{1, Push(other, 0, 3, 1, Figures(0, 2, 1, 3))});
  EXPECT_THAT(std::string(e.replies.at(0).frame.status.message()), HasSubstr("push them to the job's first partition"));
}

}  // namespace
}  // namespace cairn
