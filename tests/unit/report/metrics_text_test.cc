// Goal: what Prometheus reads of a cluster: every family once, with help and type before its values; labels escaped;
// figures of jobs that have not ended. A parser of the format's lines reads everything back.
#include "common/report/metrics_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <regex>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace cairn {
namespace {

// By "name{labels}". Fails where a line is none of the format, a value has no TYPE, or a family stands in two places.
std::map<std::string, std::string> Parse(const std::string& text) {
  static const std::regex kLine(R"re(([a-z_]+)(\{(?:[a-z_]+="(?:[^"\\\n]|\\[\\"n])*",?)*\})? (\S+))re");
  std::map<std::string, std::string> values;
  std::set<std::string> families;
  std::string family;
  EXPECT_TRUE(absl::EndsWith(text, "\n"));
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    if (words[0] == "#") {
      if (words[1] == "TYPE") {
        EXPECT_TRUE(families.insert(family = words[2]).second) << line;
        EXPECT_EQ(words[3], "gauge");
      }
      continue;
    }
    std::cmatch match;
    const std::string copy(line);
    EXPECT_TRUE(std::regex_match(copy.c_str(), match, kLine)) << line;
    EXPECT_EQ(match[1], family) << line;
    EXPECT_TRUE(values.emplace(match[1].str() + match[2].str(), match[3]).second) << "twice: " << line;
  }
  return values;
}

v1::NodeStatus Node(const std::string& name, v1::Role role) {
  v1::NodeStatus node;
  node.set_name(name);
  node.set_role(role);
  node.set_host("h");
  node.set_alive(true);
  return node;
}

TEST(Metrics, Nodes) {
  v1::NodeStatus ps = Node("ps-0", v1::PS), worker = Node("w", v1::WORKER);
  ps.set_partitions(5);
  ps.set_primaries(3);
  ps.set_fault("its disk is full");
  ps.set_memory_bytes(uint64_t{5} << 30);
  ps.set_last_heartbeat_unix_ms(1'700'000'000'500);
  worker.set_alive(false);
  worker.set_slots(4);
  worker.set_slots_used(1);
  const auto values = Parse(MetricsText({ps, worker}, {}));
  EXPECT_EQ(values.at("cairn_coordinator_up"), "1");
  const std::string p = R"({node="ps-0",role="ps",host="h"})", w = R"({node="w",role="worker",host="h"})";
  EXPECT_EQ(values.at("cairn_node_up" + p), "1");
  EXPECT_EQ(values.at("cairn_node_up" + w), "0");
  EXPECT_EQ(values.at("cairn_node_failed" + p), "1");
  EXPECT_EQ(values.at("cairn_node_primaries" + p), "3");
  EXPECT_EQ(values.at("cairn_node_backups" + p), "2");
  EXPECT_EQ(values.at("cairn_node_resident_memory_bytes" + p), "5368709120");
  EXPECT_EQ(values.at("cairn_node_last_heartbeat_timestamp_seconds" + p), "1700000000.5");
  EXPECT_EQ(values.at("cairn_node_slots" + w), "4");
  EXPECT_EQ(values.at("cairn_node_slots_used" + w), "1");
  EXPECT_EQ(values.count("cairn_node_slots" + p), 0u);
  EXPECT_EQ(values.at(R"(cairn_jobs{state="running"})"), "0")
      << "a state without jobs is there too: rates and alerts need the zero";
}

TEST(Metrics, AJobThatRuns) {
  v1::JobStatus job;
  job.set_job_id(3);
  job.mutable_spec()->set_name("fashion");
  job.mutable_spec()->add_metrics()->set_kind(v1::Metric::ACCURACY);
  job.mutable_spec()->set_strategy(v1::PARAMETER_SERVER);
  job.mutable_spec()->mutable_checkpoints()->set_dir("/c");
  job.set_state(v1::RUNNING);
  job.set_step(42);
  job.set_total_steps(100);
  job.set_images_per_second(1234.5);
  job.mutable_degraded()->set_partitions(3);
  job.set_staleness_mean(0.5);
  job.set_checkpoint_error("no room");
  job.set_not_finite_step(0);
  auto* checkpoint = job.add_checkpoints();
  checkpoint->set_step(40);
  checkpoint->set_written_unix_ms(2000);
  job.mutable_epoch_sums()->set_examples(4);
  job.mutable_epoch_sums()->set_loss(std::numeric_limits<double>::quiet_NaN());
  job.mutable_epoch_sums()->add_metrics(3);
  auto* validation = job.add_epochs()->mutable_validation();
  validation->set_examples(2);
  validation->set_loss(3);
  validation->add_metrics(1);
  job.add_epochs();  // without a validation: the one before is the last
  v1::JobStatus ended = job;
  ended.set_job_id(2);
  ended.set_state(v1::SUCCEEDED);
  ended.clear_degraded();
  const auto values = Parse(MetricsText({}, {job, ended}));
  const auto of = [](const std::string& name, const std::string& more = "") {
    return name + R"({job="3",name="fashion")" + more + "}";
  };
  EXPECT_EQ(values.at(of("cairn_job_state", R"(,state="running")")), "1");
  EXPECT_EQ(values.at(of("cairn_job_step")), "42");
  EXPECT_EQ(values.at(of("cairn_job_total_steps")), "100");
  EXPECT_EQ(values.at(of("cairn_job_images_per_second")), "1234.5");
  EXPECT_EQ(values.at(of("cairn_job_partitions_underreplicated")), "3");
  EXPECT_EQ(values.at(of("cairn_job_staleness_mean")), "0.5");
  EXPECT_EQ(values.at(of("cairn_job_checkpoint_failed")), "1");
  EXPECT_EQ(values.at(of("cairn_job_not_finite")), "1");
  EXPECT_EQ(values.at(R"(cairn_jobs{state="ended with errors"})"), "0");
  EXPECT_EQ(values.at(of("cairn_job_checkpoint_step")), "40");
  EXPECT_EQ(values.at(of("cairn_job_checkpoint_timestamp_seconds")), "2");
  EXPECT_EQ(values.at(of("cairn_job_figure", R"(,split="train",figure="loss")")), "NaN");
  EXPECT_EQ(values.at(of("cairn_job_figure", R"(,split="train",figure="accuracy")")), "0.75");
  EXPECT_EQ(values.at(of("cairn_job_figure", R"(,split="validation",figure="loss")")), "1.5");
  EXPECT_EQ(values.at(R"(cairn_jobs{state="succeeded"})"), "1");
  for (const auto& [name, value] : values)
    EXPECT_FALSE(absl::StrContains(name, R"(job="2")")) << name << ": it has ended";
}

TEST(Metrics, WhatIsNotKnownYetIsNotThere) {
  v1::NodeStatus waited_for = Node("ps-0", v1::PS), fresh = Node("ps-1", v1::PS);
  waited_for.set_alive(false);
  waited_for.set_expected(true);
  fresh.set_not_ready("it has only just joined");
  v1::JobStatus job, ended;
  job.set_state(v1::RUNNING);
  ended.set_job_id(7);
  ended.set_state(v1::CANCELLED);
  ended.mutable_degraded()->set_partitions(2);
  const std::string text = MetricsText({waited_for, fresh}, {job, ended});
  const auto values = Parse(text);
  EXPECT_FALSE(absl::StrContains(text, "ps-0"));
  EXPECT_FALSE(absl::StrContains(text, "cairn_node_resident_memory_bytes"));
  EXPECT_EQ(values.at(R"(cairn_node_ready{node="ps-1",role="ps",host="h"})"), "0");
  EXPECT_FALSE(absl::StrContains(text, "cairn_job_images_per_second"));
  EXPECT_EQ(values.at(R"(cairn_job_partitions_underreplicated{job="0",name=""})"), "0");
  EXPECT_EQ(values.at(R"(cairn_job_partitions_underreplicated{job="7",name=""})"), "2") << "its weights are at risk";
}

// Two lines with the same labels make a reader refuse the whole page; Parse fails there.
TEST(Metrics, AMetricNamedTwiceStandsOnce) {
  v1::JobStatus job;
  job.set_job_id(3);
  job.set_state(v1::RUNNING);
  for (int i = 0; i < 2; ++i) job.mutable_spec()->add_metrics()->set_kind(v1::Metric::ACCURACY);
  for (v1::MetricSums* sums : {job.mutable_epoch_sums(), job.add_epochs()->mutable_validation()}) {
    sums->set_examples(4);
    sums->add_metrics(3);
    sums->add_metrics(3);
  }
  const auto values = Parse(MetricsText({}, {job}));
  for (const char* split : {"train", "validation"}) {
    EXPECT_EQ(values.at(absl::StrCat(R"(cairn_job_figure{job="3",name="",split=")", split, R"(",figure="accuracy"})")),
              "0.75");
  }
}

TEST(Metrics, TextsOfOthersAreEscaped) {
  const auto values = Parse(MetricsText({Node("a\"b\\c\nd", v1::WORKER)}, {}));
  EXPECT_EQ(values.at(R"(cairn_node_up{node="a\"b\\c\nd",role="worker",host="h"})"), "1");
}

TEST(Metrics, WithoutACluster) {
  EXPECT_EQ(Parse(MetricsTextWithoutCluster()), (std::map<std::string, std::string>{{"cairn_coordinator_up", "0"}}));
}

}  // namespace
}  // namespace cairn
