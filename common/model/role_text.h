// The name of a node's role in tables, logs and metrics. Any thread.
#pragma once

#include "cairn/v1/types.pb.h"

namespace cairn {

inline const char* RoleText(v1::Role role) {
  switch (role) {
    case v1::PS: return "ps";
    case v1::WORKER: return "worker";
    case v1::EVALUATOR: return "evaluator";
    case v1::COORDINATOR: return "coordinator";
    default: return "?";
  }
}

}  // namespace cairn
