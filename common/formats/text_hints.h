// Adds a suggestion to the errors of protobuf's text-format parser.
//
// A free function; any thread.
#pragma once

#include <google/protobuf/descriptor.h>

#include <string>

namespace cairn {

// The parser's error about a message of type `root`, with a hint at what was probably meant: a field or enum value of
// a similar name, or missing quotes around a string.
std::string WithHint(const std::string& error, const google::protobuf::Descriptor* root);

}  // namespace cairn
