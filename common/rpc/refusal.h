// The answers to a streaming call that is refused at once (AdmitCall). Any thread.
#pragma once

#include <grpcpp/grpcpp.h>

#include <string>

#include "common/base/status.h"

namespace cairn {

// Base: a ServerWriteReactor or ServerBidiReactor. Owned by itself.
template <typename Base>
class RefusedCall final : public Base {
 public:
  explicit RefusedCall(const absl::Status& why) {
    this->Finish(grpc::Status(static_cast<grpc::StatusCode>(why.code()), std::string(why.message())));
  }
  void OnDone() override { delete this; }
};

}  // namespace cairn
