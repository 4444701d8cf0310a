// Goal: the changes of a job's state are those in the table of job_state.h, and no others.
#include "coordinator/core/job_state.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "common/model/state_text.h"

namespace cairn {
namespace {

using States = std::set<v1::JobState>;

States All() {
  States all;
  for (int i = v1::JobState_MIN; i <= v1::JobState_MAX; ++i) {
    if (v1::JobState_IsValid(i)) all.insert(static_cast<v1::JobState>(i));
  }
  return all;
}

States After(v1::JobState from) {
  States found;
  for (const v1::JobState to : All()) {
    if (MayFollow(from, to)) found.insert(to);
  }
  return found;
}

TEST(JobState, TheTable) {
  using enum v1::JobState;
  const std::map<v1::JobState, States> table = {
      {JOB_STATE_UNSPECIFIED, {QUEUED}},
      {QUEUED, {STARTING, FAILED, CANCELLED}},
      {STARTING, {STARTING, RUNNING, FINALIZING, FAILED, CANCELLED}},
      {RUNNING, {STARTING, FINALIZING, FAILED, CANCELLED}},
      {FINALIZING, {STARTING, RUNNING, SUCCEEDED, ENDED_WITH_ERRORS, FAILED, CANCELLED}},
      {SUCCEEDED, {}},
      {ENDED_WITH_ERRORS, {}},
      {FAILED, {}},
      {CANCELLED, {}},
  };
  for (const v1::JobState from : All()) {
    ASSERT_TRUE(table.contains(from)) << "a new state: " << v1::JobState_Name(from);
    EXPECT_EQ(After(from), table.at(from)) << v1::JobState_Name(from);
  }
}

TEST(JobState, AFinalStateIsNeverLeft) {
  for (const v1::JobState from : All()) {
    if (IsFinal(from)) {
      EXPECT_TRUE(After(from).empty()) << v1::JobState_Name(from);
    }
  }
}

}  // namespace
}  // namespace cairn
