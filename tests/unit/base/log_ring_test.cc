// LogRing: what is kept, what a query gives, and that whatever is missing is counted.
#include "common/base/log_ring.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace cairn {
namespace {

constexpr absl::Time kAt = absl::UnixEpoch();

std::vector<std::string> Texts(const LogTail& tail) {
  std::vector<std::string> texts;
  for (const KeptLine& line : tail.lines) texts.push_back(line.text);
  return texts;
}

TEST(LogRing, GivesTheLinesThatAQueryAsksFor) {
  LogRing ring;
  ring.Add(kAt, LogLevel::kInfo, "job 1: starts");
  ring.Add(kAt, LogLevel::kWarning, "job 12: waits");
  ring.Add(kAt + absl::Seconds(1), LogLevel::kError, "job 1: fails");
  EXPECT_EQ(Texts(ring.Read({})), (std::vector<std::string>{"job 1: starts", "job 12: waits", "job 1: fails"}));
  EXPECT_EQ(Texts(ring.Read({.level = LogLevel::kWarning})),
            (std::vector<std::string>{"job 12: waits", "job 1: fails"}));
  EXPECT_EQ(Texts(ring.Read({.job = 1})), (std::vector<std::string>{"job 1: starts", "job 1: fails"}));
  const LogTail after = ring.Read({.after = 2});
  ASSERT_EQ(after.lines.size(), 1u);
  EXPECT_EQ(after.lines[0].number, 3u);
  EXPECT_EQ(after.lines[0].time, kAt + absl::Seconds(1));
  EXPECT_EQ(after.last, 3u);
  EXPECT_EQ(after.dropped, 0u);
  EXPECT_TRUE(ring.Read({.after = 3}).lines.empty());
  EXPECT_TRUE(ring.Read({.after = 100}).lines.empty());
}

TEST(LogRing, CountsWhatItLeavesOut) {
  LogRing ring;
  for (int i = 1; i <= 10; ++i) ring.Add(kAt, LogLevel::kInfo, absl::StrCat("line ", i));
  const LogTail newest = ring.Read({.lines_max = 3});
  EXPECT_EQ(Texts(newest), (std::vector<std::string>{"line 8", "line 9", "line 10"}));
  EXPECT_EQ(newest.dropped, 7u);
  // Bytes count too, and a short old line does not come back behind a long one that was left out.
  ring.Add(kAt, LogLevel::kInfo, std::string(100, 'x'));
  ring.Add(kAt, LogLevel::kInfo, "end");
  const LogTail small = ring.Read({.bytes_max = 50});
  EXPECT_EQ(Texts(small), (std::vector<std::string>{"end"}));
  EXPECT_EQ(small.dropped, 11u);
}

TEST(LogRing, IsBoundedInLinesAndBytes) {
  LogRing lines;
  for (size_t i = 0; i < kLogLinesKept + 5; ++i) lines.Add(kAt, LogLevel::kInfo, "x");
  const LogTail all = lines.Read({.lines_max = kLogLinesKept * 2});
  EXPECT_EQ(all.lines.size(), kLogLinesKept);
  EXPECT_EQ(all.dropped, 5u);
  EXPECT_EQ(all.lines.front().number, 6u);
  EXPECT_EQ(lines.Read({.after = 3}).dropped, 2 + (kLogLinesKept - 1000));

  LogRing bytes;
  for (size_t i = 0; i < 3 * kLogBytesKept / kLogLineBytesMax; ++i)
    bytes.Add(kAt, LogLevel::kInfo, std::string(2 * kLogLineBytesMax, 'y'));
  size_t kept = 0;
  for (const KeptLine& line : bytes.Read({.bytes_max = 2 * kLogBytesKept}).lines) {
    EXPECT_EQ(line.text.size(), kLogLineBytesMax);
    kept += line.text.size();
  }
  EXPECT_EQ(kept, kLogBytesKept);
}

TEST(LogRing, HasWhatTheProcessLogs) {
  const uint64_t before = ProcessLog().Read({}).last;
  LogInfo("job %d: hello", 7);
  LogDebug("%s", "not enabled, so not kept");
  const LogTail tail = ProcessLog().Read({.after = before});
  ASSERT_EQ(tail.lines.size(), 1u);
  EXPECT_EQ(tail.lines[0].text, "job 7: hello");
  EXPECT_EQ(tail.lines[0].level, LogLevel::kInfo);
}

}  // namespace
}  // namespace cairn
