// Goal: IDX and CIFAR-10 data sets give exactly the numbers that were written; splits are disjoint, whole and
// seeded; broken files get an error that names the file and what is wrong with it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <functional>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/data/describe.h"
#include "tests/unit/data/data_files.h"
#include "tests/unit/data/open_dataset.h"

namespace cairn {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Idx, PlainAndGzipGiveWhatWasWritten) {
  for (bool gzip : {false, true}) {
    TempFolder dir;
    WriteIdxDataset(dir.path(), 30, 7, gzip);
    const auto dataset = Open(dir.path());
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    const v1::DataInfo& info = (*dataset)->info();
    EXPECT_EQ(info.format(), v1::Data::IDX);
    EXPECT_EQ(info.train_examples(), 30);
    EXPECT_EQ(info.validation_examples(), 0);
    EXPECT_EQ(info.test_examples(), 7);
    EXPECT_EQ(info.classes(), 10);
    EXPECT_THAT(info.example_shape(), ElementsAre(2, 3, 1));
    EXPECT_EQ((*dataset)->size(v1::TEST), 7);
    for (int64_t i : {0, 13, 29}) {
      const auto [example, label] = Example(**dataset, v1::TRAIN, i);
      for (int j = 0; j < 6; ++j) EXPECT_EQ(example[j], (7 * (6 * i + j)) % 256);
      EXPECT_EQ(label, i % 10);
    }
    float example[6], label;
    EXPECT_EQ((*dataset)->Read(v1::TRAIN, 30, example, &label).code(), absl::StatusCode::kOutOfRange);
    EXPECT_EQ((*dataset)->Read(v1::TRAIN, -1, example, &label).code(), absl::StatusCode::kOutOfRange);
  }
}

TEST(Idx, TakesTheModelsShapeWhereTheNumbersFit) {
  TempFolder dir;
  WriteIdxDataset(dir.path(), 10, 0, true);
  EXPECT_THAT((*Open(dir.path(), {6}))->info().example_shape(), ElementsAre(6));
  EXPECT_THAT((*Open(dir.path(), {3, 2, 1}))->info().example_shape(), ElementsAre(3, 2, 1));
  EXPECT_THAT((*Open(dir.path(), {7}))->info().example_shape(), ElementsAre(2, 3, 1));
}

TEST(Idx, TheLargestLabelIsNamed) {
  TempFolder dir;
  WriteIdxDataset(dir.path(), 30, 7, false);
  const std::string labels = dir / "train-labels-idx1-ubyte", tests = dir / "t10k-labels-idx1-ubyte";
  EXPECT_EQ((*Open(dir.path()))->info().deciding_label(), labels + ": record 9 has label 9");
  WriteFile(tests, Idx({7}, std::string("\0\1\2\3\x0c\5\6", 7)));
  EXPECT_EQ((*Open(dir.path()))->info().deciding_label(), tests + ": record 4 has label 12");
  EXPECT_EQ((*Open(dir.path()))->info().classes(), 13);
}

TEST(Idx, BrokenFilesAreNamed) {
  struct Case {
    std::string what;
    std::function<void(const std::string& images, const std::string& labels)> spoil;
    absl::StatusCode code;
    std::vector<std::string> parts;
  };
  const auto kLoss = absl::StatusCode::kDataLoss;
  const std::vector<Case> cases = {
      {"cut gzip",
       [](auto& i, auto&) { std::filesystem::resize_file(i, std::filesystem::file_size(i) - 9); },
       kLoss,
       {"train-images-idx3-ubyte.gz", "cut off"}},
      {"broken gzip",
       [](auto& i, auto&) {
         std::string bytes = ReadFile(i);
         bytes[bytes.size() - 6] ^= 0x55;  // in the check sum
         WriteFile(i, bytes);
       },
       kLoss,
       {"train-images-idx3-ubyte.gz", "broken gzip"}},
      {"empty", [](auto& i, auto&) { WriteFile(i, ""); }, kLoss, {"ends 4 bytes too early"}},
      {"magic",
       [](auto& i, auto&) {
         WriteFile(i,
                   "\x7f"
                   "ELF rubbish");
       },
       kLoss,
       {"not an IDX file", "7f 45 4c 46"}},
      {"type", [](auto& i, auto&) { WriteFile(i, std::string("\0\0\x0d\x01\0\0\0\1", 8)); }, kLoss, {"0x0d"}},
      {"short header", [](auto& i, auto&) { WriteFile(i, std::string("\0\0\x08\x03\0\0", 6)); }, kLoss, {"too early"}},
      {"size that lies",
       [](auto& i, auto&) {
         WriteFile(i, Idx({4000000000, 60000, 60000}, "abc"));
       },
       kLoss,
       {"[4000000000,60000,60000]", "more than the file holds"}},
      {"size that lies, gzip",
       [](auto& i, auto&) {
         WriteGzip(i, Idx({4000000, 6000, 6000}, "abc"));
       },
       kLoss,
       {"more than the file holds"}},
      {"size that overflows",
       [](auto& i, auto&) {
         WriteFile(i, Idx({0x80000000, 0x80000000, 4, 0x80000000}, "abc"));
       },
       kLoss,
       {"more than the file holds"}},
      {"one byte short",
       [](auto& i, auto&) {
         WriteFile(i, Idx({10, 2, 3}, Bytes(59)));
       },
       kLoss,
       {"too early"}},
      {"one byte more",
       [](auto& i, auto&) {
         WriteFile(i, Idx({10, 2, 3}, Bytes(61)));
       },
       kLoss,
       {"more bytes"}},
      {"no images",
       [](auto& i, auto&) {
         WriteFile(i, Idx({0, 2, 3}, ""));
       },
       kLoss,
       {"empty"}},
      {"images that are labels", [](auto& i, auto&) { WriteFile(i, Idx({10}, Bytes(10))); }, kLoss, {"one dimension"}},
      {"labels that are images",
       [](auto&, auto& l) {
         WriteFile(l, Idx({10, 1}, Bytes(10)));
       },
       kLoss,
       {"labels have one"}},
      {"fewer labels", [](auto&, auto& l) { WriteFile(l, Idx({9}, Bytes(9))); }, kLoss, {"9 labels", "10 images"}},
      {"labels missing",
       [](auto&, auto& l) { std::filesystem::remove(l); },
       absl::StatusCode::kNotFound,
       {"train-labels-idx1-ubyte"}},
      {"a folder for a file",
       [](auto&, auto& l) {
         std::filesystem::remove(l);
         std::filesystem::create_directory(l);
       },
       kLoss,
       {"train-labels", "not a regular file"}},
      {"a pipe for a file, which nobody writes to",
       [](auto&, auto& l) {
         std::filesystem::remove(l);
         ASSERT_EQ(mkfifo(l.c_str(), 0600), 0);
       },
       kLoss,
       {"train-labels", "not a regular file"}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    TempFolder dir;
    WriteIdxDataset(dir.path(), 10, 0, true);
    c.spoil(dir / "train-images-idx3-ubyte.gz", dir / "train-labels-idx1-ubyte.gz");
    const auto dataset = Open(dir.path());
    ExpectError(dataset.status(), c.code, c.parts);
    EXPECT_THAT(std::string(dataset.status().message()), HasSubstr(dir.path()));
  }
}

TEST(Idx, TestImagesOfAnotherShapeAreRefused) {
  TempFolder dir;
  WriteIdxDataset(dir.path(), 10, 5, false);
  WriteFile(dir / "t10k-images-idx3-ubyte", Idx({5, 3, 3}, Bytes(45)));
  ExpectError(Open(dir.path()).status(), absl::StatusCode::kDataLoss, {"[2,3,1]", "[3,3,1]"});
}

std::string CifarRecord(int label, int first) {
  std::string record(1, static_cast<char>(label));
  record += Bytes(3072, first);
  return record;
}

void WriteCifar(const TempFolder& dir) {
  for (int f = 1; f <= 5; ++f) {
    WriteFile(dir / absl::StrCat("data_batch_", f, ".bin"),
              absl::StrCat(CifarRecord(f, f), CifarRecord(f + 1, 50 + f)));
  }
  WriteFile(dir / "test_batch.bin", CifarRecord(9, 77));
}

TEST(Cifar10, PlanesBecomePixels) {
  TempFolder dir;
  WriteCifar(dir);
  const auto dataset = Open(dir.path());
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->info().format(), v1::Data::CIFAR10);
  EXPECT_EQ((*dataset)->info().train_examples(), 10);
  EXPECT_EQ((*dataset)->info().test_examples(), 1);
  EXPECT_EQ((*dataset)->info().class_names(3), "cat");
  EXPECT_THAT((*dataset)->info().example_shape(), ElementsAre(32, 32, 3));
  const auto [example, label] = Example(**dataset, v1::TRAIN, 7);  // the second record of data_batch_4.bin
  EXPECT_EQ(label, 5);
  for (int i : {0, 1, 500, 1023}) {
    for (int c = 0; c < 3; ++c) EXPECT_EQ(example[3 * i + c], (54 + 7 * (1024 * c + i)) % 256);
  }
}

TEST(Cifar10, NamesComeFromTheMetaFile) {
  TempFolder dir;
  WriteCifar(dir);
  WriteFile(dir / "batches.meta.txt", "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n\n");
  EXPECT_EQ((*Open(dir.path()))->info().class_names(9), "j");
  WriteFile(dir / "batches.meta.txt", "a\nb\n");
  ExpectError(Open(dir.path()).status(), absl::StatusCode::kDataLoss, {"batches.meta.txt", "2 classes"});
}

TEST(Cifar10, BrokenFilesAreNamed) {
  TempFolder dir;
  WriteCifar(dir);
  WriteFile(dir / "data_batch_2.bin", absl::StrCat(CifarRecord(1, 1), "x"));
  ExpectError(Open(dir.path()).status(), absl::StatusCode::kDataLoss, {"data_batch_2.bin", "3074 bytes"});
  WriteFile(dir / "data_batch_2.bin", absl::StrCat(CifarRecord(1, 1), CifarRecord(10, 1)));
  ExpectError(Open(dir.path()).status(), absl::StatusCode::kDataLoss, {"data_batch_2.bin", "record 1 has label 10"});
  WriteFile(dir / "data_batch_2.bin", "");
  ExpectError(Open(dir.path()).status(), absl::StatusCode::kDataLoss, {"data_batch_2.bin", "0 bytes"});
}

TEST(Cifar10, AsManyFilesAsThereAre) {
  TempFolder dir;
  WriteCifar(dir);
  for (const char* name : {"data_batch_1.bin", "data_batch_4.bin", "data_batch_5.bin"})
    std::filesystem::remove(dir / name);
  WriteFile(dir / "data_batch_10.bin", CifarRecord(7, 5));
  const auto dataset = Open(dir.path());
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->info().train_examples(), 5);
  EXPECT_EQ(Example(**dataset, v1::TRAIN, 0).second, 2) << "in the order of their numbers";
  EXPECT_EQ(Example(**dataset, v1::TRAIN, 4).second, 7);
}

TEST(Cifar10, TheFolderAboveIsTakenAsTheArchiveUnpacksIt) {
  TempFolder dir, unpacked;
  WriteCifar(unpacked);
  std::filesystem::copy(unpacked.path(), dir.path() + "/cifar-10-batches-bin");
  WriteFile(dir / "cifar-10-binary.tar.gz", "the archive");
  for (const v1::Data::Format format : {v1::Data::AUTO, v1::Data::CIFAR10}) {
    const auto dataset = Open(dir.path(), {}, [&](v1::Data* d) { d->set_format(format); });
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    EXPECT_EQ((*dataset)->info().format(), v1::Data::CIFAR10);
    EXPECT_EQ((*dataset)->info().train_examples(), 10);
  }
  std::filesystem::remove_all(dir / "cifar-10-batches-bin");
  ExpectError(Open(dir.path(), {}, [](v1::Data* d) { d->set_format(v1::Data::CIFAR10); }).status(),
              absl::StatusCode::kNotFound, {dir.path(), "data_batch_*.bin", "cifar-10-batches-bin"});
}

TEST(Splits, AreDisjointWholeAndSeeded) {
  TempFolder dir;
  std::string text;
  for (int i = 0; i < 103; ++i) absl::StrAppend(&text, i, ",0\n");
  WriteFile(dir / "d.csv", text);
  const auto members = [&](uint64_t seed, v1::Split split) {
    const auto dataset = Open(dir / "d.csv", {}, [&](v1::Data* d) {
      d->set_validation_split(0.1f);
      d->set_test_split(0.2f);
      d->set_split_seed(seed);
    });
    std::vector<int> values;
    for (int64_t i = 0; i < (*dataset)->size(split); ++i) {
      values.push_back(static_cast<int>(Example(**dataset, split, i).first[0]));
      EXPECT_EQ((*dataset)->NameOf(split, i), absl::StrCat(values.back() + 1)) << "the line in the file";
    }
    return values;
  };
  std::set<int> all;
  for (v1::Split split : {v1::TRAIN, v1::VALIDATION, v1::TEST}) {
    for (int v : members(5, split)) EXPECT_TRUE(all.insert(v).second) << v << " stands in two splits";
  }
  EXPECT_EQ(all.size(), 103);
  EXPECT_EQ(members(5, v1::VALIDATION).size(), 10);
  EXPECT_EQ(members(5, v1::TEST).size(), 21);
  EXPECT_EQ(members(5, v1::TEST), members(5, v1::TEST));
  EXPECT_NE(members(5, v1::TEST), members(6, v1::TEST));
}

TEST(Splits, OwnSplitsAreKeptAndBadSharesRefused) {
  TempFolder dir;
  WriteIdxDataset(dir.path(), 20, 7, false);
  const auto with = [&](float validation, float test) {
    return Open(dir.path(), {}, [&](v1::Data* d) {
      d->set_validation_split(validation);
      d->set_test_split(test);
    });
  };
  const auto dataset = with(0.25f, 0.5f);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->size(v1::TRAIN), 15);
  EXPECT_EQ((*dataset)->size(v1::VALIDATION), 5);
  EXPECT_EQ((*dataset)->size(v1::TEST), 7);
  ExpectError(with(1.0f, 0).status(), absl::StatusCode::kInvalidArgument, {"data.validation_split", "[0, 1)"});
  ExpectError(with(0, -1).status(), absl::StatusCode::kInvalidArgument, {"data.test_split"});
  ExpectError(with(NAN, 0).status(), absl::StatusCode::kInvalidArgument, {"data.validation_split"});
  ExpectError(with(0.99f, 0).status(), absl::StatusCode::kInvalidArgument, {"leave none"});
}

TEST(Detection, SaysWhatWasLookedForAndFound) {
  TempFolder dir;
  ExpectError(Open(dir.path()).status(), absl::StatusCode::kInvalidArgument, {"found nothing", "train-images-idx3"});
  WriteFile(dir / "notes.txt", "hello");
  ExpectError(Open(dir.path()).status(), absl::StatusCode::kInvalidArgument,
              {dir.path(), "data_batch_*.bin", "train.csv", "CLASS/*.jpg", "found notes.txt"});
  ExpectError(Open(dir / "notes.txt").status(), absl::StatusCode::kInvalidArgument, {"*.csv", "data.format"});
  WriteFile(dir / "000.png", "not read");
  ExpectError(
      Open(dir.path()).status(), absl::StatusCode::kInvalidArgument,
      {"found 000.png, notes.txt. Pictures belong in one folder a class below that one", dir / "unknown/000.png"});
  ExpectError(Open(dir / "000.png").status(), absl::StatusCode::kInvalidArgument,
              {dir / "000.png: is a single picture; give the folder above its folder"});
  ExpectError(Open(dir / "absent").status(), absl::StatusCode::kNotFound, {"absent", "no such file"});
  ExpectError(Open("").status(), absl::StatusCode::kInvalidArgument, {"data.path: missing"});
  const auto as = [&](v1::Data::Format format, const std::string& path) {
    return Open(path, {}, [&](v1::Data* d) { d->set_format(format); }).status();
  };
  ExpectError(as(v1::Data::IDX, dir.path()), absl::StatusCode::kNotFound, {"train-images-idx3-ubyte"});
  ExpectError(as(v1::Data::IDX, dir / "notes.txt"), absl::StatusCode::kInvalidArgument, {"IDX is a folder"});
  ExpectError(as(v1::Data::CSV, dir.path()), absl::StatusCode::kNotFound, {"train.csv"});
  ExpectError(as(static_cast<v1::Data::Format>(99), dir.path()), absl::StatusCode::kInvalidArgument, {"99"});
}

TEST(ReadBatchTest, TakesARangeInFileOrder) {
  TempFolder dir;
  WriteIdxDataset(dir.path(), 20, 7, false);
  const auto dataset = Open(dir.path());
  const auto batch = ReadBatch(**dataset, v1::TEST, {2, 6});
  ASSERT_TRUE(batch.ok());
  EXPECT_EQ(batch->examples, 4);
  EXPECT_THAT(batch->labels.floats(), ElementsAre(2, 3, 4, 5));
  ASSERT_EQ(batch->element, Element::kByte);
  ASSERT_EQ(batch->inputs.size(), 24u);
  EXPECT_EQ(batch->inputs.data()[6], (7 * 18) % 256);
  EXPECT_EQ(ReadBatch(**dataset, v1::TEST, {2, 2})->examples, 0);
  EXPECT_EQ(ReadBatch(**dataset, v1::TEST, {2, 8}).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(ReadBatch(**dataset, v1::TEST, {-1, 3}).status().code(), absl::StatusCode::kOutOfRange);
}

TEST(Describe, CountsSplitsClassesAndValues) {
  TempFolder dir;
  WriteFile(dir / "train.csv", "a,label\n1,dog\n-2,cat\n8,cat\n");
  WriteFile(dir / "test.csv", "a,label\n4,dog\n");
  v1::Data data;
  data.set_path(dir.path());
  const auto summary = SummarizeDataset(data);
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_THAT(summary->splits[0].class_examples, ElementsAre(2, 1));
  EXPECT_THAT(summary->splits[2].class_examples, ElementsAre(0, 1));
  EXPECT_EQ(summary->value_min, -2);
  EXPECT_EQ(summary->value_max, 8);
  EXPECT_THAT(ToText(*summary), AllOf(HasSubstr("CSV"), HasSubstr("train       3 examples"),
                                      HasSubstr("validation  none"), HasSubstr("0 cat"), HasSubstr("train 2  test 0")));
  data.set_path(dir / "absent");
  EXPECT_EQ(DescribeDataset(data).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace cairn
