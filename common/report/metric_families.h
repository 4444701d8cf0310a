// MetricFamilies: collects current values for a scrape; prometheus-cpp writes them in Prometheus' text format,
// https://prometheus.io/docs/instrumenting/exposition_formats, version 0.0.4.
//
// Not thread-safe. Invariants: 1. Values of one name are grouped under its help and type; names are in the order of
// their first use.
// 2. Labels are escaped, so that each value is one line.
#pragma once

#include <prometheus/metric_family.h>

#include <map>
#include <string>
#include <vector>

namespace cairn {

inline constexpr char kMetricsContentType[] = "text/plain; version=0.0.4; charset=utf-8";

using MetricLabels = std::vector<prometheus::ClientMetric::Label>;

class MetricFamilies {
 public:
  // A gauge. The caller must not add the same name and labels twice: readers would refuse the whole text.
  void Add(const char* name, const char* help, const MetricLabels& labels, double value);
  // A counter: it only grows. The name ends in "_total".
  void AddCounter(const char* name, const char* help, const MetricLabels& labels, double value);

  std::string Text() const;

 private:
  prometheus::MetricFamily& FamilyOf(const char* name, const char* help, prometheus::MetricType type);

  std::map<std::string, size_t> places_;
  std::vector<prometheus::MetricFamily> families_;
};

// Metrics of this process, under the names of Prometheus' own libraries (process_cpu_seconds_total, ...), and
// cairn_build_info.
void AddProcessMetrics(MetricFamilies& out);

}  // namespace cairn
