// Goal: a data set that was converted to TFRecord gives the numbers and labels that it gave before, split by split;
// what cannot be converted is refused, and nothing half-written is left behind.
#include "common/data/convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "common/data/dataset.h"
#include "tests/unit/data/data_files.h"

namespace cairn {
namespace {

v1::Data At(const std::string& path) {
  v1::Data data;
  data.set_path(path);
  return data;
}

using Examples = std::multiset<std::pair<float, std::vector<float>>>;  // label, numbers; shards change the order

Examples All(const std::string& path, v1::Split split, const Shape& shape) {
  const auto dataset = OpenDataset(At(path), shape);
  EXPECT_TRUE(dataset.ok()) << dataset.status();
  Examples all;
  if (!dataset.ok()) return all;
  std::vector<float> example((*dataset)->example_size());
  for (int64_t i = 0; i < (*dataset)->size(split); ++i) {
    float label;
    EXPECT_TRUE((*dataset)->Read(split, i, example.data(), &label).ok());
    all.emplace(label, example);
  }
  return all;
}

void ExpectSame(const std::string& before, const std::string& after, const Shape& shape) {
  for (v1::Split split : {v1::TRAIN, v1::VALIDATION, v1::TEST}) {
    EXPECT_EQ(All(before, split, shape), All(after, split, shape)) << v1::Split_Name(split);
  }
  EXPECT_EQ((*OpenDataset(At(before), shape))->info().classes(), (*OpenDataset(At(after), shape))->info().classes());
}

TEST(Convert, Idx) {
  TempFolder dir;
  WriteIdxDataset(dir / "idx", 31, 7, true);
  for (const ConvertOptions& options : {ConvertOptions{.out = dir / "a"}, ConvertOptions{.out = dir / "b", .shards = 4},
                                        ConvertOptions{.out = dir / "c", .shards = 3, .gzip = true}}) {
    const auto converted = ConvertToTfRecord(At(dir / "idx"), options);
    ASSERT_TRUE(converted.ok()) << converted.status();
    EXPECT_THAT(converted->examples, testing::ElementsAre(31, 0, 7));
    EXPECT_EQ(converted->files, 2 * options.shards);
    ExpectSame(dir / "idx", options.out, {2, 3, 1});
  }
  // One split into one file; in order.
  ASSERT_TRUE(ConvertToTfRecord(At(dir / "idx"), {.out = dir / "d/test.tfrecord.gz", .split = "test"}).ok());
  EXPECT_EQ(All(dir / "d/test.tfrecord.gz", v1::TRAIN, {6}), All(dir / "idx", v1::TEST, {6}));
}

TEST(Convert, Pictures) {
  TempFolder dir;
  for (int i = 0; i < 6; ++i) {
    const std::string name = dir / ("p/train/" + std::string(i % 2 == 0 ? "ant/" : "bee/") + std::to_string(i));
    const std::vector<uint8_t> colour = {static_cast<uint8_t>(40 * i), 100, static_cast<uint8_t>(255 - i)};
    if (i < 3) {
      WritePng(name + ".png", 5 + i, 4, 3, Plain(5 + i, 4, colour));
    } else {
      WriteJpeg(name + ".jpg", 16, 8 + i, 3, Plain(16, 8 + i, colour));
    }
  }
  WritePng(dir / "p/validation/bee/x.png", 4, 4, 3, Plain(4, 4, {1, 2, 3}));
  ASSERT_TRUE(ConvertToTfRecord(At(dir / "p"), {.out = dir / "r"}).ok());
  ExpectSame(dir / "p", dir / "r", {7, 6, 3});
}

TEST(Convert, Csv) {
  TempFolder dir;
  WriteFile(dir / "classes.csv", "a,b,label\n1.5,-2,0\n3,4e10,2\n0.1,0.2,1\n");
  WriteFile(dir / "numbers.csv", "1.5,-2,0.25\n3,4,-7.5\n");
  for (const char* name : {"classes", "numbers"}) {
    const std::string out = dir / (std::string(name) + ".tfrecord");
    ASSERT_TRUE(ConvertToTfRecord(At(dir / (std::string(name) + ".csv")), {.out = out}).ok());
    ExpectSame(dir / (std::string(name) + ".csv"), out, {2});
  }
}

TEST(Convert, WhatCannotBe) {
  TempFolder dir;
  WriteIdxDataset(dir / "idx", 5, 2, false);
  const auto convert = [&](const std::string& in, const ConvertOptions& options) {
    return std::string(ConvertToTfRecord(At(dir / in), options).status().message());
  };
  EXPECT_EQ(convert("idx", {.out = dir / "a.tfrecord"}),
            dir / "a.tfrecord: one file for a data set of 2 splits; give a folder, or choose with --split train");
  EXPECT_EQ(convert("idx", {.out = dir / "a", .split = "validation"}),
            "--split validation: the data has no such split");
  EXPECT_EQ(convert("idx", {.out = dir / "a", .shards = 0}), "--shards: 0 is not in 1 to 10000");
  EXPECT_EQ(convert("idx", {.out = dir / "idx/train-images-idx3-ubyte/a"}),
            dir / "idx/train-images-idx3-ubyte/a: cannot be made: Not a directory");
  ASSERT_EQ(convert("idx", {.out = dir / "a"}), "");
  EXPECT_EQ(convert("a", {.out = dir / "b"}), dir / "a: holds TFRecords already; use them as they are");
  // A broken picture in the middle: no file, whole or in part.
  WritePng(dir / "p/ant/1.png", 4, 4, 3, Plain(4, 4, {1, 2, 3}));
  WriteFile(dir / "p/ant/2.png", "no picture");
  EXPECT_EQ(convert("p", {.out = dir / "q"}),
            dir / "p/ant/2.png: neither a JPEG nor a PNG picture, whatever its name says");
  EXPECT_TRUE(std::filesystem::is_empty(dir / "q"));
}

}  // namespace
}  // namespace cairn
