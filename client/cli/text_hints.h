// What protobuf's parser of the text format does not say: what should have been written.
//
// A free function; any thread.
#pragma once

#include <google/protobuf/descriptor.h>

#include <string>

namespace cairn {

// The parser's error about text of a message of type `root`, and what is known of what was meant: a field or a value of
// an enum of nearly the same name, quotes around what is text.
std::string WithHint(const std::string& error, const google::protobuf::Descriptor* root);

}  // namespace cairn
