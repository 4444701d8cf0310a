// Goal: TFRecord data sets give exactly the numbers that were written, in every encoding, from files, shards and
// folders, packed and plain. What cannot be read: tfrecord_errors_test.cc. What Python writes is read in
// tests/integration/data_test.py.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/data/describe.h"
#include "common/data/record_files.h"
#include "tests/unit/data/tfrecord_testing.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(TfRecord, RawBytesOfOneFile) {
  for (const char* name : {"a.tfrecord", "a.tfrecords", "a.tfrecord.gz", "a.tfrecord-00000-of-00001"}) {
    TempFolder dir;
    const std::string path = dir / name;
    const bool packed = std::string(name).ends_with(".gz");
    (packed ? WriteGzip : WriteFile)(path, Plain(30));
    const auto dataset = Open(path, {2, 3, 1});
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    EXPECT_EQ((*dataset)->info().format(), v1::Data::TFRECORD);
    EXPECT_EQ((*dataset)->info().train_examples(), 30);
    EXPECT_EQ((*dataset)->info().classes(), 10);
    EXPECT_THAT((*dataset)->info().example_shape(), ElementsAre(2, 3, 1));
    for (int pass = 0; pass < 2; ++pass) {  // decoded, then from the cache
      for (int i = 29; i >= 0; --i) ExpectPlain(**dataset, v1::TRAIN, i, i);
    }
    float example[6], label;
    EXPECT_EQ((*dataset)->Read(v1::TRAIN, 30, example, &label).code(), absl::StatusCode::kOutOfRange);
  }
}

TEST(TfRecord, ShapesThatCannotBeCounted) {
  TempFolder dir;
  WriteFile(dir / "p.tfrecord", Plain(2));
  const auto message = [&](const std::vector<int32_t>& shape) {
    return std::string(
        Open(dir / "p.tfrecord", {},
             [&](v1::Data* data) { data->mutable_tfrecord()->mutable_shape()->Assign(shape.begin(), shape.end()); })
            .status()
            .message());
  };
  const auto ends = HasSubstr("; an example has 1 to 67108864 numbers (");
  // 45 * 2^64 + 6: six numbers to who multiplies without looking, as many as the record has.
  EXPECT_THAT(message({66, 391, 113, 10487, 109103, 248797}), ends);
  EXPECT_THAT(message({1 << 16, 1 << 16}), ends);
  EXPECT_THAT(message({1 << 26, 0}), HasSubstr("data.tfrecord.shape: 0; use 1 and more"));
  EXPECT_EQ(message({2, 3}), "");
}

TEST(TfRecord, ShardsAndSplits) {
  TempFolder dir;
  WriteFile(dir / "d/flowers-train.tfrecord-00000-of-00003", Plain(5));
  WriteFile(dir / "d/flowers-train.tfrecord-00001-of-00003", Plain(1, 5));
  WriteFile(dir / "d/flowers-train.tfrecord-00002-of-00003", Plain(9, 6));
  WriteFile(dir / "d/flowers-validation.tfrecord-00000-of-00001", Plain(4, 100));
  WriteGzip(dir / "d/test.tfrecord.gz", Plain(3, 200));
  WriteFile(dir / "d/dataset_info.json", "{}");
  const auto dataset = Open(dir / "d", {6});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->size(v1::TRAIN), 15);
  EXPECT_EQ((*dataset)->size(v1::VALIDATION), 4);
  EXPECT_EQ((*dataset)->size(v1::TEST), 3);
  for (int i = 0; i < 15; ++i) ExpectPlain(**dataset, v1::TRAIN, i, i);
  for (int i = 0; i < 4; ++i) ExpectPlain(**dataset, v1::VALIDATION, i, 100 + i);
  for (int i = 0; i < 3; ++i) ExpectPlain(**dataset, v1::TEST, i, 200 + i);
  EXPECT_EQ((*dataset)->NameOf(v1::TRAIN, 9), "9") << "over all files";

  // The name of one shard stands for its whole family.
  const auto family = Open(dir / "d/flowers-train.tfrecord-00001-of-00003", {6});
  ASSERT_TRUE(family.ok()) << family.status();
  EXPECT_EQ((*family)->size(v1::TRAIN), 15);
  EXPECT_EQ((*family)->size(v1::TEST), 0);

  std::filesystem::remove(dir / "d/flowers-train.tfrecord-00001-of-00003");
  EXPECT_EQ(
      Open(dir / "d", {6}).status(),
      absl::NotFoundError(dir / "d: shard 00001 of 00003 of \"flowers-train.tfrecord\" is missing; fetch it too"));
}

TEST(TfRecord, FoldersOfSplitsAndFilesWithoutSplits) {
  TempFolder dir;
  WriteFile(dir / "a/train/1.tfrecord", Plain(2));
  WriteFile(dir / "a/train/2.tfrecord", Plain(3, 2));
  WriteFile(dir / "a/val/x.tfrecord", Plain(4));
  WriteFile(dir / "b/1.tfrecord", Plain(2));
  WriteFile(dir / "b/2.tfrecord", Plain(3, 2));
  WriteFile(dir / "c/1.tfrecord", Plain(2));
  WriteFile(dir / "c/test.tfrecord", Plain(2));
  const auto a = Open(dir / "a", {6}), b = Open(dir / "b", {6});
  ASSERT_TRUE(a.ok() && b.ok()) << a.status() << b.status();
  EXPECT_EQ((*a)->size(v1::TRAIN), 5);
  EXPECT_EQ((*a)->size(v1::VALIDATION), 4);
  EXPECT_EQ((*b)->size(v1::TRAIN), 5);
  for (int i = 0; i < 5; ++i) ExpectPlain(**b, v1::TRAIN, i, i);
  EXPECT_EQ(Open(dir / "c", {6}).status().message(),
            dir /
                "c/1.tfrecord: its name names no split, but those of other files do; put \"train\", \"validation\" or "
                "\"test\" into it");
}

TEST(TfRecord, Pictures) {
  TempFolder dir;
  WritePng(dir / "p.png", 3, 2, 3, std::vector<uint8_t>(18, 77));
  WriteJpeg(dir / "p.jpg", 16, 8, 3, ::cairn::Plain(16, 8, {200, 100, 50}));
  WriteFile(dir / "p.tfrecord",
            Records({{OfBytes("image/encoded", ReadFile(dir / "p.png")), Ints("image/class/label", {1})},
                     {Ints("image/class/label", {2}), OfBytes("image/encoded", ReadFile(dir / "p.jpg"))}}));
  const auto dataset =
      Open(dir / "p.tfrecord", {4, 4, 3}, [](v1::Data* d) { d->mutable_tfrecord()->set_label_offset(1); });
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->info().classes(), 2);
  float label = -1;
  EXPECT_THAT(Example(**dataset, v1::TRAIN, 0, &label), testing::Each(77));
  EXPECT_EQ(label, 0);
  const std::vector<float> jpeg = Example(**dataset, v1::TRAIN, 1, &label);
  EXPECT_EQ(label, 1);
  EXPECT_NEAR(jpeg[0], 200, 3);
  EXPECT_NEAR(jpeg[47], 50, 3);
  // Without a model: the size of the first example.
  v1::Data data;
  data.set_path(dir / "p.tfrecord");
  const auto summary = SummarizeDataset(data);
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_THAT(summary->info.example_shape(), ElementsAre(2, 3, 3));
}

TEST(TfRecord, Numbers) {
  TempFolder dir;
  WriteFile(dir / "n.tfrecord", Records({{Floats("x", {1.5f, -2, 3}), Floats("y", {0.25f})},
                                         {Floats("x", {4}), Floats("y", {-1})},
                                         {Floats("x", {}), Floats("y", {7})}}));
  const auto dataset = Open(dir / "n.tfrecord", {3});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->info().classes(), 0) << "labels are numbers";
  float label = -1;
  EXPECT_THAT(Example(**dataset, v1::TRAIN, 0, &label), ElementsAre(1.5f, -2, 3));
  EXPECT_EQ(label, 0.25f);
  EXPECT_THAT(Example(**dataset, v1::TRAIN, 1), ElementsAre(4, 0, 0)) << "filled up with 0";
  EXPECT_THAT(Example(**dataset, v1::TRAIN, 2), ElementsAre(0, 0, 0));
}

TEST(TfRecord, TokensTakeTheLongestWhereNobodyTellsTheShape) {
  TempFolder dir;
  WriteFile(dir / "t.tfrecord", Records({{Ints("tokens", {5, 70000, 3}), Ints("label", {1})},
                                         {Ints("tokens", {1, 2, 3, 4, 5}), Ints("label", {0})}}));
  const Change tokens = [](v1::Data* d) { d->mutable_tfrecord()->set_input("tokens"); };
  const auto dataset = Open(dir / "t.tfrecord", {}, tokens);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_THAT((*dataset)->info().example_shape(), ElementsAre(5));
  EXPECT_THAT(Example(**dataset, v1::TRAIN, 0), ElementsAre(5, 70000, 3, 0, 0));
}

TEST(TfRecord, RawFloats) {
  TempFolder dir;
  const float numbers[] = {1.5f, -0.0f, 3e20f, 4};
  const std::string bytes(reinterpret_cast<const char*>(numbers), sizeof(numbers));
  WriteFile(dir / "f.tfrecord", Records({{OfBytes("x", bytes), Ints("y", {3})}}));
  const auto dataset = Open(dir / "f.tfrecord", {2, 2, 1},
                            [](v1::Data* d) { d->mutable_tfrecord()->set_encoding(v1::TfRecord::RAW_FLOAT32); });
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_THAT(Example(**dataset, v1::TRAIN, 0), ElementsAre(1.5f, -0.0f, 3e20f, 4));
}

TEST(TfRecord, SizesBesideTheBytesTellTheShape) {
  TempFolder dir;
  WriteFile(dir / "s.tfrecord", Records({{OfBytes("image_raw", std::string(12, 'a')), Ints("label", {0}),
                                          Ints("height", {2}), Ints("width", {2}), Ints("depth", {3})}}));
  EXPECT_THAT((*Open(dir / "s.tfrecord"))->info().example_shape(), ElementsAre(2, 2, 3));
  EXPECT_THAT((*Open(dir / "s.tfrecord", {12}))->info().example_shape(), ElementsAre(12));
}

// Numbers one by one instead of packed, unknown fields, a feature that occurs twice: all of it is valid protobuf.
TEST(TfRecord, OtherWaysToWriteTheSame) {
  const auto field = [](int number, const std::string& bytes) {
    return std::string(1, static_cast<char>(number << 3 | 2)) + static_cast<char>(bytes.size()) + bytes;
  };
  const auto entry = [&](const std::string& name, const std::string& feature) {
    return field(1, field(2, feature) + field(1, name));  // the value first
  };
  const std::string ints = field(3, std::string("\x08\x05\x08\x07\x0a\x01\x09", 7));  // 5, 7, then packed 9
  std::string floats("\x0d\0\0\x80\x3f", 5);                                          // 1.0
  floats = field(2, floats + field(1, std::string("\0\0\0\x40", 4)));                 // then packed 2.0
  const std::string unknown("\x98\x06\x2a", 3);                                       // field 99: 42
  const std::string features =
      entry("label", ints) + unknown + entry("x", floats) + entry("label", field(3, field(1, "\x04")));
  TempFolder dir;
  std::string bytes;
  AppendRecord(unknown + field(1, features) + unknown, &bytes);
  WriteFile(dir / "o.tfrecord", bytes);
  const auto dataset = Open(dir / "o.tfrecord", {2});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  float label = -1;
  EXPECT_THAT(Example(**dataset, v1::TRAIN, 0, &label), ElementsAre(1, 2));
  EXPECT_EQ(label, 4) << "the last one counts";
  // A list of three numbers is read in order.
  std::string other;
  AppendRecord(field(1, entry("x", ints) + entry("label", field(3, field(1, "\x04")))), &other);
  WriteFile(dir / "p.tfrecord", other);
  EXPECT_THAT(Example(**Open(dir / "p.tfrecord", {3}), v1::TRAIN, 0), ElementsAre(5, 7, 9));
}

// Records larger than the window, with the label behind the picture.
TEST(TfRecord, LargeRecords) {
  TempFolder dir;
  std::string bytes;
  for (int i = 0; i < 5; ++i) {
    AppendRecord(WriteExample({OfBytes("image", std::string(200'000 + i, static_cast<char>(i))), Ints("zlabel", {i})}),
                 &bytes);
  }
  WriteFile(dir / "l.tfrecord", bytes);
  const auto dataset =
      Open(dir / "l.tfrecord", {200'000}, [](v1::Data* d) { d->mutable_tfrecord()->set_label("zlabel"); });
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->info().classes(), 5);
  EXPECT_THAT(Example(**dataset, v1::TRAIN, 0), testing::Each(0));
  std::vector<float> example(200'000);
  float label;
  EXPECT_THAT(std::string((*dataset)->Read(v1::TRAIN, 4, example.data(), &label).message()),
              HasSubstr("has 200004 bytes"));
}

// Whatever the bytes are, the reader returns a sensible error. The checksums are right, so that the bytes behind them
// are read.

TEST(RecordNames, AreToldApart) {
  for (const char* name : {"a.tfrecord", "b.tfrecords", "c.tfrecord.gz", "d-00000-of-00004", "d-00003-of-00004.gz"}) {
    EXPECT_TRUE(HasRecordName(name)) << name;
  }
  for (const char* name : {"a.tfrecordx", "train.csv", "d-4-of-4", "d-x-of-4", "of-", "-of-3", "", "tfrecord"}) {
    EXPECT_FALSE(HasRecordName(name)) << name;
  }
}

}  // namespace
}  // namespace cairn
