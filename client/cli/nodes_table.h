// A cluster's nodes as a table for people.
#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "cairn/v1/cluster.pb.h"

namespace cairn {

std::string NodesTable(const std::vector<v1::NodeStatus>& nodes, absl::Time now);

}  // namespace cairn
