// Goal: what is written reads back as the same names, shapes and bits; the bytes are those that the format's definition
// demands; and no lie in a file (lengths, offsets, shapes, JSON) does more than give an error that names the tensor.
// The header that is read alone says the same.
#include "common/formats/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "absl/strings/str_cat.h"
#include "common/formats/limits.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

class SafetensorsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "cairn-safetensors-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    dir_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  std::string Path(const std::string& name) const { return (dir_ / name).string(); }

  std::filesystem::path dir_;
};

std::string FileBytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// A file with this header text (length as given or true) and this data.
Buffer Bytes(const std::string& header, const std::string& data, std::optional<uint64_t> length = std::nullopt) {
  const uint64_t n = length.value_or(header.size());
  std::string all(reinterpret_cast<const char*>(&n), 8);
  all += header + data;
  return Buffer::CopyOf(all.data(), all.size());
}

// By ranges; reads: how many.
absl::StatusOr<SafetensorsFile> HeaderOf(const Buffer& bytes, int* reads = nullptr) {
  const auto read = [&](uint64_t begin, uint64_t wanted) -> absl::StatusOr<std::string> {
    if (reads != nullptr) ++*reads;
    EXPECT_LE(begin + wanted, bytes.size());
    return std::string(reinterpret_cast<const char*>(bytes.data()) + begin, wanted);
  };
  return ReadSafetensorsHeader(read, bytes.size(), "m.safetensors");
}

std::string ErrorOf(const Buffer& bytes) {
  const auto file = ParseSafetensors(bytes, "m.safetensors");
  EXPECT_EQ(HeaderOf(bytes).status(), file.status()) << "the header alone says the same";
  return file.ok() ? "no error" : std::string(file.status().message());
}

std::string Tensor(const std::string& name, const std::string& dtype, const std::string& shape, uint64_t begin,
                   uint64_t end) {
  return absl::StrCat("\"", name, "\":{\"dtype\":\"", dtype, "\",\"shape\":", shape, ",\"data_offsets\":[", begin, ",",
                      end, "]}");
}

TEST_F(SafetensorsTest, RoundTripKeepsEveryBit) {
  const std::vector<float> kernel = {1.5f, -0.0f, INFINITY, std::bit_cast<float>(0x7fc12345u), 1e-42f, 3.0f};
  const std::vector<float> scalar = {42.0f};
  ASSERT_TRUE(WriteSafetensors(Path("m"),
                               {{"dense/kernel", {2, 3}, kernel}, {"step", {}, scalar}, {"none", {0, 4}, {}}},
                               {{"job", "größe \"1\""}, {"version", "7"}})
                  .ok());
  const auto file = ReadSafetensors(Path("m"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_THAT(file->metadata, ElementsAre(Pair("job", "größe \"1\""), Pair("version", "7")));
  ASSERT_EQ(file->tensors.size(), 3u);
  std::map<std::string, const Safetensor*> by_name;
  for (const Safetensor& t : file->tensors) by_name[t.name] = &t;
  EXPECT_EQ(by_name.at("dense/kernel")->shape, (Shape{2, 3}));
  EXPECT_EQ(by_name.at("dense/kernel")->dtype, v1::FLOAT32);
  EXPECT_EQ(std::memcmp(by_name.at("dense/kernel")->data.data(), kernel.data(), 24), 0);
  EXPECT_EQ(by_name.at("step")->shape, Shape{});
  EXPECT_EQ(by_name.at("step")->data.floats()[0], 42.0f);
  EXPECT_EQ(by_name.at("none")->shape, (Shape{0, 4}));
}

TEST_F(SafetensorsTest, BytesAreTheFormats) {
  const std::vector<float> v = {1.0f};
  ASSERT_TRUE(WriteSafetensors(Path("m"), {{"a", {1}, v}}, {}).ok());
  const std::string bytes = FileBytes(Path("m"));
  const std::string header = "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}";
  const size_t padded = (header.size() + 7) / 8 * 8;
  ASSERT_EQ(bytes.size(), 8 + padded + 4);
  EXPECT_EQ(static_cast<unsigned char>(bytes[0]), padded);
  EXPECT_EQ(bytes.substr(1, 7), std::string(7, '\0'));
  EXPECT_EQ(bytes.substr(8, header.size()), header);
  EXPECT_EQ(bytes.substr(8 + header.size(), padded - header.size()), std::string(padded - header.size(), ' '));
  EXPECT_EQ(bytes.substr(8 + padded), std::string("\0\0\x80\x3f", 4));
}

TEST_F(SafetensorsTest, WriterRefusesWhatItCannotWrite) {
  const std::vector<float> v = {1.0f, 2.0f};
  EXPECT_THAT(WriteSafetensors(Path("m"), {{"a", {3}, v}}, {}).message(),
              HasSubstr("tensor \"a\": shape [3], but 2 values"));
  EXPECT_THAT(WriteSafetensors(Path("m"), {{"a", {2}, v}, {"a", {2}, v}}, {}).message(), HasSubstr("used twice"));
  EXPECT_THAT(WriteSafetensors(Path("m"), {{"__metadata__", {2}, v}}, {}).message(), HasSubstr("reserved"));
  EXPECT_THAT(WriteSafetensors(Path("m"), {{"\xff", {2}, v}}, {}).message(), HasSubstr("UTF-8"));
  EXPECT_FALSE(std::filesystem::exists(Path("m")));
  const absl::Status missing = WriteSafetensors(Path("no/such/m"), {{"a", {2}, v}}, {});
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(missing.message(), HasSubstr("no/such/m"));
}

TEST_F(SafetensorsTest, AFailedWriteLeavesTheOldFileAndNothingBeside) {
  const std::vector<float> v = {1.0f};
  std::filesystem::create_directory(dir_ / "m");  // rename onto a directory fails
  EXPECT_FALSE(WriteSafetensors(Path("m"), {{"a", {1}, v}}, {}).ok());
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir_), {}), 1);
}

TEST_F(SafetensorsTest, MissingFileIsNamed) {
  const auto file = ReadSafetensors(Path("absent"));
  EXPECT_EQ(file.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(file.status().message(), HasSubstr("absent"));
  EXPECT_EQ(ReadSafetensors(dir_.string()).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(SafetensorsTest, OtherDtypesOfTheSameFamilyAreRead) {
  const auto file = ParseSafetensors(
      Bytes(absl::StrCat("{", Tensor("h", "F16", "[2]", 0, 4), ",", Tensor("b", "BF16", "[1,1]", 4, 6), "}"), "123456"),
      "m");
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_EQ(file->tensors.size(), 2u);
  EXPECT_EQ(file->tensors[0].dtype, v1::FLOAT16);
  EXPECT_EQ(file->tensors[1].dtype, v1::BFLOAT16);
  EXPECT_EQ(std::memcmp(file->tensors[1].data.data(), "56", 2), 0);
}

TEST_F(SafetensorsTest, TheHeaderIsReadAlone) {
  const std::string long_name(kSafetensorsFirstReadBytes, 'n');
  for (const std::string& name : {std::string("b"), long_name}) {
    const Buffer bytes =
        Bytes(absl::StrCat("{", Tensor("a", "F16", "[2]", 0, 4), ",", Tensor(name, "F32", "[3,1]", 4, 16), "}"),
              "0123456789abcdef");
    int reads = 0;
    const auto header = HeaderOf(bytes, &reads), file = ParseSafetensors(bytes, "m");
    ASSERT_TRUE(header.ok()) << header.status();
    EXPECT_EQ(reads, name == "b" ? 1 : 2) << "more only where the header is long";
    ASSERT_EQ(header->tensors.size(), 2u);
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(header->tensors[i].name, file->tensors[i].name);
      EXPECT_EQ(header->tensors[i].shape, file->tensors[i].shape);
      EXPECT_EQ(header->tensors[i].dtype, file->tensors[i].dtype);
      EXPECT_EQ(header->tensors[i].data.size(), 0u);
    }
  }
  const auto away = [](uint64_t, uint64_t) -> absl::StatusOr<std::string> { return absl::UnavailableError("away"); };
  EXPECT_TRUE(absl::IsUnavailable(ReadSafetensorsHeader(away, 100, "m").status()));
}

TEST_F(SafetensorsTest, LiesAreFound) {
  const std::string four(4, 'x'), eight(8, 'x');
  const auto one = [](const std::string& t) { return absl::StrCat("{", t, "}"); };
  const std::string good = one(Tensor("a", "F32", "[1]", 0, 4));
  EXPECT_EQ(ErrorOf(Bytes(good, four)), "no error");

  EXPECT_THAT(ErrorOf(Buffer::CopyOf("1234567", 7)), HasSubstr("shorter than the 8 bytes"));
  EXPECT_THAT(ErrorOf(Bytes(good, "", 1000)), HasSubstr("a header of 1000 bytes is announced"));
  EXPECT_THAT(ErrorOf(Bytes(good, four, ~uint64_t{0})), HasSubstr("announced"));
  EXPECT_THAT(ErrorOf(Bytes(good, four, ~uint64_t{0} - 7)), HasSubstr("announced"));
  EXPECT_THAT(ErrorOf(Bytes("", four)), HasSubstr("not a JSON object"));
  EXPECT_THAT(ErrorOf(Bytes("[1,2]", four)), HasSubstr("not a JSON object"));
  EXPECT_THAT(ErrorOf(Bytes(good.substr(0, good.size() - 1), four)), HasSubstr("not a JSON object"));
  EXPECT_THAT(ErrorOf(Bytes("{\"a\xff\":1}", four)), HasSubstr("not a JSON object"));
  EXPECT_THAT(ErrorOf(Bytes(absl::StrCat("{\"a\":", std::string(100000, '['), std::string(100000, ']'), "}"), four)),
              HasSubstr("nested too deeply"));
  EXPECT_THAT(
      ErrorOf(
          Bytes(absl::StrCat("{", Tensor("a", "F32", "[1]", 0, 4), ",", Tensor("a", "F32", "[1]", 4, 8), "}"), eight)),
      HasSubstr("names \"a\" twice"));

  EXPECT_THAT(ErrorOf(Bytes(one("\"a\":5"), four)), HasSubstr("tensor \"a\": dtype, shape or data_offsets is missing"));
  EXPECT_THAT(ErrorOf(Bytes(one(Tensor("a", "I64", "[1]", 0, 4)), four)), HasSubstr("tensor \"a\": dtype \"I64\""));
  EXPECT_THAT(ErrorOf(Bytes(one(Tensor("a", "F32", "7", 0, 4)), four)), HasSubstr("shape is not a list"));
  EXPECT_THAT(ErrorOf(Bytes(one(Tensor("a", "F32", "[-1]", 0, 4)), four)), HasSubstr("shape holds"));
  EXPECT_THAT(ErrorOf(Bytes(one(Tensor("a", "F32", "[1.5]", 0, 4)), four)), HasSubstr("shape holds"));
  EXPECT_THAT(ErrorOf(Bytes(one(Tensor("a", "F32", "[4294967296,4294967296]", 0, 4)), four)),
              HasSubstr("more elements"));
  EXPECT_THAT(ErrorOf(Bytes(one(Tensor("a", "F32", "[2]", 0, 4)), four)), HasSubstr("shape [2] needs 8 bytes"));
  EXPECT_THAT(ErrorOf(Bytes(one(Tensor("a", "F32", "[1]", 0, 8)), four)),
              HasSubstr("are not within the file's 4 bytes"));
  EXPECT_THAT(ErrorOf(Bytes(one(Tensor("a", "F32", "[1]", 8, 4)), eight)), HasSubstr("are not within"));
  EXPECT_THAT(ErrorOf(Bytes("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", four)),
              HasSubstr("not a pair"));
  EXPECT_THAT(ErrorOf(Bytes("{\"a\":{\"dtype\":1,\"shape\":[1],\"data_offsets\":[0,4]}}", four)),
              HasSubstr("dtype is not text"));

  EXPECT_THAT(
      ErrorOf(
          Bytes(absl::StrCat("{", Tensor("a", "F32", "[2]", 0, 8), ",", Tensor("b", "F32", "[1]", 4, 8), "}"), eight)),
      HasSubstr("begin at 4, the previous ones end at 8"));
  EXPECT_THAT(ErrorOf(Bytes(one(Tensor("a", "F32", "[1]", 4, 8)), eight)), HasSubstr("begin at 4"));
  EXPECT_THAT(ErrorOf(Bytes(good, eight)), HasSubstr("the tensors end at 4, the data at 8"));
  EXPECT_THAT(ErrorOf(Bytes("{\"__metadata__\":3}", "")), HasSubstr("__metadata__ is not an object"));
  EXPECT_THAT(ErrorOf(Bytes("{\"__metadata__\":{\"k\":3}}", "")), HasSubstr("\"k\" is not text"));
}

TEST_F(SafetensorsTest, EveryTruncationIsAnErrorAndNoDamageCrashes) {
  const std::vector<float> v(64, 0.5f);
  ASSERT_TRUE(WriteSafetensors(Path("m"), {{"a", {8, 8}, v}, {"b", {64}, v}}, {{"k", "v"}}).ok());
  const std::string bytes = FileBytes(Path("m"));
  for (size_t n = 0; n < bytes.size(); ++n) {
    EXPECT_NE(ErrorOf(Buffer::CopyOf(bytes.data(), n)), "no error") << n;
  }
  const unsigned seed = 20240607;
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937 random(seed);
  for (int i = 0; i < 3000; ++i) {
    std::string damaged = bytes;
    for (int k = random() % 4; k >= 0; --k) damaged[random() % 256] = static_cast<char>(random());
    const auto file = ParseSafetensors(Buffer::CopyOf(damaged.data(), damaged.size()), "m");
    if (!file.ok()) continue;
    uint64_t total = 0;
    for (const Safetensor& t : file->tensors) total += t.data.size();
    EXPECT_LE(total, damaged.size());
  }
}

}  // namespace
}  // namespace cairn
