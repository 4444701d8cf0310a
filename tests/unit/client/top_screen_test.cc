// Goal: the screen of `cairn top` has unfinished jobs first and sick nodes first, fits the terminal, and says what it
// leaves out.
#include "client/cli/top_screen.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tests/unit/model/model_text.h"

namespace cairn {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

v1::JobStatus Job(int id, const std::string& text) {
  return FromText<v1::JobStatus>(absl::StrCat("job_id: ", id, " ", text));
}

v1::NodeStatus Node(const std::string& name, const std::string& text) {
  return FromText<v1::NodeStatus>(absl::StrCat("name: '", name, "' ", text));
}

TopInput Input() {
  TopInput input;
  input.address = "127.0.0.1:7070";
  input.zone = absl::UTCTimeZone();
  input.now = absl::FromUnixSeconds(3661);
  input.nodes = {Node("ps-0", "role: PS alive: true partitions: 2 primaries: 2"),
                 Node("worker-0", "role: WORKER alive: true slots: 2 slots_used: 1"),
                 Node("worker-1", "role: WORKER slots: 2 last_heartbeat_unix_ms: 3601000")};
  input.jobs = {
      Job(4, "state: QUEUED spec { name: 'next' } reason: 'waits for 1 slot'"),
      Job(3,
          "state: RUNNING spec { name: 'small' batch_size: 50 } step: 30 total_steps: 120 images_per_second: 1500 "
          "epoch_sums { examples: 4 loss: 2 }"),
      Job(2, "state: FAILED spec { name: 'broken' } reason: 'no memory' not_finite_step: 7"),
      Job(1, "state: SUCCEEDED spec { name: 'old' } step: 10 total_steps: 10"),
  };
  return input;
}

TEST(TopScreen, ShowsUnfinishedJobsAndSickNodesFirst) {
  EXPECT_THAT(
      TopScreen(Input(), {}),
      ElementsAre("cairn top - 127.0.0.1:7070 - 01:01:01 - 1 ps, 1 worker, 1 away, 1 of 2 slots used - jobs: 1 "
                  "queued, 1 running, 2 ended",
                  "", StartsWith("JOB  NAME    STATE      STEP          IMAGES/S  LEFT  LOSS    NOTE"),
                  StartsWith("3    small   running    30/120 (25%)  1,500     3.0s  0.5000"),
                  AllOf(StartsWith("4    next    queued  "), EndsWith("  waits for 1 slot")),
                  AllOf(StartsWith("2    broken  failed  "), EndsWith("  no memory; loss not finite since step 7")),
                  StartsWith("1    old     succeeded  10/10 (100%)"), "", StartsWith("NAME      ROLE"),
                  AllOf(StartsWith("worker-1"), HasSubstr("dead for 1m00s")), StartsWith("ps-0"),
                  StartsWith("worker-0")));
}

TEST(TopScreen, FitsTheTerminalAndSaysWhatItLeavesOut) {
  TopInput input = Input();
  for (int i = 5; i < 105; ++i)
    input.jobs.insert(input.jobs.begin(), Job(i, "state: QUEUED spec { name: 'm\303\274ller' }"));
  for (int i = 2; i < 52; ++i) input.nodes.push_back(Node(absl::StrCat("worker-", i), "role: WORKER alive: true"));
  for (const int height : {0, 1, 2, 3, 5, 6, 8, 24, 60}) {
    for (const int width : {1, 30, 80}) {
      const std::vector<std::string> lines = TopScreen(input, {.width = width, .height = height});
      if (width > 1 && height >= 5) {
        EXPECT_THAT(lines, Contains(HasSubstr("more job"))) << height;
        EXPECT_THAT(lines, Contains(HasSubstr("more node"))) << height;
      }
      if (height > 0) {
        EXPECT_LE(lines.size(), static_cast<size_t>(height));
      }
      for (const std::string& line : lines) {
        const auto characters = std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xC0) != 0x80; });
        EXPECT_LE(characters, width) << line;
      }
    }
  }
  const std::vector<std::string> lines = TopScreen(input, {.height = 24});
  EXPECT_EQ(lines.size(), 24u);
  EXPECT_THAT(lines, Contains("and 96 more jobs"));
  EXPECT_THAT(lines, Contains("and 44 more nodes"));
  EXPECT_THAT(TopScreen(input, {}), Not(Contains(HasSubstr("more"))));
}

TEST(TopScreen, ATracebackIsOneLine) {
  TopInput input;
  input.jobs = {Job(1, "state: FAILED reason: 'Traceback:\\n  line 1\\n\\033[31mred'")};
  const std::vector<std::string> lines = TopScreen(input, {});
  EXPECT_THAT(lines, Contains(HasSubstr("Traceback:   line 1  [31mred")));
}

TEST(TopScreen, SaysWhyANodeIsNotWell) {
  TopInput input = Input();
  input.nodes[0].set_not_ready("2 copies are not in sync\nyet");
  for (const int height : {0, 12}) {
    EXPECT_THAT(TopScreen(input, {.height = height}), Contains("ps-0: 2 copies are not in sync yet")) << height;
  }
}

TEST(TopScreen, SaysThatItIsOld) {
  TopInput input = Input();
  input.trouble = "127.0.0.1:7070: connection refused";
  EXPECT_EQ(TopScreen(input, {})[1], "what follows is old: 127.0.0.1:7070: connection refused");
}

TEST(TopScreen, AnEmptyClusterHasHeadersOnly) {
  TopInput input;
  input.address = "a:1";
  EXPECT_THAT(TopScreen(input, {}), Contains(HasSubstr("0 ps, 0 workers, 0 of 0 slots used - jobs: 0 ended")));
}

TEST(TopScreen, ColoursWholeLines) {
  const std::vector<std::string> lines = TopScreen(Input(), {.width = 20, .colours = true});
  EXPECT_EQ(lines[5], "\x1b[31m2    broken  failed \x1b[0m");
}

}  // namespace
}  // namespace cairn
