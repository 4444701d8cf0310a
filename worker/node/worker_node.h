// WorkerNode: assembles the parts of a worker process: its session with the coordinator, its slots, and one Trainer for
// each job.
//
// Thread rule: constructor and destructor on one thread. The session's callbacks run on the session's thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "cairn/v1/cluster.pb.h"
#include "client/session_client.h"
#include "common/base/executor.h"
#include "common/base/remote_files.h"
#include "common/base/trace.h"
#include "common/data/remote_data.h"
#include "worker/limits.h"
#include "worker/node/commands.h"
#include "worker/node/device_watch.h"
#include "worker/node/worker_files.h"
#include "worker/reports/summary_writer.h"
#include "worker/train/compute_pool.h"
#include "worker/train/dataset_cache.h"
#include "worker/train/ps_connections.h"
#include "worker/train/trainer.h"

namespace cairn {

struct WorkerOptions {
  std::string coordinator;  // REQUIRED, "host:port"
  std::string name;         // REQUIRED, unique in the cluster
  int slots = 1;            // replicas computed at the same time, 1 to kWorkerSlotsMax; more than cores slows them down
  std::string host;         // the machine's name
  v1::Role role = v1::WORKER;                 // or EVALUATOR: evaluates checkpoints, computes no replicas
  bool shared_memory = true;                  // with ps on this host that offer it
  const SharedArena* arena = nullptr;         // of gradients, for these ps; outlives the node. Null: none
  int decode_threads = 1;                     // per job, 1 to 256; more where decoding images is slower than computing
  std::shared_ptr<RemoteData> remote;         // data sets of S3 roots; null: there are none
  std::shared_ptr<RemoteFiles> remote_files;  // checkpoints, model files and weights there; null: there are none
  std::function<void()>
      device_lost;  // called once, when the worker has lost its device and must exit (device_watch.h); may be null

  absl::Status Validate() const;
};

class WorkerNode {
 public:
  // options.Validate() is OK.
  WorkerNode(const WorkerOptions& options, std::unique_ptr<Backend> backend);
  // Waits for the blocks in progress, not for whole steps; and for what is being written to S3 kUploadsFinishMax, then
  // it is given up.
  ~WorkerNode();
  absl::Status health() const { return backend_->health(); }

 private:
  // Reports the device's fault before the failures that it causes, so that the coordinator can attribute them to it.
  void SayDeviceTrouble();
  void LookAtDevice();
  std::string Fault() const;
  v1::Hello MakeHello();
  v1::Heartbeat MakeHeartbeat();
  void OnMessage(const v1::CoordinatorMessage& message);
  void OnAssign(const v1::AssignReplicas& message);
  void OnDrop(const v1::DropJob& message);
  void DropTrainer(uint64_t job_id);
  void OnMarkBest(const v1::MarkBest& message);
  void OnSaveModel(const v1::SaveModel& message);
  void RemoveCheckpoints(const v1::DropJob& message);
  void OnConnection(bool up);
  void Send(v1::NodeMessage message);
  void RetainConnections();
  std::vector<std::shared_ptr<Trainer>> Trainers() const;

  const WorkerOptions options_;
  const std::unique_ptr<Backend> backend_;
  const uint64_t incarnation_;
  Timing timing_;
  SerialExecutor timers_;
  WorkerFiles files_;
  SummaryWriter summaries_;
  DatasetCache datasets_;
  PsConnections connections_;
  ComputePool pool_;
  mutable absl::Mutex mutex_;
  std::map<uint64_t, std::shared_ptr<Trainer>> trainers_ ABSL_GUARDED_BY(mutex_);
  // Shared: Send may run while the session is being torn down.
  std::shared_ptr<SessionClient> session_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<Commands> commands_;
  DeviceWatch device_watch_;  // used on the thread of timers_ only
};

}  // namespace cairn
