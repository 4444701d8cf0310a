// Goal: a TFRecord data set that cannot be read is refused with the file, the record and what to do; no bytes crash the
// reader.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "common/base/random.h"
#include "tests/unit/data/tfrecord_testing.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

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

}  // namespace
}  // namespace cairn
