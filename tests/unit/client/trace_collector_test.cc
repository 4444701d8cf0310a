// Goal: TraceCollector takes each span once, finds the steps that all nodes have recorded whole, compares clocks by the
// shortest way, and says what is missing of a node that is silent, began anew or had no room.
#include "client/cli/trace_collector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace cairn {
namespace {

using ::testing::HasSubstr;

const absl::Time kNow = absl::FromUnixSeconds(1000);

v1::TraceSpan Span(v1::TraceKind kind, int64_t step, int32_t replica = 0) {
  v1::TraceSpan span;
  span.set_kind(kind);
  span.set_step(step);
  span.set_replica(replica);
  span.set_begin_ns(step * 100);
  span.set_duration_ns(10);
  return span;
}

struct FakeNodes {
  struct Node {
    std::vector<v1::TraceSpan> spans;
    int64_t began = 1, node_ns = 0, way = 1000;
    uint64_t dropped = 0;
    bool ended = false;
    absl::Status down;
  };
  std::map<std::string, Node> nodes;
  bool job_ended = false, synchronous = true;
  int asked = 0;
  std::map<std::string, std::string> lacks;

  absl::StatusOr<v1::ReadTraceResponse> Read(const v1::ReadTraceRequest& request) {
    ++asked;
    Node& node = nodes.at(request.node());
    if (!node.down.ok()) return node.down;
    v1::ReadTraceResponse response;
    const uint64_t from = request.after() <= node.spans.size() ? request.after() : 0;
    for (size_t i = from; i < node.spans.size() && i < from + 2; ++i) *response.add_spans() = node.spans[i];
    response.set_first(from + 1);
    response.set_last(node.spans.size());
    response.set_began_ns(node.began);
    response.set_dropped(node.dropped);
    response.set_ended(node.ended || request.stop());
    response.set_job_ended(job_ended);
    response.set_node_ns(node.node_ns);
    response.set_asked_ns(50'000);
    response.set_answered_ns(50'000 + node.way);
    return response;
  }
  TraceCollector Collect(int64_t steps) {
    v1::StartTraceResponse started;
    started.set_trace_id(3);
    started.set_synchronous(synchronous);
    for (const auto& [name, node] : nodes) {
      v1::TracedNode& traced = *started.add_nodes();
      traced.set_name(name);
      traced.set_role(name[0] == 'w' ? v1::WORKER : v1::PS);
      traced.set_lacks(lacks[name]);
    }
    return {[this](const v1::ReadTraceRequest& request) { return Read(request); }, started, steps};
  }
  void Do(const std::string& name, v1::TraceKind kind, int64_t first, int64_t last) {
    for (int64_t step = first; step <= last; ++step) nodes[name].spans.push_back(Span(kind, step));
  }
};

std::vector<int64_t> StepsOf(const NodeTrace& node) {
  std::vector<int64_t> steps;
  for (const v1::TraceSpan& span : node.spans) steps.push_back(span.step());
  return steps;
}

TEST(TraceCollector, TakesTheStepsThatAllNodesHaveWhole) {
  FakeNodes fake;
  fake.Do("ps-0", v1::TRACE_APPLY, 4, 9);
  fake.Do("worker-0", v1::TRACE_DECODE, 6, 12);  // ahead: 6 began before the trace, perhaps
  fake.Do("worker-0", v1::TRACE_COMPUTE, 3, 8);
  TraceCollector collector = fake.Collect(2);
  EXPECT_FALSE(collector.Done());
  ASSERT_TRUE(collector.Round(kNow, false).ok());
  EXPECT_FALSE(collector.Done()) << "the worker has not done step 8";
  fake.Do("worker-0", v1::TRACE_COMPUTE, 9, 9);
  ASSERT_TRUE(collector.Round(kNow, false).ok());
  EXPECT_TRUE(collector.Done());
  ASSERT_TRUE(collector.Round(kNow, true).ok());
  const CollectedTrace trace = collector.Take();
  EXPECT_EQ(trace.first_step, 7);
  EXPECT_EQ(trace.last_step, 8);
  ASSERT_EQ(trace.nodes.size(), 2u);
  EXPECT_EQ(trace.nodes[0].name, "worker-0") << "workers first";
  EXPECT_EQ(StepsOf(trace.nodes[0]), (std::vector<int64_t>{7, 8, 7, 8}));
  EXPECT_EQ(StepsOf(trace.nodes[1]), (std::vector<int64_t>{7, 8}));
  EXPECT_EQ(trace.nodes[0].missing, "");
}

// What was decoded ahead of the trace is not in it: the steps begin after the last such gap.
TEST(TraceCollector, WaitsForStepsWhoseBatchesWereDecodedDuringTheTrace) {
  FakeNodes fake;
  fake.Do("worker-0", v1::TRACE_COMPUTE, 3, 8);
  TraceCollector collector = fake.Collect(2);
  ASSERT_TRUE(collector.Round(kNow, false).ok());
  EXPECT_FALSE(collector.Done()) << "nothing was decoded yet";
  fake.Do("worker-0", v1::TRACE_DECODE, 4, 4);  // by the replica itself
  fake.Do("worker-0", v1::TRACE_DECODE, 9, 9);  // ahead; 5 to 8 were decoded before the trace
  ASSERT_TRUE(collector.Round(kNow, false).ok());
  EXPECT_FALSE(collector.Done());
  fake.Do("worker-0", v1::TRACE_DECODE, 12, 12);
  ASSERT_TRUE(collector.Round(kNow, false).ok());
  EXPECT_FALSE(collector.Done());
  fake.Do("worker-0", v1::TRACE_DECODE, 10, 11);  // by another thread
  fake.Do("worker-0", v1::TRACE_DECODE, 13, 14);
  fake.Do("worker-0", v1::TRACE_COMPUTE, 9, 11);
  ASSERT_TRUE(collector.Round(kNow, false).ok());
  EXPECT_FALSE(collector.Done());
  fake.Do("worker-0", v1::TRACE_COMPUTE, 12, 12);
  ASSERT_TRUE(collector.Round(kNow, false).ok());
  EXPECT_TRUE(collector.Done());
  const CollectedTrace trace = collector.Take();
  EXPECT_EQ(trace.first_step, 10) << "a part of step 9 may have been decoded before";
  EXPECT_EQ(trace.last_step, 11);
}

TEST(TraceCollector, ComparesClocksByTheShortestWay) {
  FakeNodes fake;
  fake.nodes["worker-0"].way = 4000;
  fake.nodes["worker-0"].node_ns = 7'000;
  TraceCollector collector = fake.Collect(1);
  ASSERT_TRUE(collector.Round(kNow, false).ok());
  fake.nodes["worker-0"].way = 1000;
  fake.nodes["worker-0"].node_ns = 8'500;
  ASSERT_TRUE(collector.Round(kNow, false).ok());
  fake.nodes["worker-0"].way = 9000;
  fake.nodes["worker-0"].node_ns = 1;
  ASSERT_TRUE(collector.Round(kNow, false).ok());
  const CollectedTrace trace = collector.Take();
  EXPECT_EQ(trace.nodes[0].offset_ns, 8'500 - 50'500);
  EXPECT_EQ(trace.nodes[0].uncertainty_ns, 501);
}

TEST(TraceCollector, SaysWhatIsMissing) {
  FakeNodes fake;
  fake.nodes["ps-old"] = {};
  fake.lacks["ps-old"] = "it runs 0.9, which records no traces; upgrade it";
  fake.Do("ps-0", v1::TRACE_APPLY, 1, 9);
  fake.nodes["ps-0"].dropped = 12;
  fake.Do("worker-0", v1::TRACE_DECODE, 0, 9);
  fake.Do("worker-0", v1::TRACE_COMPUTE, 1, 9);
  fake.Do("worker-1", v1::TRACE_COMPUTE, 1, 3);
  fake.Do("worker-2", v1::TRACE_COMPUTE, 1, 3);
  TraceCollector collector = fake.Collect(5);
  ASSERT_TRUE(collector.Round(kNow, false).ok());
  EXPECT_FALSE(collector.Done());
  fake.nodes["worker-1"].down = absl::UnavailableError("\"worker-1\" lost its connection");
  fake.nodes["worker-2"].began = 2;
  fake.nodes["worker-2"].spans.clear();
  fake.Do("worker-2", v1::TRACE_COMPUTE, 5, 9);
  ASSERT_TRUE(collector.Round(kNow, false).ok());
  EXPECT_TRUE(collector.Done()) << "nobody waits for a node that does not answer";
  const int asked = fake.asked;
  ASSERT_TRUE(collector.Round(kNow + kTraceAskAgain - absl::Milliseconds(1), false).ok());
  EXPECT_EQ(fake.asked, asked + 3) << "worker-1 has a rest";
  ASSERT_TRUE(collector.Round(kNow + kTraceAskAgain, true).ok());
  EXPECT_EQ(fake.asked, asked + 7);
  const CollectedTrace trace = collector.Take();
  std::map<std::string, std::string> missing;
  for (const NodeTrace& node : trace.nodes) missing[node.name] = node.missing;
  EXPECT_EQ(missing["ps-old"], "it runs 0.9, which records no traces; upgrade it");
  EXPECT_EQ(missing["ps-0"], "12 spans: its buffer was full");
  EXPECT_EQ(missing["worker-0"], "");
  EXPECT_EQ(missing["worker-1"], "\"worker-1\" lost its connection");
  EXPECT_EQ(missing["worker-2"], "it lost its session and what it had recorded until then");
}

TEST(TraceCollector, ANodeThatBeganAnewWithAnotherClockKeepsTheTimesOfWhatItSentBefore) {
  FakeNodes fake;
  fake.synchronous = false;
  FakeNodes::Node& node = fake.nodes["worker-0"];
  node.node_ns = 1'000;  // 49,500 before the coordinator's, in the middle of the way
  fake.Do("worker-0", v1::TRACE_COMPUTE, 1, 2);
  for (v1::TraceSpan& span : node.spans) span.set_begin_ns(100);
  TraceCollector collector = fake.Collect(5);
  ASSERT_TRUE(collector.Round(kNow, false).ok());
  node.began = 2;
  node.node_ns = 901'000;  // of a clock that is 900,000 ahead of the former one
  node.spans.clear();
  fake.Do("worker-0", v1::TRACE_COMPUTE, 3, 3);
  node.spans[0].set_begin_ns(900'100);
  ASSERT_TRUE(collector.Round(kNow, true).ok());
  const CollectedTrace trace = collector.Take();
  ASSERT_EQ(trace.nodes[0].spans.size(), 3u);
  ASSERT_TRUE(trace.nodes[0].offset_ns.has_value());
  for (const v1::TraceSpan& span : trace.nodes[0].spans) {
    EXPECT_EQ(span.begin_ns() - *trace.nodes[0].offset_ns, 49'600) << span.step();
  }
}

TEST(TraceCollector, TakesWhatThereIsOfAJobThatEnds) {
  FakeNodes fake;
  fake.Do("ps-0", v1::TRACE_APPLY, 6, 9);
  fake.Do("worker-0", v1::TRACE_COMPUTE, 6, 9);
  fake.job_ended = true;
  TraceCollector collector = fake.Collect(5);
  ASSERT_TRUE(collector.Round(kNow, true).ok());
  EXPECT_TRUE(collector.job_ended());
  EXPECT_TRUE(collector.Done()) << "the nodes have ended";
  const CollectedTrace trace = collector.Take();
  EXPECT_EQ(trace.first_step, 7);
  EXPECT_EQ(trace.last_step, 9) << "its last step is whole";
}

TEST(TraceCollector, AnAsynchronousJobIsShownAsItIs) {
  FakeNodes fake;
  fake.synchronous = false;
  fake.Do("ps-0", v1::TRACE_APPLY, 900, 905);
  fake.Do("worker-0", v1::TRACE_COMPUTE, 500, 503);
  fake.Do("worker-1", v1::TRACE_COMPUTE, 20, 22);
  TraceCollector collector = fake.Collect(2);
  ASSERT_TRUE(collector.Round(kNow, false).ok());
  EXPECT_FALSE(collector.Done()) << "worker-1 has done one whole step";
  fake.Do("worker-1", v1::TRACE_COMPUTE, 23, 23);
  ASSERT_TRUE(collector.Round(kNow, false).ok());
  EXPECT_TRUE(collector.Done());
  const CollectedTrace trace = collector.Take();
  EXPECT_FALSE(trace.synchronous);
  EXPECT_EQ(trace.first_step, 20);
  EXPECT_EQ(trace.last_step, 503);
  EXPECT_EQ(trace.nodes[2].spans.size(), 6u);
}

// Replicas move from worker-1 to worker-2, of which the trace knows nothing.
TEST(TraceCollector, SeesThatReplicasMoved) {
  FakeNodes fake;
  fake.Do("ps-0", v1::TRACE_APPLY, 1, 9);
  fake.Do("worker-0", v1::TRACE_DECODE, 0, 9);
  fake.Do("worker-0", v1::TRACE_COMPUTE, 1, 9);
  fake.Do("worker-1", v1::TRACE_COMPUTE, 1, 3);
  fake.nodes["worker-1"].ended = true;
  TraceCollector collector = fake.Collect(5);
  ASSERT_TRUE(collector.Round(kNow, false).ok());
  EXPECT_TRUE(collector.Done());
  EXPECT_FALSE(collector.Enough()) << "worker-1 has the steps 1 to 3";
  EXPECT_FALSE(collector.AllEnded());
  EXPECT_TRUE(collector.Asks({"ps-0", "worker-0", "worker-1"}));
  EXPECT_FALSE(collector.Asks({"ps-0", "worker-0", "worker-2"}));
  EXPECT_FALSE(collector.Asks({"ps-0", "worker-0"})) << "worker-1 answers, and works no more";
  fake.nodes["worker-1"].down = absl::UnavailableError("\"worker-1\" is not connected");
  ASSERT_TRUE(collector.Round(kNow, false).ok());
  EXPECT_TRUE(collector.Asks({"ps-0", "worker-0"})) << "the steps of the others are whole without it";
  EXPECT_FALSE(collector.Asks({"ps-0", "worker-0", "worker-2"}));
  EXPECT_TRUE(collector.Enough());
  for (auto& [name, node] : fake.nodes) node.ended = true;
  ASSERT_TRUE(collector.Round(kNow, false).ok());
  EXPECT_TRUE(collector.AllEnded());
}

TEST(TraceCollector, EndsWithTheTrace) {
  FakeNodes fake;
  fake.nodes["worker-0"].down = absl::NotFoundError("there is no trace 3");
  TraceCollector collector = fake.Collect(2);
  EXPECT_THAT(std::string(collector.Round(kNow, false).message()), HasSubstr("there is no trace 3"));
  const CollectedTrace trace = collector.Take();
  EXPECT_LT(trace.last_step, trace.first_step);
}

}  // namespace
}  // namespace cairn
