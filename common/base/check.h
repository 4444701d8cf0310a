// CAIRN_CHECK(condition, message): for our own bugs only. Bad input from a peer, a file or a user gets a Status.
#pragma once

#include <string_view>

namespace cairn {
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition, std::string_view message);
}

#define CAIRN_CHECK(condition, message) \
  (static_cast<bool>(condition) ? void(0) : ::cairn::CheckFailed(__FILE__, __LINE__, #condition, message))
