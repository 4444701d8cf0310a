// CheckHealth: whether a daemon serves, as probes of Kubernetes and Docker ask it.
//
// Thread-safe.
#pragma once

#include <string>

#include "absl/time/time.h"
#include "common/base/status.h"

namespace cairn {

// Asks a daemon's grpc.health.v1 service about the whole server, or about `service`, such as kReadyService of a ps. OK:
// serving. Of several addresses ("a:1,b:1") one that serves is enough. `timeout` applies to each.
// token: as in JobClientOptions; only a coordinator takes one.
// Errors: UNAVAILABLE names the address and says whether it cannot be reached or is not serving.
absl::Status CheckHealth(const std::string& addresses, absl::Duration timeout, const std::string& service = "",
                         const std::string& token = "");

}  // namespace cairn
