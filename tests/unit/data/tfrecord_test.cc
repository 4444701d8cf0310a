// Goal: TFRecord data sets give exactly the numbers that were written, in every encoding, from files, shards and
// folders, packed and plain; what cannot be read is refused with the file, the record and what to do; no bytes crash
// the reader. What Python writes is read in tests/integration/data_test.py.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "common/base/crc32c.h"
#include "common/base/random.h"
#include "common/data/dataset.h"
#include "common/data/describe.h"
#include "common/data/record_files.h"
#include "common/data/tf_example.h"
#include "tests/unit/data/data_files.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using DatasetPtr = std::shared_ptr<const Dataset>;
using Change = std::function<void(v1::Data*)>;

absl::StatusOr<DatasetPtr> Open(
    const std::string& path, const Shape& shape = {}, const Change& change = [](v1::Data*) {}) {
  v1::Data data;
  data.set_path(path);
  change(&data);
  return OpenDataset(data, shape);
}

std::vector<float> Example(const Dataset& dataset, v1::Split split, int64_t index, float* label = nullptr) {
  std::vector<float> example(dataset.example_size());
  float own = -1;
  const absl::Status status = dataset.Read(split, index, example.data(), &own);
  EXPECT_TRUE(status.ok()) << status;
  if (label != nullptr) *label = own;
  return example;
}

FeatureValue OfBytes(const std::string& name, const std::string& bytes) {
  return {.name = name, .kind = FeatureKind::kBytes, .bytes = bytes};
}
FeatureValue Ints(const std::string& name, const std::vector<int64_t>& ints) {
  return {.name = name, .kind = FeatureKind::kInts, .ints = ints};
}
FeatureValue Floats(const std::string& name, const std::vector<float>& floats) {
  return {.name = name, .kind = FeatureKind::kFloats, .floats = floats};
}

std::string Records(const std::vector<std::vector<FeatureValue>>& examples) {
  std::string bytes;
  for (const auto& features : examples) AppendRecord(WriteExample(features), &bytes);
  return bytes;
}

// Records first .. first + n - 1 of the data set that most tests use: 2x3 bytes (first number i), class i mod 10.
std::string Plain(int n, int first = 0) {
  std::string bytes;
  for (int i = first; i < first + n; ++i) {
    AppendRecord(WriteExample({OfBytes("image_raw", Bytes(6, i)), Ints("label", {i % 10})}), &bytes);
  }
  return bytes;
}

void ExpectPlain(const Dataset& dataset, v1::Split split, int64_t index, int number) {
  float label = -1;
  const std::vector<float> example = Example(dataset, split, index, &label);
  ASSERT_EQ(example.size(), 6u);
  for (int j = 0; j < 6; ++j) EXPECT_EQ(example[j], (number + 7 * j) % 256) << index << " " << j;
  EXPECT_EQ(label, number % 10);
}

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

TEST(TfRecord, WhatIsWrongIsNamed) {
  struct Case {
    std::string what;
    std::string bytes;
    Change change;
    absl::StatusCode code;
    std::string message;  // after the path
    std::string name = "a.tfrecord";
  };
  const auto kLoss = absl::StatusCode::kDataLoss, kInvalid = absl::StatusCode::kInvalidArgument;
  const auto none = [](v1::Data*) {};
  const auto spoiled = [](size_t at) {
    std::string bytes = Plain(3);
    bytes[at] = static_cast<char>(bytes[at] ^ 4);
    return bytes;
  };
  const size_t record = Plain(1).size();
  const std::string has = "the record has \"image_raw\" (6 bytes), \"label\" (int64_list of 1)";
  const std::vector<Case> cases = {
      {"cut", Plain(3).substr(0, 2 * record + 20), none, kLoss,
       ": record 2: the file ends within it, at byte " + std::to_string(2 * record + 20) +
           "; it is cut off: make or fetch the file again"},
      {"cut within a header", Plain(3).substr(0, record + 5), none, kLoss,
       ": record 1: the file ends within it, at byte " + std::to_string(record + 5) +
           "; it is cut off: make or fetch the file again"},
      {"length altered", spoiled(record), none, kLoss,
       ": record 1: its length has a wrong CRC, at byte " + std::to_string(record) +
           "; the file was altered or is damaged: make or fetch it again"},
      {"data of the first record altered", spoiled(14), none, kLoss,
       ": record 0: its data has a wrong CRC, at byte 0; the file was altered or is damaged: make or fetch it again"},
      {"another format", "this is not a record at all", none, kLoss,
       ": not a TFRecord file: its first twelve bytes are not a record's header"},
      {"empty", "", none, kLoss, ": an empty file"},
      {"no example",
       [] {
         std::string bytes;
         AppendRecord("\xff\xff", &bytes);
         return bytes;
       }(),
       none, kLoss, ": record 0: not a tf.train.Example: it ends within a number"},
      {"missing feature", Plain(2), [](v1::Data* d) { d->mutable_tfrecord()->set_input("picture"); }, kInvalid,
       "data.tfrecord.input: there is no feature \"picture\"; " + has + " (PATH, record 0)"},
      {"missing label", Records({{OfBytes("image", "abc"), Floats("z", {1, 2})}}), none, kInvalid,
       "data.tfrecord.label: missing, and the record has none of \"image/class/label\", \"label\", \"y\"; it has "
       "\"image\" (3 "
       "bytes), \"z\" (float_list of 2); name one of them (PATH, record 0)"},
      {"label missing later", Plain(2) + Records({{OfBytes("image_raw", "abcdef")}}), none, kLoss,
       ": record 2: has no feature \"label\", which the first record has"},
      {"text label", Records({{OfBytes("image", "abc"), OfBytes("label", "cat")}}), none, kInvalid,
       ": record 0: its label \"label\" is a bytes_list; name a feature of class numbers in data.tfrecord.label"},
      {"several labels", Records({{OfBytes("image", "abc"), Ints("label", {1, 2})}}), none, kLoss,
       ": record 0: its label \"label\" has several numbers; a label is one number"},
      {"label below the offset", Records({{OfBytes("image", "abc"), Ints("label", {0})}}),
       [](v1::Data* d) { d->mutable_tfrecord()->set_label_offset(1); }, kLoss,
       ": record 0: its label \"label\" is -1 after data.tfrecord.label_offset 1 is taken from it; class numbers begin "
       "at 0"},
      {"wrong encoding", Plain(1), [](v1::Data* d) { d->mutable_tfrecord()->set_encoding(v1::TfRecord::NUMBERS); },
       kInvalid,
       "data.tfrecord.encoding: NUMBERS, but feature \"image_raw\" is a bytes_list; use JPEG_OR_PNG, RAW_UINT8 or "
       "RAW_FLOAT32 "
       "(PATH, record 0)"},
      {"gzip that is cut", "\x1f\x8b rubbish", none, kLoss, ": broken gzip data"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    TempFolder dir;
    const std::string path = dir / c.name;
    WriteFile(path, c.bytes);
    const absl::Status status = Open(path, {2, 3, 1}, c.change).status();
    EXPECT_EQ(status.code(), c.code) << status;
    std::string message = c.message;
    if (message.starts_with(":")) message = path + message;
    if (const size_t at = message.find("PATH"); at != std::string::npos) message.replace(at, 4, path);
    if (c.what.starts_with("gzip")) {
      EXPECT_THAT(std::string(status.message()), HasSubstr(message));
    } else {
      EXPECT_EQ(std::string(status.message()), message);
    }
  }
}

TEST(TfRecord, WhatIsWrongWithinARecordIsNamedWhenItIsRead) {
  TempFolder dir;
  const std::string path = dir / "a.tfrecord";
  const auto read = [&](const std::string& bytes, int64_t index, const Shape& shape = {2, 3, 1}) {
    WriteFile(path, bytes);
    const auto dataset = Open(path, shape);
    EXPECT_TRUE(dataset.ok()) << dataset.status();
    if (!dataset.ok()) return std::string();
    std::vector<float> example((*dataset)->example_size());
    float label;
    EXPECT_TRUE((*dataset)->Read(v1::TRAIN, 0, example.data(), &label).ok()) << "the others are good";
    const absl::Status status = (*dataset)->Read(v1::TRAIN, index, example.data(), &label);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    return std::string(status.message());
  };
  const size_t record = Plain(1).size();
  std::string altered = Plain(4);
  altered[2 * record + 35] = static_cast<char>(altered[2 * record + 35] ^ 1);  // a pixel
  EXPECT_EQ(read(altered, 2), path + ": record 2: its data has a wrong CRC, at byte " + std::to_string(2 * record) +
                                  "; the file was altered or is damaged: make or fetch it again");
  EXPECT_EQ(
      read(Plain(1) + Records({{OfBytes("image_raw", "abc"), Ints("label", {1})}}), 1),
      path +
          ": record 1: feature \"image_raw\" has 3 bytes, the shape [2,3,1] takes 6; set data.tfrecord.shape, or the "
          "model's input, to what was written");
  EXPECT_EQ(read(Plain(1) + Records({{Floats("image_raw", {1}), Ints("label", {1})}}), 1),
            path + ": record 1: feature \"image_raw\" is a float_list, unlike the first record's");
  EXPECT_EQ(
      read(Records({{Floats("x", {1, 2}), Ints("y", {1})}, {Floats("x", {1, 2, 3}), Ints("y", {1})}}), 1, {2}),
      path +
          ": record 1: feature \"x\" has 3 numbers, the shape [2] takes 2; set data.tfrecord.shape, or the model's "
          "input, to what was written");
  WritePng(dir / "p.png", 3, 2, 1, std::vector<uint8_t>(6, 9));
  const std::string png = ReadFile(dir / "p.png");
  EXPECT_THAT(
      read(Records({{OfBytes("image", png), Ints("label", {0})}, {OfBytes("image", "GIF89a..."), Ints("label", {0})}}),
           1),
      testing::Eq(path + ": record 1: feature \"image\": neither a JPEG nor a PNG picture, whatever its name says"));
}

// As in CSV: it would reach all weights in the first step.
TEST(TfRecord, ANumberThatIsNotFiniteIsNamed) {
  TempFolder dir;
  const std::string path = dir / "a.tfrecord";
  for (const bool raw : {true, false}) {
    for (const float bad : {NAN, -INFINITY}) {
      std::vector<std::vector<FeatureValue>> records;
      for (const float number : {1.0f, bad}) {
        const std::vector<float> numbers = {2, 3, number};
        const std::string bytes(reinterpret_cast<const char*>(numbers.data()), 12);
        records.push_back({raw ? OfBytes("x", bytes) : Floats("x", numbers), Ints("y", {0})});
      }
      WriteFile(path, Records(records));
      const auto dataset = Open(path, {3}, [&](v1::Data* d) {
        if (raw) d->mutable_tfrecord()->set_encoding(v1::TfRecord::RAW_FLOAT32);
      });
      ASSERT_TRUE(dataset.ok()) << dataset.status();
      EXPECT_THAT(Example(**dataset, v1::TRAIN, 0), ElementsAre(2, 3, 1));
      float example[3], label;
      const absl::Status status = (*dataset)->Read(v1::TRAIN, 1, example, &label);
      EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
      EXPECT_EQ(std::string(status.message()), path + ": record 1: feature \"x\": number 2 (from 0) is " +
                                                   (std::isnan(bad) ? "nan" : "-inf") +
                                                   "; leave the record out or fill the value in");
    }
  }
}

TEST(TfRecord, TheLabelThatDecidesTheClassesIsNamed) {
  TempFolder dir;
  const std::string second = dir / "a.tfrecord-00001-of-00002";
  const auto deciding = [&](const std::vector<int64_t>& labels, int32_t offset = 0) {
    WriteFile(dir / "a.tfrecord-00000-of-00002", Plain(3));
    std::string bytes;
    for (const int64_t label : labels) bytes += Records({{OfBytes("image_raw", Bytes(6, 1)), Ints("label", {label})}});
    WriteFile(second, bytes);
    const auto dataset =
        Open(dir.path(), {2, 3, 1}, [&](v1::Data* d) { d->mutable_tfrecord()->set_label_offset(offset); });
    EXPECT_TRUE(dataset.ok()) << dataset.status();
    return dataset.ok() ? (*dataset)->info().deciding_label() : "";
  };
  EXPECT_EQ(deciding({1, 12, 12, 3}), second + ": record 1 has label 12");
  EXPECT_EQ(deciding({1, 2, -1}), second + ": record 2 has label -1");
  EXPECT_EQ(deciding({200'000, 1}), second + ": record 0 has label 200000");
  EXPECT_EQ(deciding({1, 12}, -1), second + ": record 1 has label 13 after data.tfrecord.label_offset -1");
}

TEST(TfRecord, GzipThatDoesNotFitIntoTheCache) {
  TempFolder dir;
  std::string bytes;
  for (int i = 0; i < 3; ++i)
    AppendRecord(WriteExample({OfBytes("image", std::string(600'000, 'x')), Ints("label", {1})}), &bytes);
  WriteGzip(dir / "g.tfrecord.gz", bytes);
  EXPECT_EQ(Open(dir / "g.tfrecord.gz", {}, [](v1::Data* d) { d->set_cache_mib(1); }).status(),
            absl::ResourceExhaustedError(
                dir / "g.tfrecord.gz: a gzip file has no random access, and what it holds does not fit "
                      "into the 1 MiB that are left of data.cache_mib; unpack the file, or raise "
                      "data.cache_mib"));
  EXPECT_TRUE(Open(dir / "g.tfrecord.gz", {}, [](v1::Data* d) { d->set_cache_mib(2); }).ok());
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
TEST(TfRecord, NoBytesCrashTheReader) {
  TempFolder dir;
  const std::string whole =
      WriteExample({OfBytes("image", "abcdef"), Floats("f", {1, 2}), Ints("label", {3}), Ints("t", {300, -1})});
  int refused = 0;
  for (uint32_t round = 0; round < 1000; ++round) {
    std::string record = whole;
    const PhiloxBlock random = Philox({17, 4}, {round, 0, 0, 0});
    for (uint32_t change = 0; change <= random[0] % 3; ++change) {
      const PhiloxBlock r = Philox({17, 5}, {round, change, 0, 0});
      const size_t at = r[0] % record.size();
      if (r[1] % 4 == 0)
        record.erase(at, r[2] % 5);
      else if (r[1] % 4 == 1)
        record.insert(at, 1 + r[2] % 3, static_cast<char>(r[3]));
      else
        record[at] = static_cast<char>(r[3]);
      if (record.empty()) break;
    }
    std::string bytes;
    AppendRecord(round % 2 == 0 ? record : whole, &bytes);
    AppendRecord(record, &bytes);
    if (random[1] % 8 == 0) bytes.resize(random[2] % bytes.size() + 1);
    WriteFile(dir / "r.tfrecord", bytes);
    const auto dataset = Open(dir / "r.tfrecord", round % 3 == 0 ? Shape{} : Shape{6});
    if (!dataset.ok()) {
      ++refused;
      EXPECT_FALSE(dataset.status().message().empty());
      continue;
    }
    ASSERT_LT((*dataset)->example_size(), 1 << 20) << "seed 17, round " << round;
    std::vector<float> example((*dataset)->example_size());
    float label;
    for (int64_t i = 0; i < (*dataset)->size(v1::TRAIN); ++i) {
      (void)(*dataset)->Read(v1::TRAIN, i, example.data(), &label);
    }
  }
  EXPECT_GT(refused, 150);
  EXPECT_LT(refused, 950);
}

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
