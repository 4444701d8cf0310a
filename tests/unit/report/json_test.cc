// Goal: scripts and browsers read from the JSON what was meant: numbers that they would round are written as text.
#include "common/report/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cairn {
namespace {

using testing::HasSubstr;

TEST(Json, ASeedThatADoubleCannotHoldIsText) {
  v1::JobStatus job;
  job.mutable_spec()->set_seed(uint64_t{1} << 53);
  EXPECT_THAT(JobJson(job), HasSubstr("\"seed\":9007199254740992"));
  job.mutable_spec()->set_seed((uint64_t{1} << 53) + 1);
  EXPECT_THAT(JobJson(job), HasSubstr("\"seed\":\"9007199254740993\""));
  job.mutable_spec()->set_seed(UINT64_MAX);
  EXPECT_THAT(JobJson(job), HasSubstr("\"seed\":\"18446744073709551615\""));
}

}  // namespace
}  // namespace cairn
