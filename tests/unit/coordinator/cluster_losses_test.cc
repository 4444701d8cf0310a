// Goal: recovery from disks. Nothing acknowledged is given up, no update that was never acknowledged is waited for, ps
// that are gone are not waited for as copies, and a job that can never go on says so.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/coordinator/copies.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;

void SetVersions(Cluster& c, const std::string& ps, uint64_t id, uint64_t version) {
  for (auto& [p, v] : c.node(ps).hosted.at(id).version) v = version;
}

// A ps names what it has applied when it opens its session again; the newest update may not have been on its disk, and
// was not acknowledged.
TEST(ClusterLosses, AnUpdateThatWasNamedAndNeverAcknowledgedIsNotMissed) {
  for (const bool synchronous : {true, false}) {
    for (const uint64_t unsettled : {uint64_t{1}, uint64_t{4}}) {
      v1::JobSpec spec = SpecWithCopies(8, 0, v1::LOGGED);
      if (!synchronous) spec.set_strategy(v1::PARAMETER_SERVER);
      Cluster c(1, 1);
      const uint64_t id = c.SubmitOk(spec);
      c.Train(8);
      SetVersions(c, "ps-0", id, 8 + unsettled);
      c.BreakSession(c.node("ps-0"));
      c.Connect(c.node("ps-0"));
      c.Settle();
      c.Kill(c.node("ps-0"));
      SetVersions(c, "ps-0", id, 8);
      c.Restart(c.node("ps-0"));
      // A synchronous partition is at most one update beyond what is acknowledged; otherwise each of the 4 replicas may
      // have one.
      if (synchronous && unsettled > 1) {
        EXPECT_EQ(c.State(id), v1::FAILED);
        EXPECT_THAT(c.Job(id).reason(), HasSubstr("its data directory is an old copy"));
        continue;
      }
      ASSERT_EQ(c.State(id), v1::RUNNING) << c.Job(id).reason();
      EXPECT_TRUE(c.RunToEnd(id));
      EXPECT_EQ(c.State(id), v1::SUCCEEDED) << c.Job(id).reason();
      EXPECT_EQ(c.TrueStep(id), 40);
    }
  }
}

TEST(ClusterLosses, AnOldCopyIsSeen) {
  for (const bool synchronous : {true, false}) {
    v1::JobSpec spec = SpecWithCopies(8, 0, v1::LOGGED);
    if (!synchronous) spec.set_strategy(v1::PARAMETER_SERVER);
    Cluster c(1, 1);
    const uint64_t id = c.SubmitOk(spec);
    c.Train(8);
    c.BreakSession(c.node("ps-0"));
    c.Connect(c.node("ps-0"));
    c.Settle();
    c.Kill(c.node("ps-0"));
    SetVersions(c, "ps-0", id, 3);
    c.Restart(c.node("ps-0"));
    EXPECT_EQ(c.State(id), v1::FAILED);
    EXPECT_THAT(c.Job(id).reason(), HasSubstr("its data directory is an old copy"));
  }
}

TEST(ClusterLosses, AfterAFallBackTheDeadAreNotAmongTheCopies) {
  Cluster c(2, 1);
  const uint64_t id = c.SubmitOk(SpecWithCopies(40, 1));
  c.Pass(absl::Milliseconds(300));
  c.Train(5);
  c.Kill(c.node("ps-0"));
  c.Kill(c.node("ps-1"));
  SetVersions(c, "ps-0", id, 3);
  c.Restart(c.node("ps-0"));
  c.Pass(absl::Seconds(8));
  ASSERT_TRUE(c.Logged("falls back from step 5 to 3"));
  for (const v1::JobStatus job = c.Job(id); const auto& p : job.partitions()) {
    EXPECT_EQ(p.primary(), "ps-0");
    EXPECT_EQ(p.backups_size(), 0) << p.backups(0).node() << " is dead";
  }
  c.AddPs("ps-2");
  c.Pass(absl::Seconds(10));
  EXPECT_EQ(InSync(c.Job(id)), 4);
  EXPECT_EQ(PrimariesOn(c.Job(id), "ps-2"), 2) << "it takes its share";
}

// Only the figures of the second epoch are missing when both ps are lost. The first one that comes back lacks some of
// its last steps, and reports so while the other one is away.
TEST(ClusterLosses, FiguresOfAPsThatIsBehindCloseNoEpoch) {
  Cluster c(2, 1);
  const uint64_t id = c.SubmitOk(SpecWithCopies(8, 0, v1::SNAPSHOT));
  c.Train(9);
  c.tells_figures = false;
  c.Train(1);
  ASSERT_EQ(c.Job(id).step(), 10);
  ASSERT_EQ(c.Job(id).epochs_size(), 1);
  for (const char* name : {"ps-0", "ps-1"}) {
    c.Kill(c.node(name));
    c.node(name).kept_versions = {8};
    for (auto& [p, version] : c.node(name).hosted.at(id).version) version = 8;
  }
  c.tells_figures = true;
  c.Pass(absl::Seconds(10));
  c.Restart(c.node(c.Job(id).partitions(0).primary()));
  c.Pass(absl::Seconds(10));
  EXPECT_EQ(c.Job(id).epochs_size(), 1);
  c.Restart(c.node(c.Job(id).partitions(0).primary() == "ps-0" ? "ps-1" : "ps-0"));
  c.Settle();
  ASSERT_TRUE(c.Logged("falls back from step 10 to 8"));
  EXPECT_TRUE(c.RunToEnd(id));
  ASSERT_EQ(c.Job(id).epochs_size(), 8);
  EXPECT_EQ(c.Job(id).epochs(1).train().examples(), 40u);
}

// The stored number of steps is older than what the ps have kept.
TEST(ClusterLosses, AfterALossOfEverythingAFallBackIsNoStepForward) {
  Cluster c(2, 1);
  const uint64_t id = c.SubmitOk(SpecWithCopies(40, 1));
  c.Pass(absl::Milliseconds(300));
  c.Train(4);
  for (const char* name : {"ps-0", "ps-1", "worker-0"}) c.Kill(c.node(name));
  c.RestartCoordinator();
  for (const char* name : {"ps-0", "ps-1"}) SetVersions(c, name, id, 3);
  for (const char* name : {"ps-0", "ps-1", "worker-0"}) c.Restart(c.node(name));
  c.Pass(absl::Seconds(1));
  EXPECT_TRUE(c.Logged("falls back to step 3: later updates were only in the memory of ps that died"));
}

// The generation that takes the job back does not reach one of the ps; the next generation does.
TEST(ClusterLosses, APsThatHasNotHeardOfAFallBackGoesBackLater) {
  Cluster c(2, 1);
  const uint64_t id = c.SubmitOk(SpecWithCopies(8, 0, v1::SNAPSHOT));
  c.Train(11);
  for (const char* name : {"ps-0", "ps-1"}) c.node(name).kept_versions = {9};
  c.Kill(c.node("ps-1"));
  SetVersions(c, "ps-1", id, 9);
  c.node("ps-0").breaks_at_rollback = true;
  c.Restart(c.node("ps-1"));
  ASSERT_TRUE(c.Logged("falls back from step 11 to 9"));
  for (const auto& [p, version] : c.node("ps-0").hosted.at(id).version) EXPECT_EQ(version, 11u);
  c.Pass(absl::Seconds(1));
  c.Connect(c.node("ps-0"));
  c.Settle();
  for (const auto& [p, version] : c.node("ps-0").hosted.at(id).version) EXPECT_EQ(version, 9u);
  EXPECT_TRUE(c.RunToEnd(id));
  EXPECT_EQ(c.State(id), v1::SUCCEEDED) << c.Job(id).reason();
}

// The coordinator ends between the two; the next one completes the fall back from its stored state.
TEST(ClusterLosses, AFallBackOutlastsTheCoordinator) {
  for (const bool declared_dead : {false, true}) {
    Cluster c(2, 1);
    const uint64_t id = c.SubmitOk(SpecWithCopies(8, 0, v1::SNAPSHOT));
    c.Train(11);
    for (const char* name : {"ps-0", "ps-1"}) c.node(name).kept_versions = {9};
    c.Kill(c.node("ps-1"));
    SetVersions(c, "ps-1", id, 9);
    c.node("ps-0").breaks_at_rollback = true;
    c.Restart(c.node("ps-1"));
    ASSERT_TRUE(c.Logged("falls back from step 11 to 9"));
    c.RestartCoordinator();
    c.Connect(c.node("ps-1"));
    c.Connect(c.node("worker-0"));
    c.Settle();
    if (declared_dead) c.Pass(absl::Seconds(10));  // then it is a new generation that says so
    c.Connect(c.node("ps-0"));
    c.Settle();
    for (const auto& [p, version] : c.node("ps-0").hosted.at(id).version) EXPECT_EQ(version, 9u);
    EXPECT_TRUE(c.RunToEnd(id));
    EXPECT_EQ(c.State(id), v1::SUCCEEDED) << c.Job(id).reason();
  }
}

// A restarted coordinator does not know at first who serves what; it does not repeat a fall back that was completed.
TEST(ClusterLosses, AFallBackThatIsOverIsNotCarriedOnByTheNextCoordinator) {
  Cluster c(2, 1);
  const uint64_t id = c.SubmitOk(SpecWithCopies(8, 1));
  c.Pass(absl::Milliseconds(300));
  c.Train(9);
  for (const char* name : {"ps-0", "ps-1"}) c.Kill(c.node(name));
  for (const char* name : {"ps-0", "ps-1"}) {
    SetVersions(c, name, id, 6);
    c.Restart(c.node(name));
  }
  ASSERT_TRUE(c.Logged("falls back from step 9 to 6"));
  ASSERT_TRUE(Within10s(c, [&] { return InSync(c.Job(id)) == 4; }));
  c.Train(14);
  ASSERT_EQ(c.TrueStep(id), 20);
  c.RestartCoordinator();
  c.Kill(c.node("ps-0"));
  c.ReconnectAll();
  c.Settle();
  ASSERT_TRUE(Within10s(c, [&] { return PrimariesOn(c.Job(id), "ps-1") == 4; }));
  c.Settle();
  EXPECT_EQ(c.TrueStep(id), 20) << "acknowledged updates are given up";
  EXPECT_TRUE(c.RunToEnd(id));
  EXPECT_EQ(c.State(id), v1::SUCCEEDED) << c.Job(id).reason();
}

TEST(ClusterLosses, AFormerCopyCanTakeTheJobOverFromAPsThatGivesUp) {
  Cluster c(2, 1);
  const uint64_t id = PromoteADeadPs(c, SpecWithCopies(40, 1));
  c.Connect(c.node("ps-0"));  // back, with its memory, before ps-1 was found dead
  c.Settle();
  ASSERT_EQ(PrimariesOn(c.Job(id), "ps-1"), 1);
  ASSERT_TRUE(c.Job(id).partitions(0).backups(0).former());
  v1::NodeMessage message;
  message.mutable_job_error()->set_job_id(id);
  message.mutable_job_error()->set_message("/data: no space left on device");
  c.node("ps-1").silent = false;
  c.node("ps-1").inbox.clear();
  c.Say(c.node("ps-1"), message);
  c.Settle();
  EXPECT_EQ(c.State(id), v1::RUNNING) << c.Job(id).reason();
  EXPECT_EQ(PrimariesOn(c.Job(id), "ps-0"), 1);
  c.Train(2);
  EXPECT_EQ(c.TrueStep(id), 5);
}

// A former copy whose disk was replaced, or is an old one, lacks what it acknowledged.
TEST(ClusterLosses, AFormerCopyWithoutItsDiskIsNoCopy) {
  for (const bool emptied : {true, false}) {
    Cluster c(2, 1);
    const uint64_t id = PromoteADeadPs(c, SpecWithCopies(40, 1, v1::LOGGED_AND_REPLICATED));
    c.Kill(c.node("ps-0"));
    if (emptied) c.node("ps-0").hosted.clear();
    if (!emptied) SetVersions(c, "ps-0", id, 0);
    c.Restart(c.node("ps-0"));
    c.Pass(absl::Seconds(10));
    EXPECT_EQ(PrimariesOn(c.Job(id), "ps-0"), 0);
    EXPECT_THAT(c.Job(id).reason(), HasSubstr("waits for ps \"ps-1\""));
    c.node("ps-1").silent = false;
    c.Kill(c.node("ps-1"));
    c.Restart(c.node("ps-1"));
    c.Pass(absl::Seconds(1));
    c.Train(2);
    EXPECT_EQ(c.TrueStep(id), 5) << c.Job(id).reason();
  }
}

// Its disk may be behind: the job waits for a ps that knows more, and meanwhile this one serves nothing, even if others
// begin a generation.
TEST(ClusterLosses, APsThatIsNotSettledServesNothing) {
  Cluster c(3, 1);
  const uint64_t id = c.SubmitOk(SpecWithCopies(40, 1));
  c.Pass(absl::Milliseconds(300));
  c.Train(5);
  for (const char* name : {"ps-0", "ps-1", "ps-2"}) c.Kill(c.node(name));
  SetVersions(c, "ps-0", id, 3);
  c.Restart(c.node("ps-2"));
  c.Pass(absl::Seconds(3));
  c.Restart(c.node("ps-0"));
  const uint64_t generation = c.Job(id).generation();
  c.Pass(absl::Milliseconds(2500));
  ASSERT_GT(c.Job(id).generation(), generation) << "what ps-2 has is taken";
  ASSERT_THAT(c.Job(id).reason(), HasSubstr("ps-1"));
  EXPECT_FALSE(c.node("ps-0").hosted.at(id).serving);
}

// The same process opens its session once more while its copies wait: its disk is empty, and that of the other ps has
// all updates.
TEST(ClusterLosses, APsThatIsNotSettledServesNothingWhenItConnectsAgain) {
  Cluster c(2, 1);
  const uint64_t id = c.SubmitOk(SpecWithCopies(8, 1));
  c.Pass(absl::Milliseconds(300));
  c.Train(5);
  c.Kill(c.node("ps-0"));
  c.Kill(c.node("ps-1"));
  c.node("ps-1").hosted.clear();
  c.Restart(c.node("ps-1"));
  c.Pass(absl::Seconds(1));
  c.BreakSession(c.node("ps-1"));
  c.Connect(c.node("ps-1"));
  c.Settle();
  EXPECT_FALSE(c.node("ps-1").hosted.contains(id)) << "it was told to serve what it does not have";
  ASSERT_EQ(c.State(id), v1::RUNNING) << c.Job(id).reason();
  c.Restart(c.node("ps-0"));
  c.Pass(absl::Seconds(1));
  EXPECT_EQ(PrimariesOn(c.Job(id), "ps-0"), 4);
  EXPECT_TRUE(c.RunToEnd(id));
  EXPECT_EQ(c.State(id), v1::SUCCEEDED) << c.Job(id).reason();
}

// The store of the backup's ps has failed, and its process is about to end; the primary's ps is restarted just then.
uint64_t RestartBesideAFailedPs(Cluster& c) {
  v1::JobSpec spec = SpecWithCopies(40, 1);
  spec.set_partition_bytes(4 << 20);  // one partition, on ps-0
  const uint64_t id = c.SubmitOk(spec);
  c.Pass(absl::Milliseconds(300));
  c.Train(5);
  v1::NodeMessage message;
  message.mutable_heartbeat()->set_fault("no space left on device");
  c.node("ps-1").fault = message.heartbeat().fault();
  c.Say(c.node("ps-1"), message);
  c.Kill(c.node("ps-0"));
  c.Restart(c.node("ps-0"));
  EXPECT_EQ(PrimariesOn(c.Job(id), "ps-0"), 1) << "its disk may have more than that of ps-1";
  return id;
}

TEST(ClusterLosses, APsWhoseStoreHasFailedIsNotPromotedBeforeAPrimaryThatIsBack) {
  Cluster c(2, 1);
  const uint64_t id = RestartBesideAFailedPs(c);
  c.Pass(absl::Milliseconds(300));
  c.Kill(c.node("ps-1"));
  c.node("ps-1").fault.clear();
  SetVersions(c, "ps-1", id, 3);
  c.Restart(c.node("ps-1"));
  c.Pass(absl::Seconds(1));
  EXPECT_EQ(PrimariesOn(c.Job(id), "ps-0"), 1);
  EXPECT_FALSE(c.Logged("falls back to step 3")) << "what ps-1 has is not taken";
  c.Train(2);
  EXPECT_EQ(c.TrueStep(id), 7) << c.Job(id).reason();
}

// The fault was not that of the store as a whole: its copies are in its memory, with all updates.
TEST(ClusterLosses, APsThatSurvivesItsFaultIsPromoted) {
  Cluster c(2, 1);
  const uint64_t id = RestartBesideAFailedPs(c);
  c.Pass(absl::Milliseconds(1500));
  EXPECT_TRUE(c.Logged("served from now on: 1 partition by ps \"ps-1\""));
  c.Pass(absl::Seconds(1));
  c.Train(2);
  EXPECT_EQ(c.TrueStep(id), 7) << c.Job(id).reason();
}

// A backup that had not caught up is not worth waiting for: what else the ps holds is served.
TEST(ClusterLosses, ACopyThatWasNotCompleteHoldsNothingUp) {
  Cluster c(2, 1);
  c.replicate = false;
  const uint64_t id = c.SubmitOk(SpecWithCopies(8, 1, v1::LOGGED_AND_REPLICATED));
  c.Train(3);
  c.Kill(c.node("ps-0"));
  c.Kill(c.node("ps-1"));
  c.Pass(absl::Seconds(1));
  c.Restart(c.node("ps-1"));
  c.Pass(absl::Milliseconds(300));
  EXPECT_TRUE(c.node("ps-1").hosted.at(id).serving);
  c.Restart(c.node("ps-0"));
  EXPECT_TRUE(c.RunToEnd(id));
  EXPECT_EQ(c.State(id), v1::SUCCEEDED) << c.Job(id).reason();
}

// Its store failed and its copy was lost; the same process names its other copies.
TEST(ClusterLosses, ABackupThatLostItsMemoryIsNotPromoted) {
  Cluster c(2, 1);
  v1::JobSpec spec = SpecWithCopies(40, 1, v1::LOGGED_AND_REPLICATED);
  spec.set_partition_bytes(4 << 20);  // one partition, on ps-0
  const uint64_t id = c.SubmitOk(spec);
  c.Pass(absl::Milliseconds(300));
  c.Train(3);
  c.BreakSession(c.node("ps-1"));
  c.Kill(c.node("ps-0"));
  c.Pass(absl::Seconds(1));
  c.node("ps-1").hosted.at(id).version.clear();
  c.Connect(c.node("ps-1"));
  c.Pass(absl::Seconds(1));
  EXPECT_EQ(PrimariesOn(c.Job(id), "ps-1"), 0);
  EXPECT_TRUE(
      c.Logged("continues without ps \"ps-1\": partition 0 is not in its memory any more: its store failed (see its "
               "log); restart it"));
  EXPECT_TRUE(c.node("ps-1").hosted.at(id).version.empty()) << "it is left out";
  c.Restart(c.node("ps-0"));
  c.Pass(absl::Seconds(1));
  c.Train(2);
  EXPECT_EQ(c.TrueStep(id), 5) << c.Job(id).reason();
  c.Kill(c.node("ps-1"));
  c.Restart(c.node("ps-1"));
  c.Pass(absl::Seconds(1));
  EXPECT_EQ(InSync(c.Job(id)), 1) << "a restart may have mended it";
}

// Both are primaries of some partitions, and both are gone for good.
TEST(ClusterLosses, AJobThatHasLostItsCopiesSaysSoWithin30s) {
  Cluster c(2, 1);
  const uint64_t id = c.SubmitOk(SpecWithCopies(8, 1));
  c.Pass(absl::Milliseconds(300));
  c.Train(3);
  c.Kill(c.node("ps-0"));
  c.Pass(absl::Milliseconds(100));
  c.Kill(c.node("ps-1"));
  c.Pass(absl::Seconds(29));
  const std::string reason = c.Job(id).reason();
  EXPECT_THAT(reason, HasSubstr("ps-0"));
  EXPECT_THAT(reason, HasSubstr("ps-1"));
  EXPECT_THAT(reason, HasSubstr("no other copy that is up to date"));
  EXPECT_TRUE(c.Logged(absl::StrCat("job ", id, ": ", reason)));
  const size_t lines = c.log().size();
  c.Pass(absl::Minutes(10));
  EXPECT_LE(c.log().size(), lines + 1) << "and says it once";
}

}  // namespace
}  // namespace cairn
