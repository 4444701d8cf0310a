#include "common/base/text.h"

#include <cstdint>

namespace cairn {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

uint8_t At(std::string_view text, size_t i) { return i < text.size() ? static_cast<uint8_t>(text[i]) : 0; }

bool Within(uint8_t byte, uint8_t low, uint8_t high) { return byte >= low && byte <= high; }

// Bytes of the character that the text begins with; 0: none begins here. (Unicode 15, table 3-7.)
size_t CharacterBytes(std::string_view text) {
  const uint8_t a = At(text, 0), b = At(text, 1);
  if (a < 0x80) return 1;
  if (Within(a, 0xc2, 0xdf)) return Within(b, 0x80, 0xbf) ? 2 : 0;
  if (Within(a, 0xe0, 0xef)) {
    const bool second = Within(b, a == 0xe0 ? 0xa0 : 0x80, a == 0xed ? 0x9f : 0xbf);
    return second && Within(At(text, 2), 0x80, 0xbf) ? 3 : 0;
  }
  if (Within(a, 0xf0, 0xf4)) {
    const bool second = Within(b, a == 0xf0 ? 0x90 : 0x80, a == 0xf4 ? 0x8f : 0xbf);
    return second && Within(At(text, 2), 0x80, 0xbf) && Within(At(text, 3), 0x80, 0xbf) ? 4 : 0;
  }
  return 0;
}

}  // namespace

bool IsUtf8(std::string_view text) {
  while (!text.empty()) {
    const size_t n = CharacterBytes(text);
    if (n == 0) return false;
    text.remove_prefix(n);
  }
  return true;
}

std::string ToUtf8(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t n = CharacterBytes(text);
    out += n == 0 ? kReplacement : text.substr(0, n);
    text.remove_prefix(n == 0 ? 1 : n);
  }
  return out;
}

std::string_view CutUtf8(std::string_view text, size_t bytes_max) {
  if (text.size() <= bytes_max) return text;
  size_t n = bytes_max;
  while (n > 0 && (static_cast<uint8_t>(text[n]) & 0xc0) == 0x80) --n;
  return text.substr(0, n);
}

}  // namespace cairn
