// Jobs with callbacks, and what the callbacks recorded. Shared by the tests of ClusterCore's callbacks.
#pragma once

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/unit/coordinator/cluster.h"

namespace cairn {

inline constexpr int kSteps = 5;  // of an epoch

inline v1::JobSpec SpecWith(const std::string& more, int epochs = 8) {
  v1::JobSpec spec = FakeCluster::Spec();
  spec.set_epochs(epochs);
  v1::JobSpec change;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(more, &change));
  spec.MergeFrom(change);
  return spec;
}

inline std::vector<std::string> NotesOf(const v1::JobStatus& job) {
  std::vector<std::string> notes;
  for (const v1::CallbackNote& n : job.notes())
    notes.push_back(absl::StrCat(n.epoch() + 1, " ", n.callback(), ": ", n.text()));
  return notes;
}

}  // namespace cairn
