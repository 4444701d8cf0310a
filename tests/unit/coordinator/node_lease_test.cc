// Goal: a node counts as alive exactly as long as its lease says: with a session while messages arrive, without one
// until it is given up.
#include "coordinator/core/node_lease.h"

#include <gtest/gtest.h>

#include "coordinator/core/cluster_node.h"

namespace cairn {
namespace {

const absl::Time kStart = absl::FromUnixSeconds(1000);
constexpr absl::Duration kSilenceMax = absl::Seconds(3);

TEST(NodeLeaseTest, ANodeThatNobodyKnowsIsDead) {
  const NodeLease lease;
  EXPECT_FALSE(lease.alive() || lease.connected() || lease.expected());
  EXPECT_FALSE(lease.Lapsed(absl::InfiniteFuture(), kSilenceMax)) << "it is not given up twice";
}

TEST(NodeLeaseTest, WithASessionItLivesWhileItIsHeard) {
  NodeLease lease;
  lease.Open(SessionToken(4), kStart);
  EXPECT_TRUE(lease.alive() && lease.connected());
  EXPECT_EQ(lease.joined(), kStart);
  lease.Hear(kStart + absl::Seconds(2));
  EXPECT_FALSE(lease.Lapsed(kStart + absl::Seconds(4), kSilenceMax));
  EXPECT_TRUE(lease.Lapsed(kStart + absl::Seconds(5), kSilenceMax));
  EXPECT_EQ(lease.End(), SessionToken(4)) << "to be closed";
  EXPECT_FALSE(lease.alive() || lease.connected());
  EXPECT_FALSE(lease.Lapsed(kStart + absl::Hours(1), kSilenceMax));
}

TEST(NodeLeaseTest, WithoutASessionItLivesUntilItIsGivenUp) {
  NodeLease lease;
  lease.Open(SessionToken(4), kStart);
  lease.Break(kStart + absl::Seconds(1));
  EXPECT_TRUE(lease.alive());
  EXPECT_FALSE(lease.connected());
  EXPECT_FALSE(lease.Lapsed(kStart + absl::Milliseconds(999), kSilenceMax));
  EXPECT_TRUE(lease.Lapsed(kStart + absl::Seconds(1), kSilenceMax));
  EXPECT_EQ(lease.End(), SessionToken{}) << "none is open";
}

TEST(NodeLeaseTest, AnotherSessionOfALivingNodeIsNoNewJoin) {
  NodeLease lease;
  lease.Open(SessionToken(4), kStart);
  lease.Break(kStart + absl::Seconds(1));
  lease.Open(SessionToken(5), kStart + absl::Milliseconds(500));
  EXPECT_EQ(lease.joined(), kStart);
  EXPECT_FALSE(lease.Lapsed(kStart + absl::Seconds(2), kSilenceMax)) << "the old time is void";
  lease.End();
  lease.Open(SessionToken(6), kStart + absl::Seconds(9));
  EXPECT_EQ(lease.joined(), kStart + absl::Seconds(9));
}

TEST(NodeLeaseTest, ANodeOfTheStoredStateIsExpectedUntilItComesOrIsGivenUp) {
  NodeLease lease(kStart - absl::Hours(2), kStart - absl::Hours(1));
  EXPECT_FALSE(lease.alive()) << "it was dead when the state was stored";
  lease.Expect(kStart, kStart + absl::Seconds(5));
  EXPECT_TRUE(lease.alive() && lease.expected());
  EXPECT_EQ(lease.joined(), kStart - absl::Hours(2));
  EXPECT_EQ(lease.last_heard(), kStart);
  EXPECT_FALSE(lease.Lapsed(kStart + absl::Seconds(4), kSilenceMax));
  NodeLease back = lease;
  back.Open(SessionToken(7), kStart + absl::Seconds(2));
  EXPECT_FALSE(back.expected());
  EXPECT_EQ(back.joined(), kStart - absl::Hours(2));
  EXPECT_TRUE(lease.Lapsed(kStart + absl::Seconds(5), kSilenceMax));
  lease.End();
  EXPECT_FALSE(lease.expected());
}

TEST(ClusterNodeTest, AMachineIsAsTheNodeSaysAndAsItWasStored) {
  v1::Hello hello;
  hello.set_host("rack-1");
  hello.set_device("a processor");
  hello.set_fingerprint("avx512");
  hello.add_compute_dtypes(v1::BFLOAT16);
  ClusterNode node;
  node.role = v1::WORKER;
  node.machine = NodeMachine::Of(hello);
  EXPECT_EQ(node.machine.device_kind, v1::CPU) << "of a node that names none";
  EXPECT_EQ(node.machine.fingerprint, "avx512");
  const NodeMachine stored = NodeMachine::Of(StatusOfNode(node));
  EXPECT_EQ(stored.host, "rack-1");
  EXPECT_EQ(stored.device, "a processor");
  EXPECT_EQ(stored.compute_dtypes, node.machine.compute_dtypes);
  EXPECT_EQ(stored.fingerprint, "") << "it is not stored";
}

}  // namespace
}  // namespace cairn
