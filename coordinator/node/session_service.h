// SessionService: nodes' Session streams, each a reactor that hands one message at a time to the driver and writes what
// the driver sends.
//
// Thread-safe. Invariants: 1. Each stream handles at most one message at a time and reads the next one after it: flow
// control slows down a node that sends too fast. 2. At most kSessionQueueBytesMax bytes wait to be sent to a node;
// beyond that its session ends. 3. At most kSessionsOfMachineMax streams are open from one machine.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "cairn/v1/cluster.grpc.pb.h"
#include "coordinator/core/limits.h"
#include "coordinator/node/audit_log.h"
#include "coordinator/node/cluster_driver.h"

namespace cairn {

// The streams that are open, by the machine that they come from. Thread-safe.
class SessionCounts {
 public:
  bool Add(const std::string& machine) {  // false: they are too many; it is counted all the same
    absl::MutexLock lock(&mutex_);
    return ++open_[machine] <= kSessionsOfMachineMax;
  }
  void Remove(const std::string& machine) {
    absl::MutexLock lock(&mutex_);
    if (--open_[machine] == 0) open_.erase(machine);
  }

 private:
  absl::Mutex mutex_;
  std::map<std::string, int> open_ ABSL_GUARDED_BY(mutex_);
};

// The place of one of them, until it is destroyed.
class SessionPlace {
 public:
  SessionPlace(std::shared_ptr<SessionCounts> counts, std::string machine)
      : counts_(std::move(counts)), machine_(std::move(machine)), fits_(counts_->Add(machine_)) {}
  ~SessionPlace() { counts_->Remove(machine_); }
  SessionPlace(const SessionPlace&) = delete;
  SessionPlace& operator=(const SessionPlace&) = delete;
  bool fits() const { return fits_; }

 private:
  const std::shared_ptr<SessionCounts> counts_;
  const std::string machine_;
  const bool fits_;
};

// What a stream is opened through. Both outlive it.
struct SessionDoor {
  ClusterDriver* driver;
  AuditLog* audit;  // null: none

  // The events of the cluster and the audit log say that a node was refused for its certificate. name: as it calls
  // itself. Thread-safe.
  void Refuse(const grpc::CallbackServerContext& context, const std::string& name, const absl::Status& why) const;
};

class SessionService final : public v1::Coordinator::CallbackService {
 public:
  explicit SessionService(const SessionDoor& door) : door_(door) {}

  grpc::ServerBidiReactor<v1::NodeMessage, v1::CoordinatorMessage>* Session(
      grpc::CallbackServerContext* context) override;

 private:
  const SessionDoor door_;
  const std::shared_ptr<SessionCounts> counts_ = std::make_shared<SessionCounts>();
};

}  // namespace cairn
