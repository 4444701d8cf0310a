// WriteTrace: a collected trace in the Chrome trace event format (JSON Object Format), which Perfetto and
// chrome://tracing show: a process for each node, a thread for each of its tracks, a complete event ("X") for each
// span.
//
// Pure function of its arguments; any thread.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>

#include "client/cli/trace_collector.h"

namespace cairn {

struct TraceAbout {
  uint64_t job_id = 0;
  std::string job_name;
  int64_t steps = 0;  // that were asked for
};

// "decode", "compute", ...: the category of its events, and their name, unless they are a layer's.
const char* TraceKindText(v1::TraceKind kind);

// Times are microseconds since the first event. Spans of a track that overlap without one being within the other are
// put on further threads, "partition 3 (2)". The caller checks the stream.
void WriteTrace(CollectedTrace trace, const TraceAbout& about, std::ostream& out);

}  // namespace cairn
