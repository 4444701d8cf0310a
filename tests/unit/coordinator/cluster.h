// A FakeCluster with nodes in it, and shorthands shared by the tests of ClusterCore.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/unit/coordinator/fake_cluster.h"

namespace cairn {

struct Cluster : FakeCluster {
  Cluster(int ps, int workers, int slots = 1) {
    for (int i = 0; i < ps; ++i) AddPs(absl::StrCat("ps-", i));
    for (int i = 0; i < workers; ++i) AddWorker(absl::StrCat("worker-", i), slots);
  }
  uint64_t SubmitOk(const v1::JobSpec& spec) {
    const ReplyToken token = Submit(spec);
    const Reply* reply = ReplyTo(token);
    EXPECT_NE(reply, nullptr);
    if (reply != nullptr) {
      EXPECT_TRUE(reply->status.ok()) << reply->status;
    }
    return SubmittedId(token);
  }
  std::vector<int32_t> Assigned(const std::string& worker, uint64_t job) {
    auto it = node(worker).assigned.find(job);
    if (it == node(worker).assigned.end()) return {};
    return {it->second.replicas().begin(), it->second.replicas().end()};
  }
  void Train(int steps) {
    for (int i = 0; i < steps; ++i) {
      TrainStep();
      Settle();
    }
  }
};

}  // namespace cairn
