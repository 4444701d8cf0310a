// The screen of `cairn top`: what a cluster is doing, in as many lines as a terminal has.
//
// A pure function of what ListNodes and ListJobs said. Any thread.
#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "cairn/v1/cluster.pb.h"
#include "cairn/v1/job_status.pb.h"

namespace cairn {

struct TopInput {
  std::string address;  // of the coordinator, as it was given
  std::vector<v1::NodeStatus> nodes;
  std::vector<v1::JobStatus> jobs;  // the newest first, as ListJobs has them
  std::string trouble;              // why the last look failed, so that the rest is old; empty: it did not
  absl::Time now;
  absl::TimeZone zone = absl::LocalTimeZone();
};

struct TopOptions {
  int width = 0;   // columns; 0: lines of any length
  int height = 0;  // lines; 0: all jobs and nodes
  bool colours = false;
};

// Lines without their ends. Unfinished jobs come first, the oldest at the top, then ended ones, the newest at the top;
// nodes that are not well come before others, and why comes after them. Where they do not fit, a line says how many are
// missing, if there are five lines or more.
std::vector<std::string> TopScreen(const TopInput& input, const TopOptions& options);

}  // namespace cairn
