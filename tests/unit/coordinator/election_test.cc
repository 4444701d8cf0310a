// Goal: one of several coordinators leads: the lead changes when the lease ends, is given back or its key is deleted; a
// leader stops in time by its own clock when etcd is away; a standby knows the leader; lost answers and corrupt values
// do no harm.
#include "coordinator/store/election.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/coordinator/fake_etcd.h"

namespace cairn {
namespace {

constexpr absl::Duration kLong = absl::Seconds(30);

// A coordinator, reduced to elections.
class Candidate {
 public:
  Candidate(FakeEtcd& etcd, const std::string& name, const std::string& http = "")
      : client_({etcd.Endpoint(0)}, absl::Milliseconds(200)) {
    ElectionOptions options;
    options.prefix = "p";
    options.self.set_name(name);
    options.self.set_address(name + ":1");
    options.http = http;
    options.lease = absl::Seconds(2);
    options.poll_interval = absl::Milliseconds(20);
    EXPECT_TRUE(options.Validate().ok()) << options.Validate();
    ElectionCallbacks callbacks;
    callbacks.on_standby = [this](const std::optional<SeenLeader>& leader, const absl::Status& status) {
      absl::MutexLock lock(&mutex_);
      leader_ = leader ? leader->record.name() + leader->http : status.ok() ? "nobody" : "no etcd";
    };
    callbacks.on_elected = [this](std::shared_ptr<LeaderTerm> term) {
      absl::MutexLock lock(&mutex_);
      EXPECT_TRUE(term->Valid());
      EXPECT_EQ(term_, nullptr) << "elected twice";
      term_ = std::move(term);
      ++elected_;
    };
    callbacks.on_lost = [this](const LeaderTerm& term, const absl::Status& why) {
      absl::MutexLock lock(&mutex_);
      EXPECT_FALSE(term.Valid());
      EXPECT_EQ(term_.get(), &term);
      term_ = nullptr;
      why_ = why;
    };
    election_ = std::make_unique<LeaderElection>(options, &client_, &clock_, std::move(callbacks));
  }

  bool Await(const std::function<bool()>& condition) {
    absl::MutexLock lock(&mutex_);
    return mutex_.AwaitWithTimeout(absl::Condition(&condition, &std::function<bool()>::operator()), kLong);
  }
  bool AwaitLead(int count = 1) {
    return Await([&] { return elected_ == count && term_ != nullptr; });
  }
  bool AwaitLoss() {
    return Await([&] { return term_ == nullptr; });
  }
  bool AwaitStandby(const std::string& leader) {
    return Await([&] { return leader_ == leader; });
  }
  std::shared_ptr<LeaderTerm> term() {
    absl::MutexLock lock(&mutex_);
    return term_;
  }
  std::string why() {
    absl::MutexLock lock(&mutex_);
    return std::string(why_.message());
  }
  LeaderElection& election() { return *election_; }

 private:
  RealClock clock_;
  EtcdClient client_;
  absl::Mutex mutex_;
  std::string leader_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<LeaderTerm> term_ ABSL_GUARDED_BY(mutex_);
  int elected_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status why_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<LeaderElection> election_;
};

TEST(Election, OneLeadsTheOtherKnowsItAndFollows) {
  FakeEtcd etcd;
  Candidate a(etcd, "a");
  ASSERT_TRUE(a.AwaitLead());
  EXPECT_EQ(a.term()->create_revision, etcd.CreateRevision("p/leader"));
  Candidate b(etcd, "b");
  ASSERT_TRUE(b.AwaitStandby("a"));
  a.election().Stop();
  EXPECT_EQ(a.term(), nullptr);
  ASSERT_TRUE(b.AwaitLead()) << "it was given back, not waited for";
  EXPECT_EQ(etcd.leases(), 1);
}

TEST(Election, AStandbyKnowsTheLeadersPagesAndForgetsThemWithIt) {
  FakeEtcd etcd;
  Candidate a(etcd, "a", "http://a:80");
  ASSERT_TRUE(a.AwaitLead());
  Candidate b(etcd, "b");
  ASSERT_TRUE(b.AwaitStandby("ahttp://a:80"));
  etcd.Put("p/leader-http", "two words");
  ASSERT_TRUE(b.AwaitStandby("a")) << "nothing that would not fit into a header";
  a.election().Stop();
  ASSERT_TRUE(b.AwaitLead());
  Candidate c(etcd, "c");
  ASSERT_TRUE(c.AwaitStandby("b")) << "b has no pages";
}

TEST(Election, ALeaseThatEndedIsNoticedAndNeverComesBack) {
  FakeEtcd etcd;
  Candidate a(etcd, "a");
  ASSERT_TRUE(a.AwaitLead());
  const auto term = a.term();
  Candidate b(etcd, "b");
  ASSERT_TRUE(b.AwaitStandby("a"));
  etcd.EndLeases();
  ASSERT_TRUE(b.AwaitLead());
  ASSERT_TRUE(a.AwaitStandby("b"));
  EXPECT_FALSE(term->Valid());
  EXPECT_GT(b.term()->create_revision, term->create_revision);
}

TEST(Election, WithoutEtcdTheLeaderStopsByItsOwnClock) {
  FakeEtcd etcd;
  Candidate a(etcd, "a");
  ASSERT_TRUE(a.AwaitLead());
  const auto term = a.term();
  EXPECT_LE(term->Left(), absl::Seconds(2));
  etcd.StopMember(0);
  ASSERT_TRUE(a.AwaitLoss());
  EXPECT_FALSE(term->Valid());
  EXPECT_NE(etcd.CreateRevision("p/leader"), 0) << "by etcd's word it still leads: it stopped in time";
  ASSERT_TRUE(a.AwaitStandby("no etcd"));
  etcd.StartMember(0);
  ASSERT_TRUE(a.AwaitStandby("a")) << "its own key, until the lease ends";
  etcd.EndLeases();
  ASSERT_TRUE(a.AwaitLead(2));
  EXPECT_GT(a.term()->create_revision, term->create_revision);
}

TEST(Election, AHangingEtcdIsNoReasonToGoOn) {
  FakeEtcd etcd;
  Candidate a(etcd, "a");
  ASSERT_TRUE(a.AwaitLead());
  etcd.Hang(true);
  ASSERT_TRUE(a.AwaitLoss());
  EXPECT_THAT(a.why(), testing::HasSubstr("not renewed in time"));
  etcd.Hang(false);
}

TEST(Election, AKeyThatSomebodyDeletedIsALostLead) {
  FakeEtcd etcd;
  Candidate a(etcd, "a");
  ASSERT_TRUE(a.AwaitLead());
  etcd.Delete("p/leader");
  ASSERT_TRUE(a.AwaitLead(2));
  EXPECT_THAT(a.why(), testing::HasSubstr("deleted or replaced"));
}

TEST(Election, WhoResignsStandsAgainAfterThePause) {
  FakeEtcd etcd;
  Candidate leader(etcd, "a");
  ASSERT_TRUE(leader.AwaitLead());
  Candidate other(etcd, "b");
  ASSERT_TRUE(other.AwaitStandby("a"));
  const auto term = leader.term();
  leader.election().Resign(*term, absl::InternalError("no space"), absl::Minutes(1));
  ASSERT_TRUE(other.AwaitLead());
  ASSERT_TRUE(leader.AwaitLoss());
  EXPECT_EQ(leader.why(), "no space");
  leader.election().Resign(*term, absl::InternalError("again"),
                           absl::Minutes(1));  // that term is over: nothing happens
  EXPECT_NE(other.term(), nullptr);
}

TEST(Election, ALostAnswerOfTheElectionIsFoundOut) {
  FakeEtcd etcd;
  etcd.LoseAnswers(1);
  Candidate a(etcd, "a");
  ASSERT_TRUE(a.AwaitLead());
  EXPECT_EQ(a.term()->create_revision, etcd.CreateRevision("p/leader"));
}

TEST(Election, NonsenseInTheLeaderKeyNamesNobody) {
  FakeEtcd etcd;
  etcd.Put("p/leader", "\xff\xff");
  Candidate a(etcd, "a");
  ASSERT_TRUE(a.AwaitStandby("nobody"));
  v1::LeaderRecord record;
  record.set_name("x");
  record.set_address("x:1");
  etcd.Put("p/leader", record.SerializeAsString());
  ASSERT_TRUE(a.AwaitStandby("x"));
  record.set_address("x\n:1");
  etcd.Put("p/leader", record.SerializeAsString());
  ASSERT_TRUE(a.AwaitStandby("nobody"));
  etcd.Delete("p/leader");
  ASSERT_TRUE(a.AwaitLead());
}

TEST(Election, OptionsThatAreWrongAreNamed) {
  ElectionOptions options;
  options.self.set_name("a");
  options.self.set_address("a:1");
  EXPECT_TRUE(options.Validate().ok());
  for (const absl::Duration lease : {absl::Seconds(1), absl::Milliseconds(2500), absl::Hours(1)}) {
    options.lease = lease;
    EXPECT_THAT(std::string(options.Validate().message()), testing::HasSubstr("lease"));
  }
  options.lease = absl::Seconds(3);
  options.self.set_address("a");
  EXPECT_THAT(std::string(options.Validate().message()), testing::HasSubstr("--advertise"));
}

}  // namespace
}  // namespace cairn
