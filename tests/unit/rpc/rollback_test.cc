// Goal: a ps that is told to go back to a version keeps what is already at that version, even if its disk does not have
// it (SNAPSHOT), and takes the rest from its disk.
#include "tests/unit/rpc/exchange_fixture.h"

namespace cairn {
namespace {

// Sends a request that is answered at once.
Frame Ask(TestPs& ps, Frame request) {
  PsConnection connection(ps.address(), PsConnectionOptions{});
  absl::StatusOr<Frame> answer = Call(connection, std::move(request));
  EXPECT_TRUE(answer.ok()) << answer.status();
  return answer.value_or(Frame());
}

TEST(RollbackTest, WhatIsAtTheVersionInMemoryStays) {
  const auto store = NewMemoryKvStore();
  TestPs ps(*store);
  v1::JobSpec spec = DenseJob(8, 8, 1, false);
  spec.set_durability(v1::SNAPSHOT);
  v1::HostPartitions host = HostAll(1, 1, spec, 256);
  ASSERT_EQ(host.partitions_size(), 2);
  ASSERT_TRUE(ps.host().Host(host).ok());
  const Frame initial = Ask(ps, PullOf(1, 0));
  for (int partition : {0, 1}) {
    for (uint64_t sequence : {1, 2}) EXPECT_EQ(Ask(ps, PushOf(host, partition, 0, sequence, 1)).version, sequence);
  }
  const Frame before = Ask(ps, PullOf(1, 0));

  host.set_generation(2);
  host.set_rollback_to(2);
  const absl::StatusOr<v1::PartitionsReady> same = ps.host().Host(host);
  ASSERT_TRUE(same.ok()) << same.status();
  for (const v1::HeldPartition& held : same->partitions()) EXPECT_EQ(held.version(), 2);
  const Frame after = Ask(ps, PullOf(1, 0));
  EXPECT_TRUE(after.payload.size() == before.payload.size() &&
              std::memcmp(after.payload.data(), before.payload.data(), before.payload.size()) == 0);
  EXPECT_EQ(Ask(ps, PushOf(host, 1, 0, 3, 1)).version, 3) << "it serves in the new generation";

  host.set_generation(3);
  host.set_rollback_to(0);
  const absl::StatusOr<v1::PartitionsReady> begun = ps.host().Host(host);
  ASSERT_TRUE(begun.ok()) << begun.status();
  for (const v1::HeldPartition& held : begun->partitions()) EXPECT_EQ(held.version(), 0);
  const Frame anew = Ask(ps, PullOf(1, 0));
  EXPECT_EQ(std::memcmp(anew.payload.data(), initial.payload.data(), initial.payload.size()), 0);
}

}  // namespace
}  // namespace cairn
