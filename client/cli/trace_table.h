// A collected trace in few numbers: where the time of a step goes, by node and by layer. TraceTable: for a terminal;
// TraceSummaryJson: for scripts.
//
// Pure functions of their arguments; any thread.
#pragma once

#include <string>

#include "client/cli/trace_collector.h"
#include "client/cli/trace_writer.h"

namespace cairn {

// The mean time of a span in milliseconds: a row for each node that has spans, at most kTraceTableNodesMax of a role,
// those whose computing or applying takes longest; a column for each kind. The passes are those of whole replicas:
// spans of single layers are left out. Of a worker the last column is `step`, the mean time from the beginning of a
// replica's step to that of the next. Below are the kTraceTableLayersMax layers that take the longest in a replica's
// step, if spans have layers. Lines end with "\n"; empty without spans.
std::string TraceTable(const CollectedTrace& trace);

// The same of all nodes as one object on one line, without the newline: {"job_id", "job_name", "file", "steps_wanted",
// "first_step", "last_step", "synchronous", "nodes": [{"name", "role", "spans", "missing", "mean_ms": {KIND: ms},
// "step_ms"}], "slowest_layers": [{"layer", "forward_ms", "backward_ms"}]}. step_ms is null where nothing is computed.
std::string TraceSummaryJson(const CollectedTrace& trace, const TraceAbout& about, const std::string& file);

}  // namespace cairn
