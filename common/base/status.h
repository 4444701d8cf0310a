// absl::Status with two macros that return it to the caller.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define CAIRN_RETURN_IF_ERROR(expr)                                                  \
  do {                                                                               \
    if (absl::Status cairn_status = (expr); !cairn_status.ok()) return cairn_status; \
  } while (false)

#define CAIRN_CONCAT_INNER(a, b) a##b
#define CAIRN_CONCAT(a, b) CAIRN_CONCAT_INNER(a, b)
#define CAIRN_ASSIGN_OR_RETURN(lhs, expr) \
  CAIRN_ASSIGN_OR_RETURN_IMPL(CAIRN_CONCAT(cairn_statusor_, __LINE__), lhs, expr)
#define CAIRN_ASSIGN_OR_RETURN_IMPL(var, lhs, expr) \
  auto var = (expr);                                \
  if (!var.ok()) return std::move(var).status();    \
  lhs = *std::move(var)

namespace cairn {

// `status` with "where: " before its message; OK stays OK.
inline absl::Status Annotate(const absl::Status& status, std::string_view where) {
  if (status.ok()) return status;
  return absl::Status(status.code(), std::string(where) + ": " + std::string(status.message()));
}

}  // namespace cairn
