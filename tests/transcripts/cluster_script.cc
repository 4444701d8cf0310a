#include "tests/transcripts/cluster_script.h"

#include "absl/strings/str_join.h"
#include "google/protobuf/text_format.h"

namespace cairn {
namespace {

using google::protobuf::TextFormat;

absl::Status Unknown(const Command& command) {
  return absl::InvalidArgumentError(absl::StrCat("there is no command \"", command.verb(), "\""));
}

}  // namespace

ClusterScript::ClusterScript() : start_(cluster_.clock().Now()) {
  cluster_.observe = [this](const Event& event, const Effects& effects) { Observe(event, effects); };
  cluster_.observe_end = [this](const Effect& effect) {
    absl::StrAppend(&out_, "the coordinator ends before: ", EffectText(effect), "\n");
  };
}

absl::StatusOr<std::string> ClusterScript::Run(const Command& command) {
  out_.clear();
  absl::Status status = RunCluster(command);
  if (absl::IsUnimplemented(status)) status = RunJob(command);
  if (absl::IsUnimplemented(status)) status = RunNode(command);
  if (absl::IsUnimplemented(status)) return Unknown(command);
  CAIRN_RETURN_IF_ERROR(status);
  return out_;
}

// The cluster as a whole. Unimplemented: no such command.
absl::Status ClusterScript::RunCluster(const Command& command) {
  const std::string& verb = command.verb();
  if (verb == "cluster") {
    CAIRN_ASSIGN_OR_RETURN(const int64_t ps, command.Number("ps", 1));
    CAIRN_ASSIGN_OR_RETURN(const int64_t workers, command.Number("workers", 1));
    CAIRN_ASSIGN_OR_RETURN(const int64_t slots, command.Number("slots", 4));
    for (int64_t i = 0; i < ps; ++i) cluster_.AddPs(absl::StrCat("ps-", i));
    for (int64_t i = 0; i < workers; ++i) cluster_.AddWorker(absl::StrCat("worker-", i), static_cast<int>(slots));
    return absl::OkStatus();
  }
  if (verb == "ps") return cluster_.AddPs(command.Word(0), command.Word(1)), absl::OkStatus();
  if (verb == "worker") {
    CAIRN_ASSIGN_OR_RETURN(const int64_t slots, command.Number("slots", 4));
    const v1::Device device = command.Word(1) == "gpu" ? v1::GPU : v1::CPU;
    return cluster_.AddWorker(command.Word(0), static_cast<int>(slots), v1::WORKER, device), absl::OkStatus();
  }
  if (verb == "pass") {
    absl::Duration duration;
    if (!absl::ParseDuration(command.Word(0), &duration))
      return absl::InvalidArgumentError("pass takes a duration, as in: pass 500ms");
    return cluster_.Pass(duration), absl::OkStatus();
  }
  if (verb == "train") {
    CAIRN_ASSIGN_OR_RETURN(const int64_t steps, command.NumberAt(0));
    return cluster_.Train(static_cast<int>(steps)), absl::OkStatus();
  }
  if (verb == "coordinator-ends-after") {
    CAIRN_ASSIGN_OR_RETURN(const int64_t effects, command.NumberAt(0));
    return cluster_.CrashSoon(static_cast<int>(effects)), absl::OkStatus();
  }
  if (verb == "next-coordinator") {
    cluster_.RestartCoordinator();
    cluster_.ReconnectAll();
    return cluster_.Settle(), absl::OkStatus();
  }
  if (verb == "reconnect") {
    cluster_.ReconnectAll();
    return cluster_.Settle(), absl::OkStatus();
  }
  if (verb == "checkpoints") return cluster_.write_checkpoints = command.Word(0) == "on", absl::OkStatus();
  if (verb == "validation-losses") {
    for (int epoch = 0; !command.Word(static_cast<size_t>(epoch)).empty(); ++epoch) {
      if (!absl::SimpleAtod(command.Word(static_cast<size_t>(epoch)), &cluster_.validation_loss[epoch]))
        return absl::InvalidArgumentError("validation-losses takes a number for each epoch");
    }
    return absl::OkStatus();
  }
  return absl::UnimplementedError("");
}

// Jobs and their users.
absl::Status ClusterScript::RunJob(const Command& command) {
  const std::string& verb = command.verb();
  if (verb == "submit") {
    v1::JobSpec said;
    if (!TextFormat::ParseFromString(command.rest(), &said))
      return absl::InvalidArgumentError("submit takes fields of a JobSpec, as in: submit replicas: 4 backups: 1");
    v1::JobSpec spec = FakeCluster::Spec();
    spec.MergeFrom(said);
    return cluster_.Submit(spec), absl::OkStatus();
  }
  if (verb == "restored") return Restore(command);
  if (verb != "run" && verb != "job" && verb != "cancel" && verb != "delete" && verb != "evaluate")
    return absl::UnimplementedError("");
  CAIRN_ASSIGN_OR_RETURN(const int64_t number, command.NumberAt(0));
  const uint64_t id = static_cast<uint64_t>(number);
  v1::GetJobRequest job;
  job.set_job_id(id);
  if (verb == "run" && !cluster_.RunToEnd(id)) return absl::DeadlineExceededError("the job does not end");
  if (verb == "job") Show(id);
  const ReplyToken token = NewCall();
  if (verb == "cancel") cluster_.Do(CancelJob{token, job});
  if (verb == "delete") cluster_.Do(DeleteJob{token, job});
  if (verb == "evaluate") {
    v1::EvaluateRequest request;
    *request.mutable_job() = job;
    cluster_.Do(EvaluateJob{token, request, cluster_.clock().Now() + absl::Minutes(1)});
  }
  return cluster_.Settle(), absl::OkStatus();
}

// One node: COMMAND NODE [...].
absl::Status ClusterScript::RunNode(const Command& command) {
  const std::string& verb = command.verb();
  CAIRN_ASSIGN_OR_RETURN(FakeNode* const node, NodeNamed(command.Word(0)));
  if (verb == "kill") return cluster_.Kill(*node), absl::OkStatus();
  if (verb == "restart") return cluster_.Restart(*node), absl::OkStatus();
  if (verb == "break") return cluster_.BreakSession(*node), absl::OkStatus();
  if (verb == "connect") {
    cluster_.Connect(*node);
    return cluster_.Settle(), absl::OkStatus();
  }
  if (verb == "drain" || verb == "undrain") {
    DrainNode event{NewCall(), {}};
    event.request.set_name(node->hello.name());
    event.request.set_undo(verb == "undrain");
    cluster_.Do(event);
    return cluster_.Settle(), absl::OkStatus();
  }
  if (verb == "says") {
    CAIRN_RETURN_IF_ERROR(Say(*node, command.rest().substr(command.rest().find(' ') + 1)));
    return cluster_.Settle(), absl::OkStatus();
  }
  return RunFault(command, *node);
}

absl::Status ClusterScript::RunFault(const Command& command, FakeNode& node) {
  const std::string& verb = command.verb();
  if (verb == "silence") return node.silent = true, absl::OkStatus();
  if (verb == "forget-disk") return node.hosted.clear(), absl::OkStatus();
  if (verb == "cut" || verb == "heal") {
    CAIRN_ASSIGN_OR_RETURN(FakeNode* const other, NodeNamed(command.Word(1)));
    if (verb == "cut") return cluster_.CutLink(node.hello.name(), other->hello.name()), absl::OkStatus();
    return cluster_.HealLink(node.hello.name(), other->hello.name()), absl::OkStatus();
  }
  // The disk of a ps has lost what came after this version: power failed.
  if (verb == "disk-at") {
    CAIRN_ASSIGN_OR_RETURN(const int64_t version, command.NumberAt(1));
    for (auto& [job, hosted] : node.hosted) {
      for (auto& [partition, held] : hosted.version) held = static_cast<uint64_t>(version);
    }
    return absl::OkStatus();
  }
  // As a worker whose GPU hangs: a fault in its heartbeat, the job's error, and its end.
  if (verb == "lose-device") {
    CAIRN_ASSIGN_OR_RETURN(const int64_t job, command.NumberAt(1));
    const std::string fault = "GPU 0 is lost: a step does not end";
    CAIRN_RETURN_IF_ERROR(Say(node, absl::StrCat("heartbeat { fault: '", fault, "' }")));
    CAIRN_RETURN_IF_ERROR(
        Say(node, absl::StrCat("job_error { job_id: ", job, " worker_only: true message: '", fault, "' }")));
    cluster_.Kill(node);
    return cluster_.Settle(), absl::OkStatus();
  }
  return absl::UnimplementedError("");
}

absl::StatusOr<FakeNode*> ClusterScript::NodeNamed(const std::string& name) {
  for (const auto& [session, known] : names_) {
    if (known == name) return &cluster_.node(name);
  }
  return absl::NotFoundError(absl::StrCat("there is no node \"", name, "\""));
}

absl::Status ClusterScript::Say(FakeNode& node, const std::string& message) {
  v1::NodeMessage parsed;
  if (!TextFormat::ParseFromString(message, &parsed))
    return absl::InvalidArgumentError("says takes a NodeMessage, as in: says ps-0 heartbeat { memory_bytes: 1 }");
  return cluster_.Say(node, parsed), absl::OkStatus();
}

// restored NODE STEP: the worker has filled the partitions from the checkpoint that it was last asked for.
absl::Status ClusterScript::Restore(const Command& command) {
  CAIRN_ASSIGN_OR_RETURN(FakeNode* const node, NodeNamed(command.Word(0)));
  CAIRN_ASSIGN_OR_RETURN(const int64_t step, command.NumberAt(1));
  if (node->restores.empty()) return absl::NotFoundError(absl::StrCat(command.Word(0), " was not asked to restore"));
  const v1::Restore& asked = node->restores.back();
  for (const v1::Route& route : asked.routes()) {
    cluster_.node(route.ps()).hosted.at(asked.job_id()).version[route.range().partition()] =
        static_cast<uint64_t>(step);
  }
  v1::NodeMessage message;
  v1::RestoreReply& reply = *message.mutable_restored();
  reply.set_request_id(asked.request_id());
  reply.set_job_id(asked.job_id());
  reply.set_step(step);
  reply.set_path(asked.path());
  cluster_.Say(*node, message);
  return cluster_.Settle(), absl::OkStatus();
}

}  // namespace cairn
