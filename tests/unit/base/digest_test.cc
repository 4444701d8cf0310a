// Goal: checksums and digests are XXH3's (known answers of the published implementation), and pieces do not change a
// digest.
#include "common/base/digest.h"

#include <gtest/gtest.h>

#include <string>

namespace cairn {
namespace {

TEST(Digest, KnownAnswersOfTheEmptyInput) {
  EXPECT_EQ(Checksum("", 0), 0x2d06800538d394c2u);
  EXPECT_EQ(Digest().Hex(), "99aa06d3014798d86001c324468d497f");
}

TEST(Digest, PiecesAddUp) {
  std::string data(100'003, '\0');
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i * 31 + i / 256);
  Digest whole, pieces;
  whole.Add(data.data(), data.size());
  for (size_t at = 0, n = 1; at < data.size(); at += n, n = n * 3 % 1009 + 1) {
    pieces.Add(data.data() + at, std::min(n, data.size() - at));
  }
  EXPECT_EQ(whole.Hex(), pieces.Hex());
  EXPECT_EQ(whole.Hex().size(), 32u);
  EXPECT_EQ(whole.Hex(), whole.Hex()) << "asking does not change it";
}

TEST(Digest, OneBitChangesIt) {
  std::string data(1000, 'a');
  const uint64_t before = Checksum(data.data(), data.size());
  data[500] ^= 1;
  EXPECT_NE(Checksum(data.data(), data.size()), before);
}

}  // namespace
}  // namespace cairn
