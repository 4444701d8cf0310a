#include "common/base/fingerprint.h"

#include <farmhash.h>

#include <bit>
#include <cstddef>

namespace cairn {
namespace {

struct SipState {
  uint64_t v0, v1, v2, v3;

  // Figure 2.1 of the paper.
  void Round() {
    v0 += v1, v2 += v3;
    v1 = std::rotl(v1, 13) ^ v0, v3 = std::rotl(v3, 16) ^ v2;
    v0 = std::rotl(v0, 32);
    v2 += v1, v0 += v3;
    v1 = std::rotl(v1, 17) ^ v2, v3 = std::rotl(v3, 21) ^ v0;
    v2 = std::rotl(v2, 32);
  }
  void Take(uint64_t word) {
    v3 ^= word;
    Round(), Round();
    v0 ^= word;
  }
};

uint64_t LittleEndian(absl::string_view bytes) {
  uint64_t word = 0;
  for (size_t i = 0; i < bytes.size(); ++i) word |= uint64_t{static_cast<uint8_t>(bytes[i])} << (8 * i);
  return word;
}

uint64_t Mixed(uint64_t value) { return value ^ (value >> 47); }

}  // namespace

uint64_t Fingerprint64(absl::string_view bytes) { return util::Fingerprint64(bytes.data(), bytes.size()); }

uint64_t SipHash(const uint64_t (&key)[2], absl::string_view bytes) {
  SipState state = {key[0] ^ 0x736f6d6570736575, key[1] ^ 0x646f72616e646f6d, key[0] ^ 0x6c7967656e657261,
                    key[1] ^ 0x7465646279746573};
  const uint64_t length = uint64_t{bytes.size()} << 56;  // modulo 256
  for (; bytes.size() >= 8; bytes.remove_prefix(8)) state.Take(LittleEndian(bytes.substr(0, 8)));
  state.Take(length | LittleEndian(bytes));
  state.v2 ^= 0xff;
  for (int i = 0; i < 4; ++i) state.Round();
  return state.v0 ^ state.v1 ^ state.v2 ^ state.v3;
}

uint64_t JoinFingerprints(uint64_t first, uint64_t second) {
  constexpr uint64_t kFactor = 0xc6a4a7935bd1e995;
  uint64_t joined = first ^ kFactor;
  joined ^= Mixed(second * kFactor) * kFactor;
  joined *= kFactor;
  return Mixed(Mixed(joined) * kFactor);
}

}  // namespace cairn
