// Goal: a sweep's folder reads back as it was written, refuses damage with the line, and is used by one process at a
// time; the page shows words of users as text only.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "client/cli/sweep/page.h"
#include "client/cli/sweep/record.h"
#include "client/cli/sweep/report.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class SweepFolderTest : public ::testing::Test {
 protected:
  SweepFolderTest() {
    char name[] = "/tmp/cairn-sweep-XXXXXX";
    dir_ = mkdtemp(name);
  }
  ~SweepFolderTest() override { std::filesystem::remove_all(dir_); }

  std::string Text(const std::string& name) const {
    std::ifstream in(dir_ + "/" + name);
    std::stringstream text;
    text << in.rdbuf();
    return text.str();
  }
  void Put(const std::string& name, const std::string& text) const { std::ofstream(dir_ + "/" + name) << text; }

  std::string dir_;
};

SweepDefinition Definition() {
  SweepDefinition definition;
  definition.job.set_name("glyphs");
  definition.job.mutable_optimizer()->set_learning_rate(0.1f);
  definition.flags.grid = {"batch_size=32,64"};
  definition.flags.ranges = {"optimizer.learning_rate=0.1:1"};
  definition.flags.random = 3;
  definition.flags.seed = 1ull << 63;
  definition.flags.by = "val_loss";
  definition.flags.mode = "min";
  definition.flags.halving = {true, 4, 2};
  definition.key = "0123";
  return definition;
}

Trial Finished() {
  Trial trial;
  trial.number = 1;
  trial.parameters = {{"batch_size", "32"}, {"data.path", "</script><b>\"x\""}};
  trial.state = TrialState::kSucceeded;
  trial.runs = 2;
  trial.jobs = {4, 9};
  trial.rung = 1;
  trial.scores = {{1, 0.5}, {2, std::numeric_limits<double>::quiet_NaN()}, {3, 0.25}};
  trial.epochs = 3;
  trial.figures = {{"loss", 0.125}, {"val_loss", 0.25}};
  trial.checkpoint = "/data/step-30";
  trial.checkpoint_step = 30;
  trial.resumed_step = 10;
  trial.steps_per_epoch = 10;
  trial.reason = "all \"good\"";
  return trial;
}

Trial Running() {
  Trial trial;
  trial.number = 2;
  trial.parameters = {{"batch_size", "64"}, {"data.path", "/x"}};
  trial.state = TrialState::kRunning;
  trial.runs = 1;
  trial.jobs = {5};
  return trial;
}

Sweep SomeSweep() {
  SweepOptions options;
  options.by = "val_loss";
  return Sweep(options, {Finished(), Running()});
}

TEST_F(SweepFolderTest, ADefinitionReadsBack) {
  const auto folder = SweepFolder::Open(dir_);
  ASSERT_TRUE(folder.ok()) << folder.status();
  ASSERT_FALSE(folder->ReadDefinition()->has_value());
  ASSERT_TRUE(folder->Write(Definition()).ok());
  const auto read = folder->ReadDefinition();
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(DifferenceOf(**read, Definition()), "");
  EXPECT_EQ((*read)->key, "0123");
  EXPECT_EQ((*read)->folder, dir_);
}

TEST_F(SweepFolderTest, ADamagedDefinitionIsRefused) {
  const auto folder = SweepFolder::Open(dir_);
  for (const char* text : {"{", "[]", "{\"format\": 1}", "{\"format\": \"1\"}"}) {
    Put("sweep.json", text);
    EXPECT_THAT(std::string(folder->ReadDefinition().status().message()), HasSubstr("sweep.json: is not a sweep"))
        << text;
  }
}

TEST(DifferenceOf, NamesTheFlag) {
  SweepDefinition other = Definition();
  other.flags.by = "loss";
  EXPECT_EQ(DifferenceOf(Definition(), other), "--by");
  other = Definition();
  other.flags.seed = 3;
  EXPECT_EQ(DifferenceOf(Definition(), other), "--seed");
  other = Definition();
  other.flags.halving.min_epochs = 3;
  EXPECT_EQ(DifferenceOf(Definition(), other), "--min-epochs");
  other = Definition();
  other.job.set_epochs(3);
  EXPECT_EQ(DifferenceOf(Definition(), other), "the job, its --set or its --model");
}

TEST_F(SweepFolderTest, TrialsReadBack) {
  const auto folder = SweepFolder::Open(dir_);
  ASSERT_TRUE(folder->Write(Definition(), SomeSweep()).ok());
  std::vector<Trial> trials(2);
  for (int i = 0; i < 2; ++i) trials[i].number = i + 1;
  ASSERT_TRUE(folder->ReadTrials(&trials).ok()) << folder->ReadTrials(&trials);
  for (const auto& [got, wanted] : {std::pair(trials[0], Finished()), std::pair(trials[1], Running())}) {
    EXPECT_EQ(got.state, wanted.state);
    EXPECT_EQ(got.runs, wanted.runs);
    EXPECT_EQ(got.jobs, wanted.jobs);
    EXPECT_EQ(got.rung, wanted.rung);
    EXPECT_EQ(got.epochs, wanted.epochs);
    EXPECT_EQ(got.figures, wanted.figures);
    EXPECT_EQ(got.checkpoint, wanted.checkpoint);
    EXPECT_EQ(got.checkpoint_step, wanted.checkpoint_step);
    EXPECT_EQ(got.resumed_step, wanted.resumed_step);
    EXPECT_EQ(got.steps_per_epoch, wanted.steps_per_epoch);
    EXPECT_EQ(got.reason, wanted.reason);
    EXPECT_EQ(got.scores.size(), wanted.scores.size());
  }
  EXPECT_EQ(trials[0].scores[3], 0.25);
  EXPECT_TRUE(std::isnan(trials[0].scores[2]));
}

TEST_F(SweepFolderTest, ALineThatIsNoTrialIsNamed) {
  const auto folder = SweepFolder::Open(dir_);
  ASSERT_TRUE(folder->Write(Definition(), SomeSweep()).ok());
  const std::string lines = Text("trials.jsonl");
  const std::string first = lines.substr(0, lines.find('\n') + 1);
  const auto read = [&](const std::string& text) {
    Put("trials.jsonl", text);
    std::vector<Trial> trials(2);
    return std::string(folder->ReadTrials(&trials).message());
  };
  EXPECT_EQ(read(lines), "");
  EXPECT_EQ(read(first), "");  // the other one begins anew
  EXPECT_THAT(read(first + first), HasSubstr("line 2 is not a trial"));
  EXPECT_THAT(read(first + "{\"trial\": 2}\n"), HasSubstr("line 2 is not a trial"));
  EXPECT_THAT(read("{\"trial\": 3}\n"), HasSubstr("line 1 is not a trial"));
  EXPECT_THAT(read(first.substr(0, first.size() / 2)), HasSubstr("line 1 is not a trial"));
  std::string no_job = first;
  no_job.replace(no_job.find("\"succeeded\""), 11, "\"running\"");
  no_job.replace(no_job.find("\"jobs\":[4,9]"), 12, "\"jobs\":[]");
  EXPECT_THAT(read(no_job), HasSubstr("line 1 is not a trial"));
}

TEST_F(SweepFolderTest, OneProcessAtATime) {
  {
    const auto folder = SweepFolder::Open(dir_);
    ASSERT_TRUE(folder.ok());
    EXPECT_THAT(std::string(SweepFolder::Open(dir_).status().message()), HasSubstr("another `cairn sweep` runs"));
  }
  EXPECT_TRUE(SweepFolder::Open(dir_).ok());
}

TEST(TrialJson, HasNumbersAsNumbers) {
  const auto json = nlohmann::json::parse(TrialJson(Finished(), "val_loss"));
  EXPECT_EQ(json["parameters"]["batch_size"], 32);
  EXPECT_EQ(json["parameters"]["data.path"], "</script><b>\"x\"");
  EXPECT_EQ(json["score"], 0.25);
  EXPECT_EQ(json["job"], 9);
  EXPECT_TRUE(json["curve"][1][1].is_null());
}

TEST(SweepPage, IsWholeAndEscaped) {
  const std::string page = SweepPage("a\"</script>", SomeSweep());
  EXPECT_THAT(page, Not(HasSubstr("</script><b>")));
  EXPECT_THAT(page, HasSubstr("\\u003c/script>\\u003cb>"));
  EXPECT_THAT(page, Not(HasSubstr("http://1")));
  EXPECT_THAT(page, Not(HasSubstr("https:")));
  EXPECT_THAT(page, HasSubstr("default-src 'none'"));
  const size_t begin = page.find("id=\"data\">") + 10;
  const auto data = nlohmann::json::parse(page.substr(begin, page.find("</script>", begin) - begin));
  EXPECT_EQ(data["job"], "a\"</script>");
  EXPECT_EQ(data["trials"].size(), 2u);
  EXPECT_EQ(data["parameters"][0], "batch_size");
}

TEST(SweepTable, ShowsTheBestFirstAndWhatIsLeftOut) {
  const std::string all = SweepTable(SomeSweep(), 0);
  EXPECT_THAT(all, HasSubstr("TRIAL"));
  EXPECT_THAT(all, HasSubstr("0.2500"));
  EXPECT_LT(all.find("succeeded"), all.find("running"));
  EXPECT_THAT(SweepTable(SomeSweep(), 1), HasSubstr("... and 1 more"));
  EXPECT_THAT(SweepSummary(SomeSweep()), HasSubstr("1 of 2 trials have ended, 1 in the cluster; best: trial 1"));
  EXPECT_EQ(CutLines("abcdef\nab\n", 3), "abc\nab\n");
}

}  // namespace
}  // namespace cairn
