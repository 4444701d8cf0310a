// Goal: impossible messages of a node are refused, with the field or the reason, and change nothing for the others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/version.h"
#include "coordinator/core/limits.h"
#include "tests/unit/coordinator/cluster.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;

// Submits the job until it is refused for want of memory. Returns how many were taken.
size_t JobsTaken(Cluster& c, const v1::JobSpec& spec) {
  for (size_t taken = 0;; ++taken) {
    const auto reply = c.ReplyTo(c.Submit(spec));
    if (reply->status.ok()) continue;
    EXPECT_EQ(reply->status.code(), absl::StatusCode::kResourceExhausted) << reply->status;
    EXPECT_THAT(std::string(reply->status.message()), HasSubstr("the jobs that the coordinator keeps take"));
    return taken;
  }
}

// 1,000 jobs of 4 MiB each once filled the memory, and again at every start. So did jobs of 4,000 small layers, each of
// which takes twenty times as much memory as it has bytes.
TEST(ClusterCore, TheMemoryOfAllJobsIsBounded) {
  Cluster with(1, 1), without(0, 0), mixed(0, 0);  // where there is no worker, nobody looks at the data
  v1::JobSpec texts = with.Spec();
  texts.set_initial_weights("/weights.safetensors");
  for (int i = 0; i < 3000; ++i) texts.add_initial_weights_skip(std::string(1000, 'l'));
  const size_t bytes = CheckJob(texts)->spec.SpaceUsedLong();
  size_t taken = 0;
  for (Cluster* c : {&with, &without}) {
    taken = JobsTaken(*c, texts);
    EXPECT_LE(taken * bytes, kJobSpecsBytesMax);
    EXPECT_GT((taken + 4) * bytes, kJobSpecsBytesMax);
    EXPECT_TRUE(c->ReplyTo(c->Submit(c->Spec()))->status.ok()) << "a usual one still has room";
  }
  v1::JobSpec layers = with.Spec();
  for (int i = 0; i < 4000; ++i) *layers.mutable_model()->add_layers() = layers.model().layers(1);
  layers.mutable_model()->mutable_layers()->SwapElements(2, layers.model().layers_size() - 1);
  constexpr size_t kJobs = 40;
  for (size_t i = 0; i < kJobs; ++i) ASSERT_TRUE(mixed.ReplyTo(mixed.Submit(layers))->status.ok());
  EXPECT_LE(JobsTaken(mixed, texts), taken - kJobs * layers.SpaceUsedLong() / bytes + 1);
  EXPECT_GT(kJobs * layers.SpaceUsedLong() / bytes, 5u) << "else the line before says nothing";
}

// The spec of a large vocabulary takes tens of MiB, of which a graph makes no multiples.
TEST(ClusterCore, AJobOfManyNumbersIsNoLargeJob) {
  Cluster c(0, 0);
  v1::JobSpec spec = c.Spec();
  spec.set_initial_weights("/weights.safetensors");
  for (int i = 0; i < 32'000; ++i) spec.add_initial_weights_skip(std::string(1000, 'l'));
  EXPECT_GT(spec.SpaceUsedLong(), kJobSpecsBytesMax / 9);
  const auto reply = c.ReplyTo(c.Submit(spec));
  EXPECT_TRUE(reply->status.ok()) << reply->status;
}

TEST(ClusterCore, AJobOfTooManyParametersIsRefusedWithTheirSize) {
  Cluster c(1, 1);
  v1::JobSpec spec = c.Spec();  // two layers of 2^17 units behind its input
  const v1::Model model = spec.model();
  spec.mutable_model()->clear_layers();
  *spec.mutable_model()->add_layers() = model.layers(0);
  spec.clear_partition_bytes();
  for (int i = 0; i < 2; ++i) spec.mutable_model()->add_layers()->mutable_dense()->set_units(1 << 17);
  for (int i = 1; i < model.layers_size(); ++i) *spec.mutable_model()->add_layers() = model.layers(i);
  const auto reply = c.ReplyTo(c.Submit(spec));
  EXPECT_EQ(reply->status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(reply->status.message()),
              ::testing::AllOf(HasSubstr("model: "), HasSubstr("this cluster takes jobs of at most 4294967296"),
                               HasSubstr("--max-job-parameters")));
}

TEST(ClusterCore, TwinsAreRefusedUntilTheFirstIsGone) {
  Cluster c(1, 1);
  FakeNode& twin = c.AddWorker("worker-1");
  FakeNode first = twin;
  twin.hello.set_incarnation(4711);
  c.Connect(twin);
  ASSERT_TRUE(twin.closed.has_value());
  EXPECT_EQ(twin.closed->code(), absl::StatusCode::kAlreadyExists);
  c.Pass(absl::Seconds(4));  // nobody speaks on the first one's session any more
  c.Connect(twin);
  EXPECT_FALSE(twin.closed.has_value());
  // The same process on a new stream takes over at once.
  const SessionToken old = twin.session;
  c.Connect(twin);
  EXPECT_FALSE(twin.closed.has_value());
  c.Do(SessionClosed{old});
  c.Pass(absl::Seconds(1));
  const v1::ListNodesResponse list = c.core().ListNodes();
  for (const auto& node : list.nodes()) EXPECT_TRUE(node.alive()) << node.name();
}

TEST(ClusterCore, APsOfAnotherClusterIsRefusedAndKeepsItsJobs) {
  Cluster c(1, 1);
  FakeNode& ps = c.node("ps-0");
  const uint64_t ours = ps.hello.cluster_id();
  ASSERT_NE(ours, 0u);
  ps.hosted[1].generation = 1;  // this coordinator knows of no job

  c.disk.clear();  // its state was deleted
  c.RestartCoordinator();
  c.ReconnectAll();
  c.Settle();
  ASSERT_TRUE(ps.closed.has_value());
  EXPECT_EQ(ps.closed->code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(ps.closed->message().find("hello.cluster_id: the data directory of ps \"ps-0\" holds jobs of cluster "),
            std::string::npos)
      << *ps.closed;
  EXPECT_TRUE(ps.hosted.contains(1)) << "dropped";
  ps.closed.reset();
  ps.hello.clear_cluster_id();  // an empty directory
  c.Connect(ps);
  c.Settle();
  EXPECT_FALSE(ps.closed.has_value());
  const uint64_t anew = ps.hello.cluster_id();
  EXPECT_NE(anew, ours);

  c.RestartCoordinator();  // with its state: the same cluster
  c.ReconnectAll();
  c.Settle();
  EXPECT_FALSE(ps.closed.has_value());
  EXPECT_EQ(ps.hello.cluster_id(), anew);
}

// It retries every second.
TEST(ClusterCore, ARefusalIsLoggedWhenItChanges) {
  Cluster c(1, 0);
  FakeNode& ps = c.node("ps-0");
  const uint64_t ours = ps.hello.cluster_id();
  const auto logged = [&] {
    return std::count_if(c.log().begin(), c.log().end(),
                         [](const std::string& line) { return line.find("was refused") != std::string::npos; });
  };
  c.BreakSession(ps);
  ps.hello.set_cluster_id(ours + 1);
  for (int i = 0; i < 3; ++i) c.Connect(ps);
  EXPECT_EQ(logged(), 1);
  ps.hello.set_cluster_id(ours + 2);
  c.Connect(ps);
  EXPECT_EQ(logged(), 2);
  ps.hello.set_cluster_id(ours);
  c.Connect(ps);
  c.BreakSession(ps);
  ps.hello.set_cluster_id(ours + 2);
  c.Connect(ps);
  EXPECT_EQ(logged(), 3) << "it was a member in between";
}

TEST(ClusterCore, ARefusalByCertificateIsAnEvent) {
  Cluster c(0, 0);
  const auto events = [&] {
    std::vector<std::string> texts;
    const v1::ListEventsResponse all = *c.core().ListEvents({});
    for (const v1::ClusterEvent& event : all.events()) {
      if (event.warning()) texts.push_back(event.text());
    }
    return texts;
  };
  const NodeRefused refused{"ps-0", "ipv4:10.0.0.7", "your certificate is that of the ps \"ps-1\""};
  for (int i = 0; i < 3; ++i) c.Do(refused);
  c.Do(NodeRefused{"", "ipv4:10.0.0.7", "the method is for ps, worker"});
  c.Do(NodeRefused{"", "", "the method is for ps, worker"});
  c.Do(NodeRefused{"a\n\xff", "ipv4:10.0.0.7", "no"});
  EXPECT_THAT(events(), ::testing::ElementsAre(
                            "a node called \"ps-0\" was refused: (from ipv4:10.0.0.7) your certificate is that "
                            "of the ps \"ps-1\"",
                            "a node from ipv4:10.0.0.7 was refused: the method is for ps, worker",
                            "a node from this machine was refused: the method is for ps, worker",
                            "a node called \"a\\n\\xff\" was refused: (from ipv4:10.0.0.7) no"));
}

TEST(ClusterCore, NamesAtRandomDoNotPushOutOtherEvents) {
  Cluster c(0, 0);
  const auto count = [&](const std::string& part) {
    return std::count_if(c.log().begin(), c.log().end(),
                         [&](const std::string& line) { return line.find(part) != std::string::npos; });
  };
  const int tried = 10 * kRefusalsToldMax;
  for (int i = 0; i < tried; ++i) c.Do(NodeRefused{absl::StrCat("n", i), "ipv4:10.0.0.7", "no"});
  EXPECT_EQ(count("was refused"), kRefusalsToldMax);
  EXPECT_EQ(count("more times"), 0);
  c.Pass(kRefusalsTime + absl::Seconds(1));
  EXPECT_EQ(count(absl::StrFormat("nodes were refused %d more times", tried - kRefusalsToldMax)), 1);
  c.Do(NodeRefused{absl::StrCat("n", tried - 1), "ipv4:10.0.0.7", "no"});
  EXPECT_EQ(count("was refused"), kRefusalsToldMax + 1) << "it had been left out";
  c.Pass(kRefusalsTime + absl::Seconds(1));
  EXPECT_EQ(count("more times"), 1) << "once";
}

TEST(ClusterCore, TwoMachinesWithOneNameAreRefusedOnceEach) {
  Cluster c(0, 0);
  const auto logged = [&] {
    return std::count_if(c.log().begin(), c.log().end(),
                         [](const std::string& line) { return line.find("was refused") != std::string::npos; });
  };
  for (int i = 0; i < 5; ++i) {
    for (const char* from : {"ipv4:10.0.0.7", "ipv4:10.0.0.8"}) c.Do(NodeRefused{"ps-0", from, "no"});
  }
  EXPECT_EQ(logged(), 2);
  c.AddPs("ps-0");
  for (const char* from : {"ipv4:10.0.0.7", "ipv4:10.0.0.8"}) c.Do(NodeRefused{"ps-0", from, "no"});
  EXPECT_EQ(logged(), 4) << "it was a member in between";
}

TEST(ClusterCore, ADayOfRefusalsTakesASmallPartOfTheEvents) {
  Cluster c(0, 0);
  for (int minute = 0; minute < 24 * 60; ++minute) {
    for (int i = 0; i < kRefusalsToldMax - 1; ++i)
      c.Do(NodeRefused{absl::StrCat("n", minute, "-", i), "ipv4:10.0.0.7", "no"});
    c.clock().Advance(absl::Minutes(1));
    c.Do(Tick{});
  }
  const auto refused = std::count_if(c.log().begin(), c.log().end(),
                                     [](const std::string& line) { return line.find("refused") != std::string::npos; });
  EXPECT_LE(refused, static_cast<int64_t>(kClusterEventsKept / 10));
  EXPECT_GT(refused, kRefusalsToldMax);
  c.clock().Advance(absl::Hours(12));  // a quiet time
  for (int i = 0; i < 2 * kRefusalsToldMax; ++i) c.Do(NodeRefused{absl::StrCat("m", i), "ipv4:10.0.0.7", "no"});
  EXPECT_EQ(std::count_if(c.log().begin(), c.log().end(),
                          [](const std::string& line) { return line.find("called \"m") != std::string::npos; }),
            kRefusalsToldMax);
}

TEST(ClusterCore, AReasonOfARefusalIsCut) {
  Cluster c(0, 0);
  c.Do(NodeRefused{"ps-0", "ipv4:10.0.0.7", std::string(1 << 20, 'x')});
  EXPECT_THAT(c.log().back(), HasSubstr("a node called \"ps-0\" was refused"));
  EXPECT_LT(c.log().back().size(), 2 * kEventTextMax);
}

TEST(ClusterCore, BadHellosAreRefusedWithTheField) {
  Cluster c(0, 0);
  FakeNode& node = c.AddWorker("good");
  auto refused = [&](auto change) {
    FakeNode& bad = c.node("good");
    const v1::Hello good = bad.hello;
    change(bad.hello);
    c.Connect(bad);
    bad.hello = good;
    return bad.closed.has_value() ? std::string(bad.closed->message()) : std::string();
  };
  EXPECT_THAT(refused([](v1::Hello& h) { h.set_name(""); }), HasSubstr("hello.name"));
  EXPECT_THAT(refused([](v1::Hello& h) { h.set_name(std::string(64, 'x')); }), HasSubstr("hello.name"));
  EXPECT_THAT(refused([](v1::Hello& h) { h.set_name("a b"); }), HasSubstr("hello.name"));
  EXPECT_THAT(refused([](v1::Hello& h) { h.set_role(v1::COORDINATOR); }), HasSubstr("hello.role"));
  EXPECT_THAT(refused([](v1::Hello& h) { h.set_slots(0); }), HasSubstr("hello.slots"));
  EXPECT_THAT(refused([](v1::Hello& h) { h.set_slots(-1); }), HasSubstr("hello.slots"));
  EXPECT_THAT(refused([](v1::Hello& h) {
                h.set_role(v1::PS);
                h.set_name("p");
              }),
              HasSubstr("hello.address"));
  EXPECT_THAT(refused([](v1::Hello& h) { h.set_device(std::string(5000, 'd')); }), HasSubstr("device"));
  c.Connect(node);
  EXPECT_FALSE(node.closed.has_value());
}

// A release understands the one before it and the one after it, and nodes talk to each other.
TEST(ClusterCore, NodesOfReleasesThatAreTooFarApartAreRefused) {
  Cluster c(0, 0);
  FakeNode& worker = c.AddWorker("worker-0");
  const auto connect = [&](FakeNode& node, uint32_t interface) {
    node.hello.set_version("9.9");
    node.hello.set_interface(interface);
    c.Connect(node);
    return node.closed.has_value() ? std::string(node.closed->message()) : std::string();
  };
  const uint32_t own = ClusterInterface();
  EXPECT_EQ(connect(worker, own + 2),
            absl::StrFormat("hello.interface: \"worker-0\" is cairn 9.9 (interface %d), the coordinator is cairn %s "
                            "(interface %d); programs of a cluster are at most one interface apart: bring all to one "
                            "release first",
                            own + 2, ProgramVersion(), own));
  EXPECT_EQ(connect(worker, own + 1), "");
  FakeNode& ps = c.AddPs("ps-0");
  EXPECT_EQ(connect(ps, own), "");
  EXPECT_THAT(connect(ps, own - 1), HasSubstr("worker \"worker-0\" is cairn 9.9 (interface"));
  EXPECT_EQ(connect(worker, own), "") << "it does not stand in its own way";
  EXPECT_EQ(connect(ps, own - 1), "");
  ps.hello.clear_version();
  EXPECT_EQ(connect(ps, 0), "") << "the first interface had no number";
  // A restarted coordinator has the interfaces of the nodes that it waits for.
  EXPECT_EQ(connect(ps, own - 1), "");
  c.RestartCoordinator();
  EXPECT_THAT(connect(worker, own + 1), HasSubstr("ps \"ps-0\" is cairn 9.9 (interface"));
  c.Pass(absl::Seconds(10));
  EXPECT_EQ(connect(worker, own + 1), "") << "the ps has not come back";
}

TEST(ClusterCore, NonsenseFromNodesChangesNothing) {
  Cluster c(1, 1);
  const uint64_t id = c.SubmitOk(c.Spec());
  const std::string before = c.Job(id).SerializeAsString();
  std::vector<v1::NodeMessage> messages(1);  // no kind at all
  messages.emplace_back().mutable_hello()->set_name("again");
  for (uint64_t job : {uint64_t{0}, uint64_t{99}, id}) {
    for (uint64_t generation : {0, 1, 99}) {
      for (int replica : {-1, 4, 1 << 30}) {
        v1::ReplicaReport& report = *messages.emplace_back().mutable_replica_report();
        report.set_job_id(job);
        report.set_generation(generation);
        report.set_replica(replica);
      }
      v1::ReplicaReport& steps = *messages.emplace_back().mutable_replica_report();
      steps.set_job_id(job);
      steps.set_last_step(INT64_MAX);
      for (int32_t epoch : {-1, 2, INT32_MAX}) {
        v1::FiguresReport& figures = *messages.emplace_back().mutable_figures();
        figures.set_job_id(job);
        figures.set_generation(generation);
        figures.set_version(UINT64_MAX);
        figures.add_epochs()->set_epoch(epoch);
      }
      v1::FiguresReport& twice = *messages.emplace_back().mutable_figures();
      twice.set_job_id(job);
      twice.add_epochs()->mutable_train()->add_metrics(1);
      twice.add_epochs()->mutable_train()->add_metrics(1);
      for (int64_t step : {int64_t{-1}, int64_t{0}, INT64_MAX}) {
        v1::StepDigestReport& digest = *messages.emplace_back().mutable_step_digest();
        digest.set_job_id(job);
        digest.set_generation(generation);
        digest.mutable_digest()->set_step(step);
        digest.mutable_digest()->set_digest(step == 0 ? "0" : std::string(32, 'a'));
      }
      v1::ReplicaReport& validation = *messages.emplace_back().mutable_replica_report();
      validation.set_job_id(job);
      validation.set_validation_epoch(-5);
      validation.mutable_validation()->set_examples(1);
      v1::PartitionsReady& ready = *messages.emplace_back().mutable_partitions_ready();
      ready.set_job_id(job);
      ready.set_generation(generation);
      ready.add_partitions()->set_partition(UINT32_MAX);
    }
    messages.emplace_back().mutable_data_info()->set_request_id(job);
    messages.emplace_back().mutable_evaluated()->set_request_id(job);
    messages.emplace_back().mutable_evaluated()->set_shard(UINT32_MAX);
    messages.emplace_back().mutable_finalized()->set_job_id(job);
    v1::JobError& error = *messages.emplace_back().mutable_job_error();
    error.set_job_id(job);
    error.set_generation(12345);
  }
  for (const v1::NodeMessage& message : messages) {
    for (const char* name : {"ps-0", "worker-0"}) c.Say(c.node(name), message);
    c.Do(NodeSays{SessionToken{987654}, message});
  }
  c.Do(SessionClosed{SessionToken{987654}});
  EXPECT_EQ(c.Job(id).SerializeAsString(), before);
  EXPECT_TRUE(c.RunToEnd(id));
  EXPECT_EQ(c.State(id), v1::SUCCEEDED);
}

// A directory of another cluster, or corrupt bytes: the job whose generation is impossible is ignored, the others are
// not.
TEST(ClusterCore, AGenerationThatCannotBeIsRefused) {
  for (const uint64_t wrong : {UINT64_MAX, UINT64_MAX - 1, uint64_t{1} << 40}) {
    for (const int backups : {0, 1}) {
      Cluster c(2, 1);
      v1::JobSpec spec = c.Spec(1);
      spec.set_backups(backups);
      const uint64_t id = c.SubmitOk(spec);
      spec.set_name("other");
      const uint64_t other = c.SubmitOk(spec);
      c.AddWorker("worker-1");
      c.Pass(absl::Milliseconds(300));
      c.Train(2);
      c.Kill(c.node("ps-0"));
      c.node("ps-0").hosted.at(id).generation = wrong;
      c.Restart(c.node("ps-0"));
      EXPECT_LT(c.Job(id).generation(), 10u);
      EXPECT_TRUE(c.Logged(absl::StrCat("is in generation ", wrong))) << wrong;
      EXPECT_EQ(c.State(id), backups > 0 ? v1::RUNNING : v1::FAILED);
      EXPECT_THAT(c.Job(id).reason(), HasSubstr("ps \"ps-0\""));
      EXPECT_EQ(c.State(other), v1::RUNNING);
      EXPECT_EQ(c.Job(other).reason(), "");
      EXPECT_TRUE(c.RunToEnd(other));
      EXPECT_EQ(c.State(other), v1::SUCCEEDED) << c.Job(other).reason();
    }
  }
  // A coordinator that lost its newest state continues above the generations that the ps have seen.
  Cluster c(2, 1);
  const uint64_t id = c.SubmitOk(c.Spec(1));
  c.Train(2);
  for (const char* ps : {"ps-0", "ps-1"}) {
    c.Kill(c.node(ps));
    c.node(ps).hosted.at(id).generation = 70;
    c.Restart(c.node(ps));
  }
  EXPECT_GT(c.Job(id).generation(), 70u);
  EXPECT_TRUE(c.RunToEnd(id));
  EXPECT_EQ(c.State(id), v1::SUCCEEDED);
}

}  // namespace
}  // namespace cairn
