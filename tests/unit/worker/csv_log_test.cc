// Goal: the file of CSVLogger is as Keras writes it and holds each epoch once, whoever writes it, also several at once,
// wherever a writer was killed; what is wrong with it is said, and nobody waits for it.
#include "worker/reports/csv_log.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/unit/worker/summaries_testing.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;

class CsvLogTest : public SummariesFixture {
 protected:
  CsvLog Csv(const std::string& more = "", absl::Time submitted = absl::UnixEpoch()) const {
    const std::string text = absl::StrCat("filename: '", dir_, "/log.csv' ", more.empty() ? "separator: ','" : more);
    return CsvLog(spec_, FromText<v1::CsvLogger>(text), submitted);
  }
};

const char kHeader[] = "epoch,accuracy,loss,val_accuracy,val_loss\r\n";

TEST_F(CsvLogTest, AsKerasWritesIt) {
  CsvLog log = Csv();
  ASSERT_TRUE(log.Write({{Epoch(0, 0.5)}}).ok());
  ASSERT_TRUE(log.Write({{Epoch(1, 0.1), Epoch(2, 0.25, false)}}).ok());
  EXPECT_EQ(Read("log.csv"),
            absl::StrCat(kHeader, "0,0.75,0.5,0.5,1.0\r\n", "1,0.75,0.1,0.5,0.6\r\n", "2,0.75,0.25,NA,NA\r\n"));
}

TEST_F(CsvLogTest, HasTheRateWhereCallbacksSetIt) {
  spec_.add_callbacks()->mutable_reduce_lr_on_plateau();
  ASSERT_TRUE(Csv("separator: ';'").Write({{Epoch(0, 0.5)}}).ok());
  EXPECT_EQ(Read("log.csv"), "epoch;accuracy;learning_rate;loss;val_accuracy;val_loss\r\n0;0.75;0.001;0.5;0.5;1.0\r\n");
}

TEST_F(CsvLogTest, GoesOnWithAnotherWriter) {
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
TEST_F(CsvLogTest, HasEachEpochOnceWhereTwoChiefsWriteIt) {
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
    CsvLog late = Csv(options);
    ASSERT_TRUE(late.Write({{all[0], all[1]}}).ok());
    ASSERT_TRUE(former.Write({{all[2], all[3]}}).ok());
    ASSERT_TRUE(late.Write({{all[2]}}).ok());
    ASSERT_TRUE(late.Write({{all[3]}}).ok());
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

// The second of two equal jobs was queued while the first one trained.
TEST_F(CsvLogTest, HasEachEpochOnceAfterAnEqualJob) {
  CsvLog first = Csv(), second = Csv();
  const std::vector<v1::EpochResult> all{Epoch(0, 0.5), Epoch(1, 0.25), Epoch(2, 0.125)};
  for (const v1::EpochResult& epoch : all) ASSERT_TRUE(first.Write({{epoch}}).ok());
  const std::string want = Read("log.csv");
  for (const v1::EpochResult& epoch : all) ASSERT_TRUE(second.Write({{epoch}}).ok());
  EXPECT_EQ(Read("log.csv"), want);
}

// The file has the rows of an earlier run, which are the same.
TEST_F(CsvLogTest, ThatIsAppendedToLooksAtItsLastRunOnly) {
  const std::vector<v1::EpochResult> all{Epoch(0, 0.5), Epoch(1, 0.25), Epoch(2, 0.125)};
  ASSERT_TRUE(Csv().Write(all).ok());
  const std::string first = Read("log.csv"), rows = first.substr(first.find('\n') + 1);
  Write("log.csv", first + rows.substr(0, rows.find('\n') + 1));  // the second run's epoch 0
  ASSERT_TRUE(Csv("separator: ',' append: true").Write({{all[1], all[2]}}).ok());
  EXPECT_EQ(Read("log.csv"), first + rows);
}

// The rows of an earlier run are the same up to an epoch.
TEST_F(CsvLogTest, ThatIsAppendedToGoesOnWhereRunsDiffer) {
  const std::string append = "separator: ',' append: true";
  ASSERT_TRUE(Csv().Write({{Epoch(0, 0.5), Epoch(1, 0.25), Epoch(2, 0.125)}}).ok());
  const std::string first = Read("log.csv");
  const std::vector<v1::EpochResult> all{Epoch(0, 0.5), Epoch(1, 0.5), Epoch(2, 0.5)};
  CsvLog log = Csv(append);
  ASSERT_TRUE(log.Write({{all[0], all[1]}}).ok());
  ASSERT_TRUE(log.Write(all).ok());
  ASSERT_TRUE(Csv(append).Write(all).ok());
  EXPECT_EQ(Read("log.csv"), absl::StrCat(first, "1,0.75,0.5,0.5,1.0\r\n", "2,0.75,0.5,0.5,1.0\r\n"));
}

// An asynchronous job fell back from epoch 2 before it was told that the epoch is in the file.
TEST_F(CsvLogTest, ReplacesTheRowsOfEpochsThatWentOtherwise) {
  CsvLog log = Csv();
  ASSERT_TRUE(log.Write({{Epoch(0, 0.5), Epoch(1, 0.25), Epoch(2, 0.125)}}).ok());
  ASSERT_TRUE(log.Write({{Epoch(1, 0.5)}}).ok());
  const std::string want = absl::StrCat(kHeader, "0,0.75,0.5,0.5,1.0\r\n", "1,0.75,0.5,0.5,1.0\r\n");
  EXPECT_EQ(Read("log.csv"), want);
  ASSERT_TRUE(Csv().Write({{Epoch(1, 0.5), Epoch(2, 0.5)}}).ok());
  EXPECT_EQ(Read("log.csv"), want + "2,0.75,0.5,0.5,1.0\r\n");
}

TEST_F(CsvLogTest, SaysThatAnotherProgramHoldsItsLock) {
  Write("log.csv", kHeader);
  const int fd = ::open((dir_ + "/log.csv").c_str(), O_RDONLY);
  ASSERT_EQ(::flock(fd, LOCK_EX), 0);
  EXPECT_THAT(std::string(Csv().Write({{Epoch(0, 0.5)}}).message()), HasSubstr("another program holds its lock"));
  ::close(fd);
  EXPECT_TRUE(Csv().Write({{Epoch(0, 0.5)}}).ok());
}

TEST_F(CsvLogTest, Appends) {
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

TEST_F(CsvLogTest, PassesOverEpochsWithoutFigures) {
  v1::EpochResult before;  // of the run that the job goes on from
  ASSERT_TRUE(Csv().Write({{before}}).ok());
  EXPECT_FALSE(std::filesystem::exists(dir_ + "/log.csv"));
  ASSERT_TRUE(Csv().Write({{before, Epoch(1, 0.5)}}).ok());
  EXPECT_EQ(Read("log.csv"), absl::StrCat(kHeader, "1,0.75,0.5,0.5,1.0\r\n"));
}

TEST_F(CsvLogTest, SaysWhatIsWrong) {
  CsvLog log(spec_, FromText<v1::CsvLogger>(absl::StrCat("separator: ',' filename: '", dir_, "'")), absl::UnixEpoch());
  EXPECT_EQ(std::string(log.Write({{Epoch(0, 0.5)}}).message()), dir_ + ": is a folder, not a file");
}

// Nobody reads from or writes to it: whoever opens it as a file waits for ever, and with him the figures of all other
// jobs.
TEST_F(CsvLogTest, WaitsForNoPipe) {
  ASSERT_EQ(::mkfifo((dir_ + "/log.csv").c_str(), 0600), 0);
  for (const char* append : {"false", "true"}) {
    CsvLog log = Csv(absl::StrCat("separator: ',' append: ", append));
    EXPECT_EQ(std::string(log.Write({{Epoch(0, 0.5)}}).message()), dir_ + "/log.csv: is not a regular file");
    EXPECT_EQ(std::string(log.Write({{Epoch(0, 0.5), Epoch(1, 0.5)}}).message()),
              dir_ + "/log.csv: is not a regular file");
  }
}

TEST_F(CsvLogTest, TakesNoLargeFileForItsLog) {
  Write("log.csv", kHeader);
  std::filesystem::resize_file(dir_ + "/log.csv", size_t{1} << 40);  // a hole
  EXPECT_EQ(std::string(Csv("separator: ',' append: true").Write({{Epoch(0, 0.5)}}).message()),
            dir_ + "/log.csv: 1099511627776 bytes; at most 67108864 are read");
}

TEST_F(CsvLogTest, HasEachEpochOnceAfterAFullDisk) {
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
TEST_F(CsvLogTest, ThatIsBegunAnewAfterAFullDiskHasItsFirstEpochs) {
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

}  // namespace
}  // namespace cairn
