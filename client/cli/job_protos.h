// The protos of a job with their comments, as they were at build time: a serialized google.protobuf.FileDescriptorSet
// (cmake/Embed.cmake), each file after those that it imports.
#pragma once

#include <string_view>

namespace cairn {

extern const std::string_view kJobProtos;

}  // namespace cairn
