// Commands: carries out the coordinator's commands to a worker other than training: inspect data, measure a few steps,
// evaluate, predict, compute the digest, restore a checkpoint.
//
// Thread rule: any thread. Commands run one at a time on a thread for each kind: data; data that is fetched first;
// digests and restores, which must not wait for a slow data set; evaluations. The blocks of an evaluation are computed
// on the slots, after training. At most kWorkerCommandsMax are pending; beyond that the answer is an error. The model,
// data and values of the last evaluation are kept for kValuesKept, since the shards of one prediction come one by one.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "cairn/v1/cluster.pb.h"
#include "common/base/executor.h"
#include "worker/limits.h"
#include "worker/train/compute_pool.h"
#include "worker/train/dataset_cache.h"
#include "worker/train/step_probe.h"

namespace cairn {

// How long an evaluation's values are kept after its last shard.
inline constexpr absl::Duration kValuesKept = absl::Seconds(10);

class Commands {
 public:
  struct Services {
    ComputePool* pool = nullptr;
    DatasetCache* datasets = nullptr;
    std::function<void(v1::NodeMessage)> send;  // thread-safe
    // The model of a job that trains here, so that its compiled programs are reused; null if it does not.
    std::function<std::shared_ptr<const JobModel>(uint64_t job_id)> model_of;
    std::function<bool()> is_idle;  // whether the worker trains nothing
    int decode_threads = 1;
    RemoteFiles* remote = nullptr;  // null: every path is of this machine
  };
  explicit Commands(Services services);
  ~Commands();

  void Inspect(const v1::InspectData& command);
  void Evaluate(const v1::EvaluateShard& command);
  void Finalize(const v1::Finalize& command);
  void Restore(const v1::Restore& command);
  // Running commands end at their next block or answer from a ps.
  void Stop();

 private:
  bool Enter();  // false: too many commands are pending
  void Leave() { --waiting_; }
  // The state that all shards of one evaluation share.
  struct Subject;
  absl::StatusOr<std::shared_ptr<const Subject>> SubjectOf(const v1::EvaluateShard& command);
  void ForgetSubject(uint64_t serial);
  absl::StatusOr<v1::EvaluateShardReply> EvaluateNow(const v1::EvaluateShard& command);
  void SendOutputs(const v1::EvaluateShard& command, const Subject& subject, PlaceRange places,
                   const std::vector<std::string>& outputs);
  absl::StatusOr<v1::FinalizeReply> DigestNow(const v1::Finalize& command);

  const Services services_;
  std::atomic<bool> stopping_{false};
  std::atomic<int> waiting_{0};
  // Used on the thread of evaluations_ only.
  std::shared_ptr<const Subject> subject_;
  uint64_t subject_serial_ = 0;  // of its last use
  StepProber prober_;
  SerialExecutor data_, fetched_, jobs_, evaluations_;
};

}  // namespace cairn
