// TF_CONFIG, as set by TensorFlow users and Kubeflow's TFJob, and the daemons that a container with it runs:
//
//   {"cluster": {"chief": ["host:port"], "worker": ["host:port", ...], "ps": [...], "evaluator": [...]},
//    "task": {"type": "worker", "index": 0}}
//
//   task                            daemons
//   ps i                            cairn-ps on cluster.ps[i]
//   chief, worker i                 cairn-worker, which listens nowhere
//   evaluator                       cairn-worker --role evaluator; it need not be in the cluster
//   the chief, or worker 0 if       also cairn-coordinator, on the task's own address, which is otherwise unused;
//   there is none                   not if CAIRN_COORDINATOR names one
//   chief, worker                   if the cluster has no ps: also cairn-ps, on its own host and a free port
//
// With a TFJob's enableDynamicWorker the cluster is sparse ("sparseCluster", or "cluster"): {"worker": {"3":
// "host:port"}, "ps": [...]}. A worker sees only its own entry and all ps, a ps only its own. Worker 0's address then
// follows the operator's naming: its services are called JOB-TYPE-INDEX.
//
// Free functions; any thread. "master" is an old name of the chief.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/base/status.h"

namespace cairn {

struct TfConfig {
  // By task type, then index. A list has the indices 0, 1, ...; TensorFlow also allows {"3": "host:port"}.
  std::map<std::string, std::map<int, std::string>> cluster;
  std::string task_type;
  int task_index = 0;
};

// Errors: INVALID_ARGUMENT names the field: `TF_CONFIG: task.index: 3, but cluster.worker has 2 entries`.
absl::StatusOr<TfConfig> ParseTfConfig(const std::string& text);

struct TfRunOptions {
  std::string coordinator;  // CAIRN_COORDINATOR; empty: the one on the chief
  std::string bin_dir;      // where the daemons' programs are
  std::string dir;          // data of the daemons in DIR/NAME
  int slots = 0;            // of a worker; 0: the machine's threads
  std::string log_level = "info";
  // What the names of ps, and of workers and evaluators, begin with, as this machine's certificate asks.
  std::string ps_prefix, worker_prefix;
};

// Whether this is the task that a TFJob waits for: the chief or, without one, worker 0. And the coordinator's address.
bool IsHead(const TfConfig& config);
std::string CoordinatorOf(const TfConfig& config, const TfRunOptions& options);

struct TfDaemon {
  std::string name;               // "ps-0"
  std::vector<std::string> argv;  // [0]: the program's path
};

// The daemons of the task, in their start order. Errors: INVALID_ARGUMENT names the field.
absl::StatusOr<std::vector<TfDaemon>> DaemonsOf(const TfConfig& config, const TfRunOptions& options);

}  // namespace cairn
