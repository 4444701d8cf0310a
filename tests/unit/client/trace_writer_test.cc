// Goal: WriteTrace gives JSON of the Chrome trace event format: names with quotes and of any script, times of one
// clock, threads whose events lie within one another, and what is missing.
#include "client/cli/trace_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

namespace cairn {
namespace {

using Json = nlohmann::json;

v1::TraceSpan Span(v1::TraceKind kind, v1::TraceTrack track, int64_t begin, int64_t duration) {
  v1::TraceSpan span;
  span.set_kind(kind);
  span.set_track(track);
  span.set_begin_ns(begin);
  span.set_duration_ns(duration);
  span.set_step(4);
  return span;
}

Json Written(const CollectedTrace& trace) {
  std::ostringstream out;
  WriteTrace(trace, {7, "job \"a\"\n\u00e9", 20}, out);
  return Json::parse(out.str());
}

std::vector<Json> Events(const Json& written, const std::string& phase, const std::string& name = "") {
  std::vector<Json> found;
  for (const Json& event : written["traceEvents"]) {
    if (event["ph"] == phase && (name.empty() || event["name"] == name)) found.push_back(event);
  }
  return found;
}

TEST(WriteTrace, IsJsonWhateverTheNames) {
  CollectedTrace trace;
  trace.first_step = 4;
  trace.last_step = 4;
  NodeTrace& worker = trace.nodes.emplace_back();
  worker.name = "w\"\\\u4e16";
  worker.role = v1::WORKER;
  worker.offset_ns = -1'000'000;
  worker.uncertainty_ns = 1'500;
  worker.spans.push_back(Span(v1::TRACE_FORWARD, v1::TRACE_SLOT, 2'001, 10'010));
  worker.spans.back().set_text("conv \"1\"\t\u00fc\xff");
  worker.spans.back().set_replica(0);
  worker.spans.push_back(Span(v1::TRACE_PUSH, v1::TRACE_PARTITION, 1'000, 500));
  worker.spans.back().set_partition(0);
  worker.spans.back().set_bytes(4096);
  NodeTrace& silent = trace.nodes.emplace_back();
  silent.name = "ps-0";
  silent.role = v1::PS;
  silent.missing = "it is not connected";
  const Json written = Written(trace);
  EXPECT_EQ(written["displayTimeUnit"], "ms");
  EXPECT_EQ(written["otherData"]["job_name"], "job \"a\"\n\u00e9");
  EXPECT_EQ(written["otherData"]["first_step"], 4);
  EXPECT_EQ(written["otherData"]["missing"], Json({{"ps-0", "it is not connected"}}));
  const std::vector<Json> processes = Events(written, "M", "process_name");
  ASSERT_EQ(processes.size(), 2u);
  EXPECT_EQ(processes[0]["args"]["name"], "worker w\"\\\u4e16");
  EXPECT_EQ(processes[0]["args"]["clock_uncertainty_us"], 1.5);
  EXPECT_EQ(processes[1]["args"]["name"], "ps ps-0");
  EXPECT_EQ(processes[1]["args"]["missing"], "it is not connected");
  EXPECT_FALSE(processes[1]["args"].contains("clock_uncertainty_us"));
  const std::vector<Json> spans = Events(written, "X");
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(spans[0]["name"], "push");
  EXPECT_EQ(spans[0]["ts"], 0.0) << "the first event";
  EXPECT_EQ(spans[0]["args"], Json({{"step", 4}, {"partition", 0}, {"bytes", 4096}}));
  EXPECT_EQ(spans[1]["name"], "conv \"1\"\t\u00fc\ufffd");
  EXPECT_EQ(spans[1]["cat"], "forward");
  EXPECT_EQ(spans[1]["ts"], 1.001);
  EXPECT_EQ(spans[1]["dur"], 10.010);
  EXPECT_EQ(spans[1]["args"]["replica"], 0);
}

TEST(WriteTrace, AlignsTheClocksOfTheNodes) {
  CollectedTrace trace;
  for (const int64_t offset : {int64_t{5'000'000}, int64_t{-3'000'000}}) {
    NodeTrace& node = trace.nodes.emplace_back();
    node.role = v1::PS;
    node.offset_ns = offset;
    node.spans.push_back(Span(v1::TRACE_APPLY, v1::TRACE_PARTITION, offset + 1'000'000'000'000'000'000, 10));
  }
  trace.nodes[1].spans[0].set_begin_ns(trace.nodes[1].spans[0].begin_ns() + 7'000);
  const std::vector<Json> spans = Events(Written(trace), "X");
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(spans[0]["ts"], 0.0);
  EXPECT_EQ(spans[1]["ts"], 7.0);
}

TEST(WriteTrace, SpansOfAThreadLieWithinOneAnother) {
  CollectedTrace trace;
  NodeTrace& node = trace.nodes.emplace_back();
  node.role = v1::PS;
  node.offset_ns = 0;
  for (const auto& [begin, duration] :
       std::vector<std::pair<int64_t, int64_t>>{{30, 5}, {10, 20}, {10, 10}, {20, 10}, {15, 30}, {50, 0}, {45, 5}}) {
    node.spans.push_back(Span(v1::TRACE_APPLY, v1::TRACE_PARTITION, begin, duration));
  }
  const Json written = Written(trace);
  std::map<int, std::vector<int>> begins;
  for (const Json& span : Events(written, "X"))
    begins[span["tid"]].push_back(static_cast<int>(span["ts"].get<double>() * 1000 + 10.5));
  EXPECT_EQ(begins, (std::map<int, std::vector<int>>{{1, {10, 10, 20, 30, 45, 50}}, {2, {15}}}));
  std::vector<std::string> names;
  for (const Json& thread : Events(written, "M", "thread_name")) names.push_back(thread["args"]["name"]);
  EXPECT_EQ(names, (std::vector<std::string>{"partition 0", "partition 0 (2)"}));
}

TEST(WriteTrace, NothingIsJsonToo) { EXPECT_EQ(Written(CollectedTrace())["traceEvents"], Json::array()); }

}  // namespace
}  // namespace cairn
