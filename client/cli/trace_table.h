// TraceTable: a collected trace as a small table for a terminal: where the time of a step goes, by node.
//
// Pure function of its argument; any thread.
#pragma once

#include <string>

#include "client/cli/trace_collector.h"

namespace cairn {

// The mean time of a span in milliseconds: a row for each node that has spans, at most kTraceTableNodesMax of a role,
// those whose computing or applying takes longest; a column for each kind. The passes are those of whole replicas:
// spans of single layers are left out. Lines end with "\n"; empty without spans.
std::string TraceTable(const CollectedTrace& trace);

}  // namespace cairn
