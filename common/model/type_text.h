// How a type of numbers is named in an error. Any thread.
#pragma once

#include <string>

#include "cairn/v1/types.pb.h"

namespace cairn {

// "INT4"; the number of one that is not known.
inline std::string TypeText(v1::DataType type) {
  return v1::DataType_IsValid(type) ? v1::DataType_Name(type) : std::to_string(static_cast<int>(type));
}

}  // namespace cairn
