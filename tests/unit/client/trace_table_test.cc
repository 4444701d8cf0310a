// Goal: the table of a trace has the mean of each kind of span by node and of a whole step, the slowest nodes first and
// few of many, nodes without spans left out; below it the slowest layers. The same as JSON.
#include "client/cli/trace_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "client/limits.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

void Add(NodeTrace& node, v1::TraceKind kind, int64_t micros, const std::string& text = "") {
  v1::TraceSpan& span = node.spans.emplace_back();
  span.set_kind(kind);
  span.set_duration_ns(micros * 1000);
  span.set_text(text);
}

NodeTrace Node(const std::string& name, v1::Role role) {
  NodeTrace node;
  node.name = name;
  node.role = role;
  return node;
}

TEST(TraceTable, HasTheMeanOfEachKindByNode) {
  CollectedTrace trace;
  NodeTrace fast = Node("worker-0", v1::WORKER), slow = Node("worker-1", v1::WORKER), ps = Node("ps-0", v1::PS);
  Add(fast, v1::TRACE_COMPUTE, 1000);
  Add(fast, v1::TRACE_COMPUTE, 2000);
  Add(fast, v1::TRACE_WAIT, 30500);
  Add(fast, v1::TRACE_FORWARD, 400);
  Add(fast, v1::TRACE_FORWARD, 100, "dense");
  Add(slow, v1::TRACE_COMPUTE, 31000);
  Add(ps, v1::TRACE_APPLY, 250);
  Add(ps, v1::TRACE_LOG, 4250);
  trace.nodes = {fast, slow, Node("worker-2", v1::WORKER), ps};
  EXPECT_EQ(TraceTable(trace),
            "mean time of a span, and of a step, in ms:\n"
            "worker     compute   forward      wait      step\n"
            "worker-1     31.00         -         -     31.00\n"
            "worker-0      1.50      0.40     30.50     30.50\n"
            "ps       apply       log\n"
            "ps-0      0.25      4.25\n"
            "slowest layers, mean time in a replica's step, in ms:\n"
            "layer   forward  backward      both\n"
            "dense      0.10      0.00      0.10\n");
}

// From the beginning of a replica's step to that of its next one, whatever is decoded ahead.
TEST(TraceTable, HasTheTimeOfAStep) {
  CollectedTrace trace;
  NodeTrace& node = trace.nodes.emplace_back(Node("w", v1::WORKER));
  for (int replica = 0; replica < 2; ++replica) {
    for (int step = 4; step < 8; ++step) {
      Add(node, v1::TRACE_COMPUTE, 1000);
      node.spans.back().set_replica(replica);
      node.spans.back().set_step(step);
      node.spans.back().set_begin_ns((step * (10 + 2 * replica) + 100) * 1'000'000);
      Add(node, v1::TRACE_DECODE, 500);
      node.spans.back().set_step(step + 2);
      node.spans.back().set_replica(replica);
    }
  }
  EXPECT_EQ(TraceTable(trace),
            "mean time of a span, and of a step, in ms:\n"
            "worker    decode   compute      step\n"
            "w           0.50      1.00     11.00\n");
}

TEST(TraceTable, HasTheSlowestLayersOfAllWorkers) {
  CollectedTrace trace;
  for (const char* name : {"worker-0", "worker-1"}) {
    NodeTrace& node = trace.nodes.emplace_back(Node(name, v1::WORKER));
    Add(node, v1::TRACE_COMPUTE, 20000);
    for (int layer = 0; layer < 7; ++layer) {
      Add(node, v1::TRACE_FORWARD, 100 * (layer + 1), absl::StrCat("layer-", layer));
      Add(node, v1::TRACE_BACKWARD, 300, absl::StrCat("layer-", layer));
    }
  }
  EXPECT_THAT(TraceTable(trace), HasSubstr("layer     forward  backward      both\n"
                                           "layer-6      0.70      0.30      1.00\n"
                                           "layer-5      0.60      0.30      0.90\n"
                                           "layer-4      0.50      0.30      0.80\n"
                                           "layer-3      0.40      0.30      0.70\n"
                                           "layer-2      0.30      0.30      0.60\n"));
  EXPECT_THAT(TraceTable(trace), Not(HasSubstr("layer-1")));
}

// A device that does not measure layers, or a step whose end is all that was recorded.
TEST(TraceTable, StepsWithoutLayersDoNotCount) {
  CollectedTrace trace;
  NodeTrace& layers = trace.nodes.emplace_back(Node("worker-0", v1::WORKER));
  for (int step = 0; step < 3; ++step) {
    Add(layers, v1::TRACE_COMPUTE, 1000);
    layers.spans.back().set_step(step);
    if (step == 2) break;
    for (const v1::TraceKind kind : {v1::TRACE_FORWARD, v1::TRACE_BACKWARD}) {
      Add(layers, kind, 300 * (step + 1), "dense");
      layers.spans.back().set_step(step);
    }
  }
  Add(trace.nodes.emplace_back(Node("worker-1", v1::WORKER)), v1::TRACE_COMPUTE, 1000);
  EXPECT_THAT(TraceTable(trace), HasSubstr("dense      0.45      0.45      0.90\n"));
}

TEST(TraceTable, AsJson) {
  CollectedTrace trace;
  trace.first_step = 3;
  trace.last_step = 3;
  NodeTrace worker = Node("worker-0", v1::WORKER), ps = Node("ps-0", v1::PS);
  Add(worker, v1::TRACE_COMPUTE, 1500);
  Add(worker, v1::TRACE_FORWARD, 500, "dense");
  ps.missing = "it is not connected";
  trace.nodes = {worker, ps};
  EXPECT_EQ(
      TraceSummaryJson(trace, {7, "glyphs", 20}, "/run/trace.json"),
      R"({"job_id":7,"job_name":"glyphs","file":"/run/trace.json","steps_wanted":20,"first_step":3,"last_step":3,)"
      R"("synchronous":true,"nodes":[{"name":"worker-0","role":"worker","spans":2,"missing":"",)"
      R"("mean_ms":{"compute":1.5},"step_ms":1.5},{"name":"ps-0","role":"ps","spans":0,)"
      R"("missing":"it is not connected","mean_ms":{},"step_ms":null}],)"
      R"("slowest_layers":[{"layer":"dense","forward_ms":0.5,"backward_ms":0.0}]})");
}

TEST(TraceTable, OfManyNodesItHasTheSlowest) {
  CollectedTrace trace;
  for (size_t i = 0; i < kTraceTableNodesMax + 3; ++i) {
    NodeTrace& node = trace.nodes.emplace_back(Node(absl::StrCat("w-", i), v1::WORKER));
    Add(node, v1::TRACE_COMPUTE, 1000 * static_cast<int64_t>(i + 1));
  }
  const std::string table = TraceTable(trace);
  EXPECT_THAT(table, HasSubstr("and 3 more\n"));
  EXPECT_THAT(table, HasSubstr("w-3 "));
  EXPECT_THAT(table, Not(HasSubstr("w-2 ")));
}

TEST(TraceTable, WithoutSpansThereIsNone) { EXPECT_EQ(TraceTable({}), ""); }

}  // namespace
}  // namespace cairn
