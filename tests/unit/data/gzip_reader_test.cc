// Goal: what gzip holds is read as zlib would, in parts of any size; what is cut off or altered anywhere is an error or
// leaves the bytes as they were, and never other bytes.
#include "common/data/gzip_reader.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <random>
#include <string>
#include <utility>

#include "tests/unit/data/data_files.h"

namespace cairn {
namespace {

// Text that deflate can shorten, and numbers that it cannot.
std::string Content(size_t bytes) {
  std::mt19937 random(7);
  std::string out;
  while (out.size() < bytes) {
    if (random() % 2 == 0) {
      out.append(random() % 300, static_cast<char>(random() % 4 + 'a'));
    } else {
      for (int i = 0; i < 40; ++i) out.push_back(static_cast<char>(random()));
    }
  }
  out.resize(bytes);
  return out;
}

class GzipReaderTest : public testing::Test {
 protected:
  std::string Packed(const std::string& content) {
    WriteGzip(dir_ / "one.gz", content);
    return ReadFile(dir_ / "one.gz");
  }
  // Reads all of a file of these bytes, `part` at a time.
  absl::StatusOr<std::string> Read(const std::string& bytes, size_t part = 1 << 16) {
    const std::string path = dir_ / "file";
    WriteFile(path, bytes);
    CAIRN_ASSIGN_OR_RETURN(GzipReader reader, GzipReader::Open(FileDescriptor(open(path.c_str(), O_RDONLY)), path));
    std::string out, buffer(part, '\0');
    while (true) {
      CAIRN_ASSIGN_OR_RETURN(const size_t got, reader.Read(buffer.data(), part));
      out.append(buffer, 0, got);
      if (got < part) return out;
    }
  }

  TempFolder dir_;
};

TEST_F(GzipReaderTest, GivesWhatWasWrittenInPartsOfAnySize) {
  const std::string content = Content(3'000'000), packed = Packed(content);
  ASSERT_GT(packed.size(), size_t{512} << 10) << "more than two buffers";
  for (const size_t part : {size_t{1} << 22, size_t{70'001}, size_t{333}}) {
    const auto read = Read(packed, part);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_TRUE(*read == content) << part;
    EXPECT_TRUE(Read(content, part).value() == content) << "what is not packed, " << part;
  }
  EXPECT_EQ(Read(Packed(Content(5'000)), 1).value(), Content(5'000));
}

TEST_F(GzipReaderTest, SmallPartsOfAPlainFileDoNotCostAReadEach) {
  const std::string path = dir_ / "plain", content = Content(600'000);
  WriteFile(path, content);
  const int fd = open(path.c_str(), O_RDONLY);
  auto reader = GzipReader::Open(FileDescriptor(fd), path);
  ASSERT_TRUE(reader.ok()) << reader.status();
  std::string read(content.size(), '\0');
  off_t at = lseek(fd, 0, SEEK_CUR);
  int moves = 0;
  for (char& byte : read) {
    ASSERT_EQ(reader->Read(&byte, 1).value(), 1u);
    moves += std::exchange(at, lseek(fd, 0, SEEK_CUR)) != at;
  }
  EXPECT_TRUE(read == content);
  EXPECT_LT(moves, 10);
}

TEST_F(GzipReaderTest, SmallFiles) {
  for (const char* plain : {"", "a", "\x1f", "ab"}) EXPECT_EQ(Read(plain).value(), plain);
  EXPECT_EQ(Read(Packed("")).value(), "");
  EXPECT_EQ(Read("\x1f\x8b").status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(GzipReaderTest, MembersFollowEachOtherAndOtherBytesAfterThemAreIgnored) {
  const std::string large = Content(900'000);
  for (const size_t part : {size_t{1} << 20, size_t{1'000}}) {
    EXPECT_TRUE(Read(Packed("first,") + Packed(large) + Packed("") + Packed(",last"), part).value() ==
                "first," + large + ",last");
    EXPECT_EQ(Read(Packed("content") + std::string(100, '\0'), part).value(), "content");
    EXPECT_EQ(Read(Packed("content") + "\x1f", part).value(), "content");
  }
  EXPECT_EQ(Read(Packed("content") + "\x1f\x8b").status().code(), absl::StatusCode::kDataLoss);
}

// A header with all that it can have (RFC 1952): an extra field, a name, a comment, and a check sum of itself.
std::string WithFullHeader(std::string packed) {
  std::string header = packed.substr(0, 10);
  header[3] = 2 + 4 + 8 + 16;
  header += std::string("\x05\0extra", 7) + std::string("a name\0", 7) + std::string("a comment\0", 10);
  const uLong crc = crc32(0, reinterpret_cast<const Bytef*>(header.data()), static_cast<uInt>(header.size()));
  header.push_back(static_cast<char>(crc & 0xff));
  header.push_back(static_cast<char>(crc >> 8 & 0xff));
  return header + packed.substr(10);
}

// A member begins at any distance from the end of the buffer.
TEST_F(GzipReaderTest, MembersAtTheEndOfABuffer) {
  std::mt19937 random(3);
  std::string noise(260'000, '\0');
  std::generate(noise.begin(), noise.end(), [&] { return static_cast<char>(random()); });
  const std::string second = WithFullHeader(Packed("second"));
  for (size_t before = (size_t{256} << 10) - 60; before < (size_t{256} << 10) + 4; ++before) {
    std::string first = Packed(noise);
    ASSERT_LT(first.size(), before);
    // The name in a header may have any length.
    ASSERT_EQ(first[3], 0) << "no flags";
    first[3] = 8;
    first.insert(10, std::string(before - first.size() - 1, 'n') + std::string(1, '\0'));
    const auto read = Read(first + second);
    ASSERT_TRUE(read.ok()) << before << ": " << read.status();
    EXPECT_TRUE(*read == noise + "second") << before;
  }
}

TEST_F(GzipReaderTest, AHeaderThatDoesNotEndIsAnError) {
  std::string packed = Packed("content");
  packed[3] = 8;
  EXPECT_EQ(Read(packed + std::string(1'000'000, 'n')).status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(GzipReaderTest, WhatIsCutOffIsAnError) {
  const std::string packed = WithFullHeader(Packed(Content(3'000)));
  for (size_t size = 2; size < packed.size(); ++size) {
    const absl::Status status = Read(packed.substr(0, size)).status();
    ASSERT_EQ(status.code(), absl::StatusCode::kDataLoss) << size;
    ASSERT_NE(status.message().find("cut off"), std::string::npos) << size << ": " << status;
  }
}

TEST_F(GzipReaderTest, WhatIsAlteredIsAnErrorOrDoesNotMatter) {
  const std::string content = Content(3'000);
  const std::string packed = Packed(content);
  int found = 0;
  for (size_t at = 2; at < packed.size(); ++at) {
    for (const char flip : {1, 16, -1}) {
      std::string altered = packed;
      altered[at] = static_cast<char>(altered[at] ^ flip);
      const auto read = Read(altered);
      found += !read.ok();
      ASSERT_TRUE(!read.ok() || *read == content) << at;
    }
  }
  EXPECT_GT(found, static_cast<int>(3 * packed.size() * 9 / 10)) << "all but a few bytes of the header count";
}

}  // namespace
}  // namespace cairn
