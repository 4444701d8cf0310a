// The state of a cluster in Prometheus' text format: https://prometheus.io/docs/instrumenting/exposition_formats,
// version 0.0.4.
//
// Pure functions; any thread. Names and labels are a stable interface: dashboards and alerts depend on them.
#pragma once

#include <string>
#include <vector>

#include "cairn/v1/cluster.pb.h"
#include "common/report/metric_families.h"

namespace cairn {

// Gauges of each node, the number of jobs in each state, and gauges of each job that has not ended.
// `cairn_coordinator_up` is 1.
void AddClusterMetrics(MetricFamilies& out, const std::vector<v1::NodeStatus>& nodes,
                       const std::vector<v1::JobStatus>& jobs);
std::string MetricsText(const std::vector<v1::NodeStatus>& nodes, const std::vector<v1::JobStatus>& jobs);
// For when no coordinator answers: `cairn_coordinator_up 0`, nothing else.
void AddClusterIsDown(MetricFamilies& out);
std::string MetricsTextWithoutCluster();

}  // namespace cairn
