#include "replay/partitions.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/model/graph.h"
#include "server/core/partition_config.h"

namespace cairn {
namespace {

constexpr uint64_t kClient = 1;

// Deadlines of a core do not matter here: nothing that it waits for is away.
absl::Time Now() { return absl::UnixEpoch(); }

}  // namespace

absl::StatusOr<ReplayPartitions> ReplayPartitions::Make(const v1::AssignReplicas& assignment) {
  CAIRN_ASSIGN_OR_RETURN(Graph built, Graph::Build(assignment.spec().model()));
  const auto graph = std::make_shared<const Graph>(std::move(built));
  ReplayPartitions partitions;
  partitions.cores_.resize(static_cast<size_t>(assignment.routes_size()));
  for (const v1::Route& route : assignment.routes()) {
    const uint32_t number = route.range().partition();
    if (number >= partitions.cores_.size() || partitions.cores_[number] != nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("there is no place for partition ", number));
    }
    CAIRN_ASSIGN_OR_RETURN(PartitionConfig config,
                           MakePartitionConfig(assignment.spec(), graph, route.range(), JobId(assignment.job_id()),
                                               Generation(assignment.generation())));
    PartitionState state = PartitionState::Initial(config);
    partitions.cores_[number] = std::make_unique<PartitionCore>(std::move(config), std::move(state));
  }
  return partitions;
}

absl::Status ReplayPartitions::Restore(const v1::AssignReplicas& assignment, const RestoredState& state) {
  v1::Restore command;
  command.set_job_id(assignment.job_id());
  command.set_generation(assignment.generation());
  *command.mutable_spec() = assignment.spec();
  for (const v1::Route& route : assignment.routes()) {
    PartitionCore& core = *cores_[route.range().partition()];
    for (Frame& frame : RestoreFrames(command, state, route.range())) {
      const PartitionEffects effects = core.Step(FrameEvent{kClient, std::move(frame)}, Now());
      for (const PartitionReply& reply : effects.replies) {
        if (reply.frame.kind == v1::ExchangeFrame::ERROR) return Annotate(reply.frame.status, state.path);
      }
      if (effects.reset) core.Step(ResetEvent{effects.reset->header.version()}, Now());
    }
  }
  return absl::OkStatus();
}

std::vector<Frame> ReplayPartitions::Handle(Frame request) {
  const uint32_t number = request.partition.value;
  std::vector<Frame> answers;
  if (number >= cores_.size()) return answers;
  PartitionEffects effects = cores_[number]->Step(FrameEvent{kClient, std::move(request)}, Now());
  for (PartitionReply& reply : effects.replies) answers.push_back(std::move(reply.frame));
  return answers;
}

void ReplayPartitions::ForgetEpochs(int32_t epochs) { cores_.front()->Step(FiguresStoredEvent{epochs, 0}, Now()); }

}  // namespace cairn
