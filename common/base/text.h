// UTF-8: protobuf refuses to read a `string` that is anything else, so that a message with such text is lost, and its
// stream with it. Names of files and words of a system are bytes; they pass through here before they go into a message.
//
// Pure functions; any thread.
#pragma once

#include <string>
#include <string_view>

namespace cairn {

// As the Unicode standard defines it: no overlong forms, no surrogates, nothing above U+10FFFF.
bool IsUtf8(std::string_view text);

// The text with U+FFFD in place of each byte that belongs to no character. UTF-8 stays as it is.
std::string ToUtf8(std::string_view text);

// At most `bytes_max` bytes, not cut within a character.
std::string_view CutUtf8(std::string_view text, size_t bytes_max);

}  // namespace cairn
