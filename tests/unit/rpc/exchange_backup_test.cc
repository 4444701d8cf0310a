// Goal: over real streams, a backup gets the image and every update, is reported, takes the primary's place with the
// same bits, and fences it; what a primary may not acknowledge alone waits; the bytes that all streams hold are
// bounded.
#include <algorithm>
#include <cstring>

#include "absl/time/clock.h"
#include "tests/unit/rpc/exchange_fixture.h"

namespace cairn {
namespace {

constexpr uint64_t kJob = 4;

v1::JobSpec Spec(v1::Durability durability) {
  v1::JobSpec spec = DenseJob(64, 64, 1, /*asynchronous=*/false);
  spec.mutable_optimizer()->mutable_adam();
  spec.set_durability(durability);
  spec.set_backups(1);
  return spec;
}

v1::HostPartitions Primary(uint64_t generation, const v1::JobSpec& spec, const std::string& backup, bool in_sync) {
  v1::HostPartitions host = HostAll(kJob, generation, spec, 4096);
  for (v1::PartitionRange& range : *host.mutable_partitions()) {
    if (backup.empty()) continue;
    v1::BackupRoute* route = range.add_backups();
    route->set_node("ps-b");
    route->set_address(backup);
    route->set_in_sync(in_sync);
  }
  return host;
}
v1::HostPartitions Backup(uint64_t generation, const v1::JobSpec& spec) {
  v1::HostPartitions host = HostAll(kJob, generation, spec, 4096);
  for (v1::PartitionRange& range : *host.mutable_partitions()) range.set_backup(true);
  return host;
}

// Waits until the condition holds, at most half a minute.
template <typename Condition>
bool Eventually(Condition condition) {
  const absl::Time end = absl::Now() + absl::Seconds(30);
  while (absl::Now() < end) {
    if (condition()) return true;
    absl::SleepFor(absl::Milliseconds(5));
  }
  return false;
}

bool AllAt(const TestPs& ps, uint64_t version) {
  for (const v1::HeldPartitions& held : ps.host().Held()) {
    for (const v1::HeldPartition& p : held.partitions()) {
      if (p.version() != version) return false;
    }
  }
  return true;
}

class ExchangeBackupTest : public testing::TestWithParam<v1::Durability> {
 protected:
  absl::StatusOr<Frame> Push(PsConnection& connection, const v1::HostPartitions& host, uint64_t step) {
    absl::StatusOr<Frame> last;
    for (int p = 0; p < host.partitions_size(); ++p) {
      last = Call(connection, PushOf(host, p, 0, step, static_cast<float>(step + p)));
      if (!last.ok()) return last;
    }
    return last;
  }
};

INSTANTIATE_TEST_SUITE_P(Durabilities, ExchangeBackupTest, testing::Values(v1::REPLICATED, v1::LOGGED_AND_REPLICATED));

TEST_P(ExchangeBackupTest, ABackupFollowsAndTakesOver) {
  const v1::JobSpec spec = Spec(GetParam());
  auto store_a = NewMemoryKvStore(), store_b = NewMemoryKvStore();
  TestPs a(*store_a), b(*store_b);
  const v1::HostPartitions first = Primary(1, spec, b.address(), false);
  ASSERT_GT(first.partitions_size(), 2);
  ASSERT_TRUE(a.host().Host(first).ok());
  PsConnection to_a(a.address(), {}), to_b(b.address(), {});
  ASSERT_TRUE(Push(to_a, first, 1).ok()) << "the backup has not even heard of the job";
  ASSERT_TRUE(b.host().Host(Backup(1, spec)).ok());
  ASSERT_TRUE(Eventually([&] { return a.reports() >= first.partitions_size(); })) << "caught up and reported";
  ASSERT_TRUE(Eventually([&] { return AllAt(b, 1); }));
  ASSERT_TRUE(a.host().Host(Primary(2, spec, b.address(), true)).ok());
  ASSERT_TRUE(b.host().Host(Backup(2, spec)).ok());
  const v1::HostPartitions second = Primary(2, spec, "", false);
  for (uint64_t step = 2; step <= 6; ++step) {
    const auto pushed = Push(to_a, second, step);
    ASSERT_TRUE(pushed.ok()) << pushed.status();
  }
  ASSERT_TRUE(Eventually([&] { return AllAt(b, 6); }));
  EXPECT_TRUE(b.host().Held()[0].partitions(0).backup());
  std::vector<Frame> before;
  for (int p = 0; p < second.partitions_size(); ++p) {
    auto pulled = Call(to_a, PullOf(kJob, p));
    ASSERT_TRUE(pulled.ok()) << pulled.status();
    before.push_back(*std::move(pulled));
  }
  EXPECT_TRUE(absl::IsNotFound(Call(to_b, PullOf(kJob, 0)).status())) << "a backup serves nobody";

  ASSERT_TRUE(b.host().Host(Primary(3, spec, "", false)).ok());  // promoted; the old primary does not know
  for (int p = 0; p < second.partitions_size(); ++p) {
    auto pulled = Call(to_b, PullOf(kJob, p));
    ASSERT_TRUE(pulled.ok()) << pulled.status();
    EXPECT_EQ(pulled->version, 6u);
    ASSERT_EQ(pulled->payload.size(), before[p].payload.size());
    EXPECT_EQ(std::memcmp(pulled->payload.data(), before[p].payload.data(), pulled->payload.size()), 0);
  }
  absl::StatusOr<Frame> fenced;
  absl::Notification answered;
  to_a.Send(PushOf(second, 0, 0, 7, 1.0f), [&](absl::StatusOr<Frame> answer) {
    fenced = std::move(answer);
    answered.Notify();
  });
  const v1::HostPartitions third = Primary(3, spec, "", false);
  ASSERT_TRUE(Push(to_b, third, 7).ok());
  EXPECT_FALSE(answered.HasBeenNotified()) << "nothing is acknowledged by the old primary";
  ASSERT_TRUE(a.host().Host(Backup(3, spec)).ok());
  ASSERT_TRUE(answered.WaitForNotificationWithTimeout(absl::Seconds(30)));
  EXPECT_FALSE(fenced.ok());
}

TEST_P(ExchangeBackupTest, ADeadBackupInSyncIsWaitedForUntilTheCoordinatorSaysOtherwise) {
  const v1::JobSpec spec = Spec(GetParam());
  auto store_a = NewMemoryKvStore(), store_b = NewMemoryKvStore();
  TestPs a(*store_a);
  auto b = std::make_unique<TestPs>(*store_b);
  ASSERT_TRUE(b->host().Host(Backup(1, spec)).ok());
  ASSERT_TRUE(a.host().Host(Primary(1, spec, b->address(), true)).ok());
  PsConnection to_a(a.address(), {});
  const v1::HostPartitions host = Primary(1, spec, "", false);
  ASSERT_TRUE(Push(to_a, host, 1).ok());
  b.reset();
  absl::Notification answered;
  absl::StatusOr<Frame> answer;
  to_a.Send(PushOf(host, 0, 0, 2, 1.0f), [&](absl::StatusOr<Frame> got) {
    answer = std::move(got);
    answered.Notify();
  });
  EXPECT_TRUE(Call(to_a, PullOf(kJob, 0)).ok());
  EXPECT_FALSE(answered.HasBeenNotified());
  ASSERT_TRUE(a.host().Host(Primary(2, spec, "", false)).ok());
  ASSERT_TRUE(answered.WaitForNotificationWithTimeout(absl::Seconds(30)));
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->version, 2u);
}

TEST(ExchangeBoundTest, WhatAllStreamsHoldIsBounded) {
  auto store = NewMemoryKvStore();
  TestPs ps(*store, "", "127.0.0.1:0", /*received_bytes_max=*/size_t{1} << 20);
  const v1::JobSpec spec = DenseJob(1024, 1024, 1, /*asynchronous=*/true);
  const v1::HostPartitions host = HostAll(1, 1, spec, int64_t{4} << 20);
  ASSERT_TRUE(ps.host().Host(host).ok());
  PsConnection connection(ps.address(), {});
  constexpr int kLarge = 3;  // 2 MiB, half of the first 4 MiB
  const absl::StatusOr<Frame> refused = Call(connection, PushOf(host, kLarge, 0, 1, 1.0f));
  EXPECT_TRUE(absl::IsResourceExhausted(refused.status())) << refused.status();
  EXPECT_TRUE(Call(connection, PullOf(1, kLarge)).ok()) << "the stream goes on";
}

}  // namespace
}  // namespace cairn
