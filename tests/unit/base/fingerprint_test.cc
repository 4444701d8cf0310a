// Goal: strings have the hashes that others give them: SipHash's vectors (Aumasson and Bernstein 2012, appendix A), the
// examples of BigQuery's FARM_FINGERPRINT and of Keras' Hashing and HashedCrossing, in their documentation.
#include "common/base/fingerprint.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace cairn {
namespace {

TEST(Fingerprint, OfFarmHash) {
  EXPECT_EQ(static_cast<int64_t>(Fingerprint64("1footrue")), -1541654101129638711);
  EXPECT_EQ(static_cast<int64_t>(Fingerprint64("2applefalse")), 2794438866806483259);
  EXPECT_EQ(static_cast<int64_t>(Fingerprint64("3true")), -4880158226897771312);
}

TEST(Fingerprint, OfSipHash) {
  constexpr uint64_t kKey[2] = {0x0706050403020100, 0x0f0e0d0c0b0a0908};
  std::string bytes;
  for (char c = 0; c < 15; ++c) bytes += c;
  EXPECT_EQ(SipHash(kKey, bytes), 0xa129ca6149be45e5);
  EXPECT_EQ(SipHash(kKey, ""), 0x726fdb47dd0e0e31);
  EXPECT_EQ(SipHash(kKey, bytes.substr(0, 8)), 0x93f5f5799a932462);
}

TEST(Fingerprint, BinsOfKerasHashing) {
  const std::vector<std::string> words = {"A", "B", "C", "D", "E"};
  const uint64_t fast[] = {1, 0, 1, 1, 2}, two_salts[] = {1, 2, 1, 0, 2}, one_salt[] = {0, 0, 2, 1, 0};
  for (size_t i = 0; i < words.size(); ++i) {
    EXPECT_EQ(Fingerprint64(words[i]) % 3, fast[i]) << words[i];
    EXPECT_EQ(SipHash({133, 137}, words[i]) % 3, two_salts[i]) << words[i];
    EXPECT_EQ(SipHash({133, 133}, words[i]) % 3, one_salt[i]) << words[i];
  }
}

// HashedCrossing(num_bins=5) of these words and numbers.
TEST(Fingerprint, JoinsAsCrossHashed) {
  const std::vector<std::string> words = {"A", "B", "A", "B", "A"};
  const uint64_t numbers[] = {101, 101, 101, 102, 102}, want[] = {1, 4, 1, 1, 3};
  for (size_t i = 0; i < words.size(); ++i) {
    const uint64_t word = JoinFingerprints(0xDECAFCAFFE, Fingerprint64(words[i]));
    EXPECT_EQ(JoinFingerprints(word, numbers[i]) % 5, want[i]) << words[i] << numbers[i];
  }
}

}  // namespace
}  // namespace cairn
