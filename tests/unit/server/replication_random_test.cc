// Goal: a primary and two backups over streams that break, with crashes, restarts, late assignments and false
// suspicion: no acknowledged update is ever lost, none is applied twice, copies at one version have the same bits, and
// once faults stop everything catches up. The naive model: the sum of each replica's updates.
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/unit/server/replication_world.h"

namespace cairn::replication_test {

std::string World::Describe() const {
  std::string out = absl::StrCat("generation ", generation_, ", primary ", primary_, ", dead ", dead_.size(),
                                 ", returned ", returned_.size(), ", streams ", streams_.size(), ", acknowledged");
  for (uint64_t a : acked_) absl::StrAppend(&out, " ", a);
  absl::StrAppend(&out, ", last error ", last_error_, "\n");
  for (int n = 0; n < kNodes; ++n) {
    const PartitionCore& core = *nodes_[n].core;
    absl::StrAppend(&out, n, in_sync_.contains(n) ? " in sync" : "", core.config().backup ? " backup" : " primary",
                    nodes_[n].assigned ? "" : " unassigned", core.fenced() ? " fenced" : "", ", generation ",
                    core.generation().value, ", version ", core.version(), ", waiting ", core.waiting(), ", commands ",
                    nodes_[n].commands.size(), ", images ", nodes_[n].images.size(), "\n");
    for (const BackupLink& l : core.links()) {
      absl::StrAppend(&out, "  ", l.node(), " stage ", static_cast<int>(l.stage()), " acked ", l.acked(),
                      l.required() ? " required" : "", l.reported() ? " reported" : "",
                      l.wants_image(now_) ? " wants an image" : "", "\n");
    }
  }
  return out;
}

void World::Check() {
  const PartitionState& p = nodes_[primary_].core->state();
  for (uint32_t r = 0; r < config_.replicas; ++r) ASSERT_GE(p.sequences[r], acked_[r]) << "lost, replica " << r;
  CheckSums(p);
  for (int n = 0; n < kNodes; ++n) {
    const PartitionState& s = nodes_[n].core->state();
    CheckSums(s);
    if (n == primary_ || s.version != p.version) continue;
    EXPECT_TRUE(SameBits(Dense(s).values(), Dense(p).values()));
    EXPECT_TRUE(SameBits(Dense(s).slots()[0], Dense(p).slots()[0]));
    EXPECT_EQ(s.sequences, p.sequences);
  }
}

void World::CheckSums(const PartitionState& s) {
  Buffer expected = Buffer::Allocate(Dense(s).values().size());
  Dense(config_).initialize(expected.mutable_floats());
  double sum = 0;
  uint64_t updates = 0;
  for (uint32_t r = 0; r < config_.replicas; ++r) {
    for (uint64_t q = 1; q <= s.sequences[r]; ++q) sum += GradientOf(r, q);
    updates += s.sequences[r];
  }
  if (config_.mode == UpdateMode::kSynchronous) {
    sum /= config_.replicas;
    updates /= config_.replicas;
  }
  EXPECT_EQ(s.version, updates);
  EXPECT_EQ(Dense(s).values().floats()[0], static_cast<float>(expected.floats()[0] - sum));
}

namespace {

void RunMany(UpdateMode mode, v1::Durability durability) {
  const uint32_t seed0 = TestSeed();
  for (uint32_t round = 0; round < 150; ++round) {
    SCOPED_TRACE(absl::StrCat("seed ", seed0 + round));
    World world(seed0 + round, mode, durability);
    world.Faulty(3000);
    if (testing::Test::HasFatalFailure()) return;
    world.Quiet();
    if (testing::Test::HasFailure()) return;
  }
}

TEST(ReplicationRandomTest, SynchronousReplicated) { RunMany(UpdateMode::kSynchronous, v1::REPLICATED); }
TEST(ReplicationRandomTest, SynchronousLoggedAndReplicated) {
  RunMany(UpdateMode::kSynchronous, v1::LOGGED_AND_REPLICATED);
}
TEST(ReplicationRandomTest, AsynchronousReplicated) { RunMany(UpdateMode::kAsynchronous, v1::REPLICATED); }
TEST(ReplicationRandomTest, AsynchronousLoggedAndReplicated) {
  RunMany(UpdateMode::kAsynchronous, v1::LOGGED_AND_REPLICATED);
}

}  // namespace
}  // namespace cairn::replication_test
