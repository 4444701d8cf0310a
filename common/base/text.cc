#include "common/base/text.h"

#include <utf8proc.h>

#include <cstdint>

namespace cairn {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

// Bytes of the character that the text begins with; 0: not a valid character.
size_t CharacterBytes(std::string_view text) {
  utf8proc_int32_t character = 0;
  const utf8proc_ssize_t bytes = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                                  static_cast<utf8proc_ssize_t>(text.size()), &character);
  return bytes > 0 ? static_cast<size_t>(bytes) : 0;
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

std::string CountText(int64_t number, std::string_view thing) {
  return std::to_string(number) + " " + std::string(thing) + (number == 1 ? "" : "s");
}

}  // namespace cairn
