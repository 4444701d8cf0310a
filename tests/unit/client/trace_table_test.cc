// Goal: the table of a trace has the mean of each kind of span by node, the slowest nodes first and few of many; layers
// and nodes without spans are left out.
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
            "mean time of a span, in ms:\n"
            "worker     compute   forward      wait\n"
            "worker-1     31.00         -         -\n"
            "worker-0      1.50      0.40     30.50\n"
            "ps       apply       log\n"
            "ps-0      0.25      4.25\n");
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
