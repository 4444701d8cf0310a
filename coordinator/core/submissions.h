// Submissions: a job is queued once a worker has looked at its data, or at once where there is no worker.
//
// Not thread-safe; one core owns it. Invariants:
//   1. A submission is answered once; a repeated one (same request_key) gets the same job.
//   2. Submissions and queued jobs are bounded (kJobsQueuedMax), and the bytes of all jobs (kJobSpecsBytesMax).
//   3. No two jobs of one owner that have not ended have the same name.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "coordinator/core/component.h"
#include "coordinator/core/endings.h"
#include "coordinator/core/reasons.h"
#include "coordinator/core/schedule.h"

namespace cairn {

class Submissions : Component {
 public:
  Submissions(Ground& ground, Endings& endings, Schedule& schedule, const Reasons& reasons)
      : Component(ground), endings_(endings), schedule_(schedule), reasons_(reasons) {}

  void OnSubmit(const SubmitJob& event);
  void OnDataInfo(const ClusterNode& node, const v1::DataInfoReply& reply);
  // Gives the worker's inspections to another worker.
  void ReleaseWorker(const NodeName& worker);
  void Tick();

 private:
  // A Submit whose data is being inspected; not a job yet.
  struct Submission {
    std::vector<ReplyToken> replies;
    std::shared_ptr<const CheckedJob> checked;
    std::string request_key;
    absl::Time since;
    Requester who = {};
    bool check_only = false;
    size_t spec_bytes = 0;    // Job::spec_bytes
    size_t memory_bytes = 0;  // MemoryOfSubmission
  };
  struct Inspection {
    uint64_t submission = 0;  // or
    uint64_t job = 0;
    NodeName worker;
    std::set<NodeName> tried;
    absl::Time deadline;
    std::map<NodeName, std::string> failed;  // workers that cannot read the data, and why
    NodeName first_failed;
  };

  size_t MemoryKept() const;
  absl::Status CheckNameIsFree(const SubmitJob& event) const;
  absl::Status CheckQuotas(const SubmitJob& event) const;
  void StartInspection(Inspection inspection);
  // With as many replicas as the job would get now.
  void AskForProbe(const Submission& submission, v1::InspectData* inspect);
  void TakeProbe(const v1::StepProbe& probe, const NodeName& worker, v1::JobStatus* job);
  // Restarts the inspections for which `due` holds with another worker.
  template <typename Predicate>
  void StartAnew(Predicate due);
  void NoWorkerForInspection(const Inspection& inspection);
  void LeaveOutBlind(Job& job, const Inspection& inspection);
  // reply: of a worker; null: there is none.
  void Accept(Submission submission, const v1::DataInfoReply* reply, const Inspection* inspection = nullptr);
  void Fill(Job& job, Submission& submission, const v1::DataInfoReply* reply, const Inspection* inspection);
  void AnswerCheck(Submission submission, const v1::DataInfoReply* reply, const Inspection* inspection);

  Endings& endings_;
  Schedule& schedule_;
  const Reasons& reasons_;
  std::map<uint64_t, Submission> submissions_;  // by a number of their own
  std::map<uint64_t, Inspection> inspections_;  // by request id
  uint64_t last_submission_ = 0;
};

}  // namespace cairn
