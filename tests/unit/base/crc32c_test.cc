// Goal: CRC-32C gives the values of RFC 3720 and agrees with a bit-by-bit division for every length and alignment; a
// record's frame is found whole or altered.
#include "common/base/crc32c.h"

#include <gtest/gtest.h>

#include <numeric>

namespace cairn {
namespace {

// The remainder by definition, one bit at a time.
uint32_t BitByBit(std::string_view data) {
  uint32_t crc = 0xffffffff;
  for (unsigned char byte : data) {
    for (int bit = 0; bit < 8; ++bit) {
      const bool odd = ((crc ^ (byte >> bit)) & 1) != 0;
      crc = (crc >> 1) ^ (odd ? 0x82F63B78u : 0u);
    }
  }
  return ~crc;
}

TEST(Crc32c, KnownValues) {
  EXPECT_EQ(Crc32c("123456789", 9), 0xE3069283u);
  EXPECT_EQ(Crc32c(std::string(32, '\0').data(), 32), 0x8A9136AAu);
  EXPECT_EQ(Crc32c(std::string(32, '\xff').data(), 32), 0x62A8AB43u);
  std::string rising(32, '\0');
  std::iota(rising.begin(), rising.end(), 0);
  EXPECT_EQ(Crc32c(rising.data(), 32), 0x46DD794Eu);
  EXPECT_EQ(Crc32c("", 0), 0u);
}

TEST(Crc32c, AgreesWithTheDefinition) {
  std::string data;
  for (int i = 0; i < 300; ++i) data.push_back(static_cast<char>(i * i + 7 * i));
  for (size_t from = 0; from < 9; ++from) {
    for (size_t size = 0; size + from <= 80; ++size) {
      EXPECT_EQ(Crc32c(data.data() + from, size), BitByBit({data.data() + from, size})) << from << " " << size;
    }
  }
  EXPECT_EQ(Crc32c(data.data(), data.size()), BitByBit(data));
}

TEST(RecordFrame, GoesThereAndBack) {
  for (const std::string& data : {std::string(), std::string("x"), std::string(1000, 'r')}) {
    std::string bytes = "before";
    AppendRecord(data, &bytes);
    ASSERT_EQ(bytes.size(), 6 + kRecordHeaderBytes + data.size() + kRecordFooterBytes);
    uint64_t length = 99;
    ASSERT_TRUE(ParseRecordHeader(bytes.data() + 6, &length));
    EXPECT_EQ(length, data.size());
    const std::string_view inside = std::string_view(bytes).substr(6 + kRecordHeaderBytes, data.size());
    EXPECT_EQ(inside, data);
    EXPECT_TRUE(RecordIsWhole(inside, inside.data() + inside.size()));
  }
}

TEST(RecordFrame, EveryAlteredBitIsFound) {
  std::string whole;
  AppendRecord("a record of some bytes", &whole);
  for (size_t bit = 0; bit < whole.size() * 8; ++bit) {
    std::string altered = whole;
    altered[bit / 8] = static_cast<char>(altered[bit / 8] ^ (1 << (bit % 8)));
    uint64_t length = 0;
    if (bit < kRecordHeaderBytes * 8) {
      EXPECT_FALSE(ParseRecordHeader(altered.data(), &length)) << bit;
    } else {
      const char* data = altered.data() + kRecordHeaderBytes;
      EXPECT_FALSE(RecordIsWhole({data, 22}, data + 22)) << bit;
    }
  }
}

}  // namespace
}  // namespace cairn
