// AnswerTrace: what this process has recorded of a job, for FetchTrace (proto/cairn/v1/commands.proto).
//
// Thread-safe.
#pragma once

#include "cairn/v1/commands.pb.h"
#include "common/base/trace.h"

namespace cairn {

// fetch: any. An error of the recorder is the answer's.
v1::TraceRead AnswerTrace(TraceRecorder& recorder, const v1::FetchTrace& fetch);

}  // namespace cairn
