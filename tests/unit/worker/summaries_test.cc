// Goal: the files of TensorBoard hold each epoch once, whoever writes them, wherever a writer was killed.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <filesystem>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/model/graph.h"
#include "tests/unit/worker/summaries_testing.h"
#include "worker/reports/board_log.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;

class SummariesTest : public SummariesFixture {
 protected:
  v1::WriteSummaries Command(const std::vector<v1::EpochResult>& epochs) const {
    v1::WriteSummaries command;
    command.set_job_id(3);
    command.set_submitted_unix_ms(777);
    *command.mutable_spec() = spec_;
    for (const v1::EpochResult& epoch : epochs) *command.add_epochs() = epoch;
    return command;
  }
  // tag -> "step=value", of all files of a folder, in the order of their names.
  std::map<std::string, std::vector<std::string>> Scalars(const std::string& folder) const {
    std::map<std::string, std::vector<std::string>> scalars;
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(dir_ + "/" + folder))
      files.push_back(entry.path().string());
    std::sort(files.begin(), files.end());
    for (const std::string& file : files) {
      const std::vector<tensorboard::Event> events = ReadEvents(file).value();
      for (const tensorboard::Event& event : events) {
        for (const auto& value : event.summary().value()) {
          const bool scalar = value.tensor().float_val_size() == 1;
          scalars[value.tag()].push_back(scalar ? absl::StrCat(event.step(), "=", value.tensor().float_val(0))
                                                : absl::StrCat(event.step()));
        }
      }
    }
    return scalars;
  }

  const Graph graph_ =
      Graph::Build(FromText<v1::Model>("layers { input { shape: 4 } } layers { dense { units: 3 } }")).value();
};

// As TensorBoard reads a folder that grows: the files in the order of their names; one is left for good, when it was
// read to its end, as soon as there is a later one with events.
class BoardReader {
 public:
  explicit BoardReader(std::string folder) : folder_(std::move(folder)) {}
  // The values of this tag since it was asked last.
  std::vector<std::string> Load(const std::string& tag) {
    std::vector<std::string> shown;
    do {
      const auto events = file_.empty() ? std::vector<tensorboard::Event>() : ReadEvents(file_).value();
      for (; read_ < events.size(); ++read_) {
        for (const auto& value : events[read_].summary().value()) {
          if (value.tag() == tag) shown.push_back(absl::StrCat(events[read_].step(), "=", value.tensor().float_val(0)));
        }
      }
    } while (GoOn());
    return shown;
  }

 private:
  bool GoOn() {
    std::string next;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      const std::string path = entry.path().string();
      if (!absl::StrContains(path, "tfevents") || path <= file_ || (!next.empty() && next < path)) continue;
      if (ReadEvents(path).value().empty()) continue;
      next = path;
    }
    if (next.empty()) return false;
    file_ = next;
    read_ = 0;
    return true;
  }

  const std::string folder_;
  std::string file_;
  size_t read_ = 0;  // of its events
};

TEST_F(SummariesTest, BoardIsReadableAfterAFullDisk) {
  BoardLog log(FromText<v1::TensorBoard>(absl::StrCat("log_dir: '", dir_, "'")), "host");
  ASSERT_TRUE(log.Write(Command({Epoch(0, 0.5)}), graph_, {}, 1000).ok());
  for (size_t fits : {10, 100}) {
    const FullDisk disk(std::filesystem::file_size(std::filesystem::directory_iterator(dir_ + "/train")->path()) +
                        fits);
    EXPECT_FALSE(log.Write(Command({Epoch(1, 0.25)}), graph_, {}, 1001).ok());
  }
  ASSERT_TRUE(log.Write(Command({Epoch(1, 0.25)}), graph_, {}, 1002).ok());
  EXPECT_THAT(Scalars("train")["epoch_loss"], ElementsAre("0=0.5", "1=0.25"));
  EXPECT_THAT(Scalars("train")["epoch_accuracy"], ElementsAre("0=0.75", "1=0.75"));
}

TEST_F(SummariesTest, BoardHasKerasTags) {
  BoardLog log(FromText<v1::TensorBoard>(absl::StrCat("log_dir: '", dir_, "' write_graph: true histogram_freq: 2")),
               "host");
  v1::WriteSummaries command = Command({Epoch(0, 0.5)});
  EXPECT_TRUE(log.WantsWeights(command));
  v1::StepValidation& step = *command.add_train_steps();
  step.set_step(7);
  *step.mutable_sums() = Epoch(0, 0.75).train();
  v1::StepValidation& validation = *command.add_validations();
  validation.set_step(9);
  *validation.mutable_sums() = Epoch(0, 0.25).train();
  const std::vector<float> weights(static_cast<size_t>(graph_.space_size()), 0.5f);
  ASSERT_TRUE(log.Write(command, graph_, weights, 1000).ok());
  EXPECT_FALSE(log.WantsWeights(Command({Epoch(1, 0.5)})));
  ASSERT_TRUE(log.Write(Command({Epoch(1, 0.25)}), graph_, {}, 1001).ok());
  auto train = Scalars("train"), validated = Scalars("validation");
  EXPECT_THAT(train["epoch_loss"], ElementsAre("0=0.5", "1=0.25"));
  EXPECT_THAT(train["epoch_accuracy"], ElementsAre("0=0.75", "1=0.75"));
  EXPECT_THAT(train["epoch_learning_rate"], ElementsAre("0=0.001", "1=0.001"));
  EXPECT_THAT(train["batch_loss"], ElementsAre("7=0.75"));
  EXPECT_THAT(train["dense/kernel/histogram"], ElementsAre("0"));
  EXPECT_FALSE(train.contains("epoch_staleness_mean")) << "synchronous";
  EXPECT_THAT(validated["epoch_loss"], ElementsAre("0=1", "1=0.75"));
  EXPECT_THAT(validated["evaluation_loss_vs_iterations"], ElementsAre("9=0.25"));
}

TEST_F(SummariesTest, BoardGoesOnWithAnotherWriter) {
  const auto options = FromText<v1::TensorBoard>(absl::StrCat("log_dir: '", dir_, "' write_graph: true"));
  BoardLog first(options, "host");
  ASSERT_TRUE(first.Write(Command({Epoch(0, 0.5), Epoch(1, 0.25)}), graph_, {}, 1000).ok());
  BoardLog second(options, "other");
  ASSERT_TRUE(second.Write(Command({Epoch(1, 0.25), Epoch(2, 0.125)}), graph_, {}, 1001).ok());
  EXPECT_THAT(Scalars("train")["epoch_loss"], ElementsAre("0=0.5", "1=0.25", "2=0.125"));
  EXPECT_THAT(Scalars("validation")["epoch_loss"], ElementsAre("0=1", "1=0.75", "2=0.625"));
  // A job of another cluster, with the same number: its files are its own.
  v1::WriteSummaries other = Command({Epoch(0, 2)});
  other.set_submitted_unix_ms(778);
  BoardLog third(options, "zother");
  ASSERT_TRUE(third.Write(other, graph_, {}, 1002).ok());
  EXPECT_THAT(Scalars("train")["epoch_loss"], ElementsAre("0=0.5", "1=0.25", "2=0.125", "0=2"));
}

// The role of the chief goes to and fro; the workers' clocks do not agree, and many writes fall into one second.
TEST_F(SummariesTest, BoardIsShownWholeWhateverWorkerWritesIt) {
  const auto options = FromText<v1::TensorBoard>(absl::StrCat("log_dir: '", dir_, "'"));
  std::vector<BoardLog> writers;
  for (const char* host : {"b", "c", "a"}) writers.emplace_back(options, host);
  const double clocks[] = {1000, 990, 1000};
  const int turns[] = {0, 0, 1, 1, 0, 2, 0, 1, 2, 2, 1, 0};
  BoardReader train(dir_ + "/train"), validation(dir_ + "/validation");
  int epoch = 0;
  for (const int turn : turns) {
    const double loss = 1 + epoch;
    ASSERT_TRUE(writers[turn].Write(Command({Epoch(epoch, loss)}), graph_, {}, clocks[turn]).ok());
    EXPECT_THAT(train.Load("epoch_loss"), ElementsAre(absl::StrCat(epoch, "=", loss)));
    EXPECT_THAT(validation.Load("epoch_loss"), ElementsAre(absl::StrCat(epoch, "=", loss + 0.5)));
    ++epoch;
  }
}

// One that was chief, and has not heard yet that it is not any more.
TEST_F(SummariesTest, BoardHasOneWriterAtATime) {
  BoardLog log(FromText<v1::TensorBoard>(absl::StrCat("log_dir: '", dir_, "'")), "host");
  std::filesystem::create_directories(dir_ + "/train");
  const int other = ::open((dir_ + "/train").c_str(), O_RDONLY | O_DIRECTORY);
  ASSERT_EQ(::flock(other, LOCK_EX | LOCK_NB), 0);
  const absl::Status status = log.Write(Command({Epoch(0, 0.5)}), graph_, {}, 1000);
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_EQ(std::string(status.message()),
            absl::StrCat(dir_, "/train: another worker writes there; it is tried again"));
  ::close(other);
  ASSERT_TRUE(log.Write(Command({Epoch(0, 0.5)}), graph_, {}, 1000).ok());
  EXPECT_THAT(Scalars("train")["epoch_loss"], ElementsAre("0=0.5"));
}

}  // namespace
}  // namespace cairn
