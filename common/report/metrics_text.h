// The state of a cluster as Prometheus reads it: https://prometheus.io/docs/instrumenting/exposition_formats, version
// 0.0.4.
//
// Pure functions; any thread. Names and labels are an interface: dashboards and alerts are made of them.
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
// Where no coordinator answers: `cairn_coordinator_up 0`, nothing else.
void AddClusterIsDown(MetricFamilies& out);
std::string MetricsTextWithoutCluster();

}  // namespace cairn
