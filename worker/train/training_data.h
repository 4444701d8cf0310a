// TrainingData: a job's model and data set, opened on a worker; its batches.
//
// Free functions; any thread, they read files. Invariant: the results are the same for every worker that sees the data.
#pragma once

#include <atomic>
#include <memory>

#include "cairn/v1/job.pb.h"
#include "cairn/v1/job_status.pb.h"
#include "common/base/status.h"
#include "common/data/dataset.h"
#include "common/model/step_plan.h"
#include "worker/train/compute_pool.h"
#include "worker/train/dataset_cache.h"

namespace cairn {

struct TrainingData {
  std::shared_ptr<const JobModel> model;
  std::shared_ptr<const Dataset> examples;  // before targets and the model's input are made of them
  std::shared_ptr<const Dataset> dataset;   // as the model reads them
};

struct TrainingBatches {
  std::shared_ptr<const JobModel> model;  // for the element type of the batches
  StepPlan plan;
  std::shared_ptr<BatchSource> source;
};

// Waits for a data set that is fetched, and for its server while that is away, until `dropped` is set. checked: of the
// data set, where the job was checked; empty: it is being checked. Errors: CANCELLED; those of OpenDataset; the data is
// not of the model's shape, or has other objects than where the job was checked.
absl::StatusOr<TrainingData> OpenTrainingData(std::shared_ptr<const JobModel> model, const v1::DataInfo& checked,
                                              DatasetCache& datasets, const std::atomic<bool>& dropped);
// The job's spec.replicas is set. options: what is the worker's; the rest is taken from the job.
absl::StatusOr<TrainingBatches> MakeTrainingBatches(const TrainingData& data, BatchSourceOptions options);

}  // namespace cairn
