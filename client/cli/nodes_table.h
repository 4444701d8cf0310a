// A cluster's nodes as a table for people.
#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "cairn/v1/cluster.pb.h"

namespace cairn {

// A header, and a line for each node.
std::string NodesLines(const std::vector<v1::NodeStatus>& nodes, absl::Time now);

// The same, and what is to be said of some of them.
std::string NodesTable(const std::vector<v1::NodeStatus>& nodes, absl::Time now);

}  // namespace cairn
