// LogFollower: lines of several daemons by time, each once, and a note for whatever is missing.
#include "client/cli/log_follower.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Daemons by name, each with its log.
struct FakeDaemons {
  struct Daemon {
    uint64_t process = 1;
    std::vector<std::pair<int64_t, std::string>> lines;
    uint64_t dropped = 0;
    absl::Status down;
  };
  std::map<std::string, Daemon> daemons;
  std::vector<v1::ReadLogRequest> requests;

  absl::StatusOr<v1::ReadLogResponse> Read(const v1::ReadLogRequest& request) {
    requests.push_back(request);
    const Daemon& daemon = daemons.at(request.node());
    if (!daemon.down.ok()) return daemon.down;
    v1::ReadLogResponse response;
    const size_t from = request.process() == daemon.process ? request.after() : 0;
    for (size_t i = from; i < daemon.lines.size(); ++i) {
      v1::LoggedLine& line = *response.add_lines();
      line.set_number(i + 1);
      line.set_unix_ms(daemon.lines[i].first);
      line.set_severity(v1::LOG_SEVERITY_WARNING);
      line.set_text(daemon.lines[i].second);
    }
    response.set_last(daemon.lines.size());
    response.set_process(daemon.process);
    response.set_dropped(daemon.dropped);
    return response;
  }
};

std::vector<std::string> Texts(const LogFollower::Round& round) {
  std::vector<std::string> texts;
  for (const DaemonLine& line : round.lines) texts.push_back(line.daemon + " " + line.line.text());
  return texts;
}

TEST(LogFollower, GivesEachLineOnceByTime) {
  FakeDaemons fake;
  fake.daemons[""].lines = {{10, "a"}, {30, "c"}};
  fake.daemons["ps-0"].lines = {{20, "b"}};
  v1::ReadLogRequest what;
  what.set_job_id(7);
  what.set_limit(2);
  LogFollower follower([&](const auto& request) { return fake.Read(request); }, what);
  const std::vector<std::string> daemons = {kCoordinatorLog, "ps-0"};
  EXPECT_THAT(Texts(follower.Next(daemons)), ElementsAre("coordinator a", "ps-0 b", "coordinator c"));
  EXPECT_EQ(fake.requests[0].node(), "");
  EXPECT_EQ(fake.requests[1].job_id(), 7u);
  EXPECT_EQ(fake.requests[1].limit(), 2);
  fake.daemons["ps-0"].lines.emplace_back(40, "d");
  const LogFollower::Round next = follower.Next(daemons);
  EXPECT_THAT(Texts(next), ElementsAre("ps-0 d"));
  EXPECT_THAT(next.notes, IsEmpty());
  EXPECT_GT(fake.requests.back().limit(), 2) << "the limit is for the lines before";
  EXPECT_THAT(Texts(follower.Next(daemons)), IsEmpty());
}

TEST(LogFollower, SaysWhatIsMissing) {
  FakeDaemons fake;
  fake.daemons["ps-0"].lines = {{1, "a"}};
  fake.daemons["ps-0"].dropped = 9;
  LogFollower follower([&](const auto& request) { return fake.Read(request); }, {});
  EXPECT_THAT(follower.Next({"ps-0"}).notes, IsEmpty()) << "the newest lines were asked for";
  fake.daemons["ps-0"].lines.emplace_back(2, "b");
  EXPECT_THAT(follower.Next({"ps-0"}).notes, ElementsAre("ps-0: up to 9 lines in between are lost"));
  fake.daemons["ps-0"].dropped = 0;
  fake.daemons["ps-0"].process = 2;
  const LogFollower::Round anew = follower.Next({"ps-0"});
  EXPECT_THAT(anew.notes, ElementsAre(HasSubstr("ps-0: was started again")));
  EXPECT_THAT(Texts(anew), ElementsAre("ps-0 a", "ps-0 b"));
  fake.daemons["ps-0"].down = absl::UnavailableError("gone");
  const LogFollower::Round down = follower.Next({"ps-0"});
  EXPECT_THAT(down.notes, ElementsAre("ps-0: gone"));
  EXPECT_EQ(down.answers, 0u);
  EXPECT_EQ(down.trouble.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(follower.Next({"ps-0"}).notes, IsEmpty()) << "it was said";
}

TEST(LogFollower, LinesAreAsInTheDaemonsOwnLog) {
  DaemonLine line{"ps-0", {}};
  line.line.set_unix_ms(1500);
  line.line.set_severity(v1::LOG_SEVERITY_ERROR);
  line.line.set_text("job 1: \"x\"");
  EXPECT_EQ(OneLine("a\nb\x1b[1m"), "a\\x0ab\\x1b[1m");
  EXPECT_EQ(LogLineText(line, absl::UTCTimeZone()), "1970-01-01 00:00:01.500 E ps-0] job 1: \"x\"");
  EXPECT_EQ(LogLineJson(line),
            R"({"daemon":"ps-0","number":0,"time_ms":1500,"severity":"error","text":"job 1: \"x\""})");
  EXPECT_EQ(*ParseSeverity("warning"), v1::LOG_SEVERITY_WARNING);
  EXPECT_THAT(std::string(ParseSeverity("loud").status().message()), HasSubstr("use debug, info, warning or error"));
}

}  // namespace
}  // namespace cairn
