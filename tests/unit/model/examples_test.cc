// Goal: the example jobs are valid: each passes the check of submission without a warning; one whose layers are adapted
// first (`cairn data adapt`) does with placeholders for their state.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "common/model/adaptable.h"
#include "common/model/job_check.h"
#include "google/protobuf/text_format.h"

namespace cairn {
namespace {

TEST(Examples, PassTheCheckOfSubmission) {
  const char* source = std::getenv("CAIRN_SOURCE");
  ASSERT_NE(source, nullptr) << "run by ctest, or set CAIRN_SOURCE to the root of the tree";
  int jobs = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(std::filesystem::path(source) / "examples")) {
    if (entry.path().extension() != ".textproto") continue;
    SCOPED_TRACE(entry.path().string());
    ++jobs;
    std::stringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    v1::JobSpec spec;
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(text.str(), &spec));
    if (spec.data().path().empty()) spec.mutable_data()->set_path("given by --set");
    for (v1::Layer& layer : *spec.mutable_model()->mutable_layers()) {
      if (IsUnadapted(layer)) SetPlaceholder(&layer);
    }
    const absl::StatusOr<CheckedJob> job = CheckJob(spec);
    ASSERT_TRUE(job.ok()) << job.status();
    EXPECT_THAT(job->warnings, testing::IsEmpty());
  }
  EXPECT_GE(jobs, 3);
}

}  // namespace
}  // namespace cairn
