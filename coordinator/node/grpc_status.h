// Translates the driver's status of a call to gRPC: code and message, and the leader's address as trailing metadata.
#pragma once

#include <grpcpp/grpcpp.h>

#include <string>

#include "absl/strings/cord.h"
#include "common/base/status.h"
#include "common/rpc/channel.h"
#include "coordinator/node/cluster_driver.h"

namespace cairn {

// Call once for each RPC, before its Finish.
inline grpc::Status ToGrpc(const absl::Status& status, grpc::CallbackServerContext* context) {
  if (const auto leader = status.GetPayload(kLeaderPayload)) {
    context->AddTrailingMetadata(kLeaderMetadata, std::string(*leader));
  }
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()));
}

}  // namespace cairn
