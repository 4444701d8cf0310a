// AnswerReadLog: lines of this process' log, for ReadLog and FetchLog (proto/cairn/v1/observe.proto).
//
// Thread-safe.
#pragma once

#include "cairn/v1/observe.pb.h"
#include "common/base/status.h"

namespace cairn {

// Errors: INVALID_ARGUMENT names the field.
absl::Status CheckReadLog(const v1::ReadLogRequest& request);

// request: any; numbers that CheckReadLog refuses are taken for the nearest ones that it does not.
v1::ReadLogResponse AnswerReadLog(const v1::ReadLogRequest& request);

}  // namespace cairn
