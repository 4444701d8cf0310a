#include "worker/train/digest_taker.h"

#include <utility>

#include "common/base/log.h"
#include "common/model/weights_digest.h"

namespace cairn {

void DigestTaker::Take(replica::TakeDigest take, const ReplicaEnvironment::Assignment& assignment) {
  if (assignment == nullptr || busy_.exchange(true)) return;
  files_->Post(job_, {}, [self = shared_from_this(), take = std::move(take), assignment](RemoteFiles*) mutable {
    self->Run(take, *assignment);
    take = {};  // training may write to the buffer from now on
    self->busy_ = false;
  });
}

void DigestTaker::Run(const replica::TakeDigest& take, const v1::AssignReplicas& assignment) {
  if (graph_ == nullptr) {
    absl::StatusOr<Graph> graph = Graph::Build(assignment.spec().model());
    if (!graph.ok()) {
      return LogWarning("job %d: the digest after step %d: %s", job_.value, take.step, graph.status().message());
    }
    graph_ = std::make_shared<const Graph>(*std::move(graph));
  }
  WeightsDigest digest(*graph_);
  digest.Add(take.values.floats());
  v1::NodeMessage message;
  v1::StepDigestReport& report = *message.mutable_step_digest();
  report.set_job_id(job_.value);
  report.set_generation(assignment.generation());
  report.mutable_digest()->set_step(take.step);
  report.mutable_digest()->set_digest(digest.Hex());
  send_(std::move(message));
}

}  // namespace cairn
