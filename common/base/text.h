// Counts for people; UTF-8 checks and repairs. Protobuf refuses to parse a `string` that is not UTF-8, which loses the
// message and breaks its stream. File names and system texts are arbitrary bytes; they pass through here before they go
// into a message.
//
// Pure functions; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace cairn {

// As the Unicode standard defines it: no overlong forms, no surrogates, nothing above U+10FFFF.
bool IsUtf8(std::string_view text);

// The text with each byte that is not part of a character replaced by U+FFFD. Valid UTF-8 is unchanged.
std::string ToUtf8(std::string_view text);

// A prefix of at most `bytes_max` bytes that does not end within a character.
std::string_view CutUtf8(std::string_view text, size_t bytes_max);

// "1 slot", "2 slots".
std::string CountText(int64_t number, std::string_view thing);

// The verb that goes with so many: Verb(1, "lacks", "lack").
inline const char* Verb(int64_t number, const char* of_one, const char* of_many) {
  return number == 1 ? of_one : of_many;
}

}  // namespace cairn
