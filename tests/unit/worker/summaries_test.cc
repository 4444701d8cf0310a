// Goal: the files of CSVLogger and TensorBoard hold each epoch once, whoever writes them, wherever a writer was killed;
// and model files are made of the checkpoint of their step.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/model/graph.h"
#include "tests/unit/model/model_text.h"
#include "worker/reports/board_log.h"
#include "worker/reports/csv_log.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class SummariesTest : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = absl::StrCat(testing::TempDir(), "/summaries-", ::getpid());
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
    spec_ = FromText<v1::JobSpec>(R"(
      model { layers { input { shape: 4 } } layers { dense { units: 3 } } }
      metrics { kind: ACCURACY } strategy: MULTI_WORKER_MIRRORED validation_freq: 1)");
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  static v1::EpochResult Epoch(int epoch, double loss, bool validated = true) {
    v1::EpochResult result;
    result.set_epoch(epoch);
    result.mutable_train()->set_examples(4);
    result.mutable_train()->set_loss(4 * loss);
    result.mutable_train()->add_metrics(3);
    result.set_learning_rate(0.001f);
    if (!validated) return result;
    result.mutable_validation()->set_examples(2);
    result.mutable_validation()->set_loss(2 * loss + 1);
    result.mutable_validation()->add_metrics(1);
    return result;
  }
  std::string Read(const std::string& name) const {
    std::ifstream in(dir_ + "/" + name, std::ios::binary);
    return std::string((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  }
  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(dir_ + "/" + name, std::ios::binary) << text;
  }
  CsvLog Csv(const std::string& more = "", absl::Time submitted = absl::UnixEpoch()) const {
    const std::string text = absl::StrCat("filename: '", dir_, "/log.csv' ", more.empty() ? "separator: ','" : more);
    return CsvLog(spec_, FromText<v1::CsvLogger>(text), submitted);
  }
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

  std::string dir_;
  v1::JobSpec spec_;
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

const char kHeader[] = "epoch,accuracy,loss,val_accuracy,val_loss\r\n";

TEST_F(SummariesTest, CsvAsKerasWritesIt) {
  CsvLog log = Csv();
  ASSERT_TRUE(log.Write({{Epoch(0, 0.5)}}).ok());
  ASSERT_TRUE(log.Write({{Epoch(1, 0.1), Epoch(2, 0.25, false)}}).ok());
  EXPECT_EQ(Read("log.csv"),
            absl::StrCat(kHeader, "0,0.75,0.5,0.5,1.0\r\n", "1,0.75,0.1,0.5,0.6\r\n", "2,0.75,0.25,NA,NA\r\n"));
}

TEST_F(SummariesTest, CsvHasTheRateWhereCallbacksSetIt) {
  spec_.add_callbacks()->mutable_reduce_lr_on_plateau();
  ASSERT_TRUE(Csv("separator: ';'").Write({{Epoch(0, 0.5)}}).ok());
  EXPECT_EQ(Read("log.csv"), "epoch;accuracy;learning_rate;loss;val_accuracy;val_loss\r\n0;0.75;0.001;0.5;0.5;1.0\r\n");
}

TEST_F(SummariesTest, CsvGoesOnWithAnotherWriter) {
  ASSERT_TRUE(Csv().Write({{Epoch(0, 0.5), Epoch(1, 0.25)}}).ok());
  const std::string want = absl::StrCat(Read("log.csv"), "2,0.75,0.125,0.5,0.625\r\n");
  // Killed before it could answer: the next one is told of epoch 1 again, and finds it there.
  CsvLog second = Csv();
  ASSERT_TRUE(second.Write({{Epoch(1, 0.25), Epoch(2, 0.125)}}).ok());
  EXPECT_EQ(Read("log.csv"), want);
  // Killed in the middle of a line.
  for (size_t cut = want.size() - 20; cut < want.size(); ++cut) {
    Write("log.csv", want.substr(0, cut));
    CsvLog third = Csv();
    ASSERT_TRUE(third.Write({{Epoch(2, 0.125)}}).ok());
    ASSERT_EQ(Read("log.csv"), want) << cut;
  }
  // Another job begins anew.
  CsvLog fourth = Csv("", absl::Now() + absl::Hours(1));
  ASSERT_TRUE(fourth.Write({{Epoch(0, 0.5)}}).ok());
  EXPECT_EQ(Read("log.csv"), absl::StrCat(kHeader, "0,0.75,0.5,0.5,1.0\r\n"));
}

// A chief that was killed is back and chief again, while the one between them still writes.
TEST_F(SummariesTest, CsvHasEachEpochOnceWhereTwoChiefsWriteIt) {
  const std::vector<v1::EpochResult> all{Epoch(0, 0.5), Epoch(1, 0.25), Epoch(2, 0.125), Epoch(3, 0.1)};
  ASSERT_TRUE(Csv().Write(all).ok());
  const std::string want = Read("log.csv");
  for (const char* append : {"false", "true"}) {
    std::filesystem::remove(dir_ + "/log.csv");
    const std::string options = absl::StrCat("separator: ',' append: ", append);
    CsvLog former = Csv(options), chief = Csv(options);
    ASSERT_TRUE(chief.Write({{all[0]}}).ok());
    ASSERT_TRUE(former.Write({{all[0], all[1]}}).ok());
    ASSERT_TRUE(chief.Write({{all[1], all[2]}}).ok());
    ASSERT_TRUE(former.Write({{all[2]}}).ok());
    ASSERT_TRUE(chief.Write({{all[3]}}).ok());
    ASSERT_TRUE(Csv(options).Write({{all[0], all[1]}}).ok()) << "a request that came late";
    ASSERT_TRUE(former.Write({{all[2], all[3]}}).ok());
    EXPECT_EQ(Read("log.csv"), want);
  }
  // An asynchronous job that fell back to its beginning has other figures.
  ASSERT_TRUE(Csv().Write({{Epoch(0, 0.75), Epoch(1, 0.25)}}).ok());
  EXPECT_EQ(Read("log.csv"), absl::StrCat(kHeader, "0,0.75,0.75,0.5,1.25\r\n", "1,0.75,0.25,0.5,0.75\r\n"));
  ASSERT_TRUE(Csv().Write({{Epoch(0, 0.75), Epoch(1, 0.5)}}).ok());
  EXPECT_EQ(Read("log.csv"), absl::StrCat(kHeader, "0,0.75,0.75,0.5,1.25\r\n", "1,0.75,0.5,0.5,1.0\r\n"));
  // The same job once more: its rows are those of the first one.
  ASSERT_TRUE(Csv("", absl::Now() + absl::Hours(1)).Write({{all[0]}}).ok());
  EXPECT_EQ(Read("log.csv"), want.substr(0, want.find("\r\n1,") + 2));
}

TEST_F(SummariesTest, CsvSaysThatAnotherProgramHoldsItsLock) {
  Write("log.csv", kHeader);
  const int fd = ::open((dir_ + "/log.csv").c_str(), O_RDONLY);
  ASSERT_EQ(::flock(fd, LOCK_EX), 0);
  EXPECT_THAT(std::string(Csv().Write({{Epoch(0, 0.5)}}).message()), HasSubstr("another program holds its lock"));
  ::close(fd);
  EXPECT_TRUE(Csv().Write({{Epoch(0, 0.5)}}).ok());
}

TEST_F(SummariesTest, CsvAppends) {
  const std::string before = absl::StrCat(kHeader, "0,0.7,0.9,0.5,1.0\r\n");
  Write("log.csv", before);
  ASSERT_TRUE(Csv("separator: ',' append: true").Write({{Epoch(0, 0.5)}}).ok());
  EXPECT_EQ(Read("log.csv"), absl::StrCat(before, "0,0.75,0.5,0.5,1.0\r\n")) << "no second header";
  ASSERT_TRUE(Csv("separator: ',' append: true").Write({{Epoch(0, 0.5)}}).ok());
  EXPECT_EQ(Read("log.csv"), absl::StrCat(before, "0,0.75,0.5,0.5,1.0\r\n")) << "it is there already";
  std::filesystem::remove(dir_ + "/log.csv");
  ASSERT_TRUE(Csv("separator: ',' append: true").Write({{Epoch(0, 0.5)}}).ok());
  EXPECT_EQ(Read("log.csv"), absl::StrCat(kHeader, "0,0.75,0.5,0.5,1.0\r\n"));
}

TEST_F(SummariesTest, CsvPassesOverEpochsWithoutFigures) {
  v1::EpochResult before;  // of the run that the job goes on from
  ASSERT_TRUE(Csv().Write({{before}}).ok());
  EXPECT_FALSE(std::filesystem::exists(dir_ + "/log.csv"));
  ASSERT_TRUE(Csv().Write({{before, Epoch(1, 0.5)}}).ok());
  EXPECT_EQ(Read("log.csv"), absl::StrCat(kHeader, "1,0.75,0.5,0.5,1.0\r\n"));
}

TEST_F(SummariesTest, CsvSaysWhatIsWrong) {
  CsvLog log(spec_, FromText<v1::CsvLogger>(absl::StrCat("separator: ',' filename: '", dir_, "'")), absl::UnixEpoch());
  EXPECT_EQ(std::string(log.Write({{Epoch(0, 0.5)}}).message()), dir_ + ": is a folder, not a file");
}

// Nobody reads from or writes to it: whoever opens it as a file waits for ever, and with him the figures of all other
// jobs.
TEST_F(SummariesTest, CsvWaitsForNoPipe) {
  ASSERT_EQ(::mkfifo((dir_ + "/log.csv").c_str(), 0600), 0);
  for (const char* append : {"false", "true"}) {
    CsvLog log = Csv(absl::StrCat("separator: ',' append: ", append));
    EXPECT_EQ(std::string(log.Write({{Epoch(0, 0.5)}}).message()), dir_ + "/log.csv: is not a regular file");
    EXPECT_EQ(std::string(log.Write({{Epoch(0, 0.5), Epoch(1, 0.5)}}).message()),
              dir_ + "/log.csv: is not a regular file");
  }
}

TEST_F(SummariesTest, CsvTakesNoLargeFileForItsLog) {
  Write("log.csv", kHeader);
  std::filesystem::resize_file(dir_ + "/log.csv", size_t{1} << 40);  // a hole
  EXPECT_EQ(std::string(Csv("separator: ',' append: true").Write({{Epoch(0, 0.5)}}).message()),
            dir_ + "/log.csv: 1099511627776 bytes; at most 67108864 are read");
}

// A disk that is full: a file takes its first so many bytes for as long as this lives.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes_max) {
    std::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit less{bytes_max, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &less);
  }
  ~FullDisk() { ::setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_{};
};

TEST_F(SummariesTest, CsvHasEachEpochOnceAfterAFullDisk) {
  CsvLog log = Csv();
  ASSERT_TRUE(log.Write({{Epoch(0, 0.5)}}).ok());
  const std::string before = Read("log.csv"), row = "1,0.75,0.25,0.5,0.75\r\n";
  const std::vector<v1::EpochResult> epochs{Epoch(1, 0.25), Epoch(2, 0.125)};
  for (size_t fits : {size_t{3}, row.size(), row.size() + 2}) {
    {
      const FullDisk disk(before.size() + fits);
      EXPECT_FALSE(log.Write(epochs).ok());
    }
    EXPECT_EQ(Read("log.csv").size(), before.size() + fits);
  }
  ASSERT_TRUE(log.Write(epochs).ok());
  EXPECT_EQ(Read("log.csv"), absl::StrCat(before, row, "2,0.75,0.125,0.5,0.625\r\n"));
}

// Another summary of the same epochs had failed too, and so they come again from the first one.
TEST_F(SummariesTest, CsvThatIsBegunAnewAfterAFullDiskHasItsFirstEpochs) {
  CsvLog log = Csv();
  ASSERT_TRUE(log.Write({{Epoch(0, 0.5)}}).ok());
  const std::string before = Read("log.csv");
  {
    const FullDisk disk(before.size());
    EXPECT_FALSE(log.Write({{Epoch(0, 0.5), Epoch(1, 0.25)}}).ok());
  }
  ASSERT_TRUE(log.Write({{Epoch(0, 0.5), Epoch(1, 0.25)}}).ok());
  EXPECT_EQ(Read("log.csv"), absl::StrCat(before, "1,0.75,0.25,0.5,0.75\r\n"));
}

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
