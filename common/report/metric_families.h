// MetricFamilies: figures of this moment, gathered for a scrape; prometheus-cpp writes them in Prometheus' text format,
// https://prometheus.io/docs/instrumenting/exposition_formats, version 0.0.4.
//
// Not thread-safe. Invariants: 1. Values of one name are together, below its help and type, in the order in which
// names were first used.
// 2. Whatever labels hold, a line stays one line: they are escaped.
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
  // A gauge. The same name and labels twice make a reader refuse the whole text: the caller's to avoid.
  void Add(const char* name, const char* help, const MetricLabels& labels, double value);
  // A counter: it only grows. The name ends in "_total".
  void AddCounter(const char* name, const char* help, const MetricLabels& labels, double value);

  std::string Text() const;

 private:
  prometheus::MetricFamily& FamilyOf(const char* name, const char* help, prometheus::MetricType type);

  std::map<std::string, size_t> places_;
  std::vector<prometheus::MetricFamily> families_;
};

// Of this process, under the names that Prometheus' own libraries use (process_cpu_seconds_total, ...), and
// cairn_build_info.
void AddProcessMetrics(MetricFamilies& out);

}  // namespace cairn
