// What the coordinator has assigned: the terms of the job (JobTerms), how far it may go (JobSchedule), and what of it
// this worker does (Assignment).
//
// Parts of Context. ReplicaCore writes them when an assignment arrives; everybody else reads them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "cairn/v1/cluster.pb.h"
#include "cairn/v1/job.pb.h"
#include "common/base/ids.h"
#include "common/model/epoch_rates.h"
#include "common/model/step_plan.h"
#include "common/tensor/gradient_rounding.h"

namespace cairn::replica {

// What does not change from the first assignment on.
struct JobTerms {
  v1::JobSpec spec;
  int64_t validation_examples = 0;
  v1::DataType wire = v1::FLOAT32;    // the type of gradients on the wire
  v1::DataType values = v1::FLOAT32;  // of values
  GradientLayout layout;              // empty if !NeedsLayout
  bool has_loss_scale = false;
  int64_t digest_every = 0;                // DigestEverySteps; 0 also where the coordinator takes no digests
  std::vector<v1::PartitionRange> ranges;  // by partition number
  size_t space_bytes = 0;                  // of the parameter space in float32
};

// The job's steps, and what callbacks decide about them at the end of an epoch.
struct JobSchedule {
  StepPlan plan;
  int64_t gate = INT64_MAX;  // steps from this one on must not begin yet
  EpochRates rates;

  bool AtGate(int64_t step) const { return step >= gate && step < plan.total_steps; }
  // How far the job may go: to the gate, or to its end.
  int64_t LastOpen() const { return std::min(gate, plan.total_steps); }
};

struct Part {
  v1::PartitionRange range;
  std::string address;  // of its primary
  size_t numbers() const { return range.end() - range.begin(); }
};

struct Assignment {
  uint64_t number = 0;  // assignments of a job are numbered; a later one replaces an earlier one
  JobId job;
  Generation generation;
  std::vector<int32_t> replicas;  // this worker's, sorted
  std::vector<Part> parts;        // by partition number; empty: nothing has been assigned yet
  bool chief = false;
  bool arrived() const { return !parts.empty(); }
};

}  // namespace cairn::replica
