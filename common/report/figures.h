// Figures of a job as all outputs format them: means from sums, durations, counts.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "cairn/v1/job.pb.h"
#include "cairn/v1/job_status.pb.h"
#include "cairn/v1/optimizer.pb.h"
#include "common/base/text.h"
#include "common/model/state_text.h"

namespace cairn {

// Means over examples: "loss", then the metrics in the job's order. Empty if no example was counted.
// A root mean squared error is summed as squares.
using Figures = std::vector<std::pair<std::string, double>>;
Figures MeanFigures(const v1::JobSpec& spec, const v1::MetricSums& sums);

inline bool HasFigures(const v1::EpochResult& epoch) { return epoch.train().examples() > 0; }

std::string Thousands(uint64_t number);                     // "7,120"
std::string ShortDuration(absl::Duration d);                // "8.4s", "3m12s", "2h05m"
std::string ShortBytes(uint64_t bytes);                     // "1.5 MiB"
std::string FigureText(double value);                       // "0.3012"; small ones as 1.2e-05
std::string OptimizerText(const v1::Optimizer& optimizer);  // "adam, learning rate 0.001"

std::string NoteText(const v1::CallbackNote& note);  // "epoch 7: early_stopping: val_loss did not improve ..."

// "14:03:22 worker "worker-1" is gone; replicas 1,3 go to worker "worker-0"".
std::string EventText(const v1::JobEvent& event, absl::TimeZone zone);

// "degraded since 2026-11-23 14:03:22: 4 of 12 partitions lack a backup in sync ..."
std::string DegradedText(const v1::Degraded& degraded, absl::TimeZone zone);

// Columns padded to their widest cell, two spaces between; a header line first.
std::string Table(const std::vector<std::vector<std::string>>& rows);

}  // namespace cairn
