// Goal: what a core does in each scene of tests/transcripts/*.txt is what is written there, effect for effect. A file
// that begins with cluster_ drives the coordinator's core, one that begins with partition_ the core of a ps.
//
//   CAIRN_REWRITE_TRANSCRIPTS=1 build/release/tests/test_transcripts     writes the files anew; look at what changed
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "tests/transcripts/cluster_script.h"
#include "tests/transcripts/partition_script.h"

namespace cairn {
namespace {

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(CAIRN_TRANSCRIPTS)) {
    const std::string name = entry.path().stem();
    const bool scene = absl::StartsWith(name, "cluster_") || absl::StartsWith(name, "partition_");
    if (scene && entry.path().extension() == ".txt") names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

absl::StatusOr<std::string> ReplayScene(const std::string& name, const std::string& text) {
  if (absl::StartsWith(name, "partition_")) {
    PartitionScript script;
    return Replay(text, [&](const Command& command) { return script.Run(command); });
  }
  ClusterScript script;
  return Replay(text, [&](const Command& command) { return script.Run(command); });
}

class Transcript : public testing::TestWithParam<std::string> {};

TEST_P(Transcript, HoldsWhatIsWritten) {
  const std::string path = std::string(CAIRN_TRANSCRIPTS) + "/" + GetParam() + ".txt";
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  const absl::StatusOr<std::string> found = ReplayScene(GetParam(), text.str());
  ASSERT_TRUE(found.ok()) << path << ": " << found.status();
  if (std::getenv("CAIRN_REWRITE_TRANSCRIPTS") != nullptr) {
    std::ofstream(path) << *found;
  } else {
    EXPECT_EQ(*found, text.str()) << path << " is another; CAIRN_REWRITE_TRANSCRIPTS=1 writes it anew";
  }
}

INSTANTIATE_TEST_SUITE_P(Scenes, Transcript, testing::ValuesIn(Names()),
                         [](const testing::TestParamInfo<std::string>& info) { return info.param; });

TEST(TranscriptFormat, OutputsAreWrittenAnewAndCommentsKept) {
  const auto echo = [](const Command& command) -> absl::StatusOr<std::string> { return command.rest() + "\n"; };
  const std::string whole = "# Why.\n\nsay a b\n----\na b\n\nsay c\n----\nc\n";
  EXPECT_EQ(Replay(whole, echo).value(), whole);
  EXPECT_EQ(Replay("# Why.\n\nsay a b\n----\nother\nlines\n\nsay c\n", echo).value(), whole);
}

TEST(TranscriptFormat, AnErrorNamesTheLine) {
  ClusterScript script;
  const auto found = Replay("# Why.\nfly away\n", [&](const Command& command) { return script.Run(command); });
  EXPECT_EQ(found.status().message(), "line 2, \"fly away\": there is no node \"away\"");
  EXPECT_TRUE(absl::IsInvalidArgument(script.Run(Command("train many")).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(script.Run(Command("submit nonsense: 1")).status()));
}

}  // namespace
}  // namespace cairn
