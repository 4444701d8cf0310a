// Events from bytes into ClusterCore, as nodes, users and time might send them: no crash, whatever the order; a
// coordinator that restarts from what was stored goes on. Nodes answer commands rightly, wrongly or not at all.
//
//   input := (op:u8 arguments)*
#include <map>
#include <memory>
#include <vector>

#include "common/base/check.h"
#include "coordinator/core/cluster_core.h"
#include "tests/fuzz/alter.h"
#include "tests/fuzz/job_seed.h"

namespace cairn {
namespace {

constexpr size_t kSessionsMax = 64;
constexpr size_t kPendingMax = 16;

class Cluster {
 public:
  Cluster() { Restart(); }

  void Run(ByteSource& in) {
    while (!in.empty()) Op(in);
    core_->ListJobs(now_);
    core_->ListNodes();
  }

 private:
  struct Session {
    v1::Hello hello;
    std::vector<v1::CoordinatorMessage> pending;  // commands without an answer
  };

  void Op(ByteSource& in) {
    switch (in.Below(12)) {
      case 0: return Connect(in, false);
      case 1: return Connect(in, true);
      case 2: return Answer(in, false);
      case 3: return Answer(in, true);
      case 4: return Pass(in);
      case 5: return Submit(in);
      case 6: return User(in);
      case 7: return Beat(in);
      case 8: {
        v1::NodeMessage message;
        AlterSome(in, &message);
        return Say(in, message);
      }
      case 9: {
        v1::NodeMessage message;
        const std::string_view bytes = in.Block();
        if (message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) Say(in, message);
        return;
      }
      case 10: return Restart();
      case 11: return Do(SessionClosed{Pick(in)});
    }
  }

  SessionToken Pick(ByteSource& in) { return SessionToken(in.Below(last_session_ + 2)); }

  void Connect(ByteSource& in, bool altered) {
    if (last_session_ >= kSessionsMax) return;
    const size_t who = in.Below(6);
    const bool ps = who < 3;
    v1::Hello hello = known_[who];
    hello.set_name((ps ? "ps" : "worker") + std::to_string(who));
    hello.set_role(ps ? v1::PS : v1::WORKER);
    if (ps) hello.set_address("host:" + std::to_string(1000 + in.Below(3)));
    if (!ps) hello.set_slots(static_cast<int32_t>(in.Below(3) + 1));
    hello.set_incarnation(in.Below(3));
    if (altered) AlterSome(in, &hello);
    const SessionToken token(++last_session_);
    sessions_[token].hello = hello;
    Do(NodeUp{token, hello});
  }

  void Say(ByteSource& in, const v1::NodeMessage& message) { Do(NodeSays{Pick(in), message}); }

  // Answers the oldest command that the node has.
  void Answer(ByteSource& in, bool altered) {
    const SessionToken token = Pick(in);
    auto it = sessions_.find(token);
    if (it == sessions_.end() || it->second.pending.empty()) return;
    const size_t which = in.Below(it->second.pending.size());
    const v1::CoordinatorMessage command = it->second.pending[which];
    it->second.pending.erase(it->second.pending.begin() + static_cast<ptrdiff_t>(which));
    v1::NodeMessage message = Reply(command, known_[Number(it->second.hello.name())], in);
    if (altered) AlterSome(in, &message);
    Do(NodeSays{token, message});
  }

  static size_t Number(const std::string& name) {
    return name.empty() ? 0 : static_cast<uint8_t>(name.back() - '0') % 6;
  }

  static v1::NodeMessage Reply(const v1::CoordinatorMessage& command, v1::Hello& known, ByteSource& in) {
    v1::NodeMessage message;
    switch (command.kind_case()) {
      case v1::CoordinatorMessage::kHostPartitions: {
        const v1::HostPartitions& host = command.host_partitions();
        v1::PartitionsReady& ready = *message.mutable_partitions_ready();
        ready.set_job_id(host.job_id());
        ready.set_generation(host.generation());
        for (const v1::PartitionRange& range : host.partitions()) {
          v1::HeldPartition& held = *ready.add_partitions();
          held.set_partition(range.partition());
          held.set_version(host.has_rollback_to() ? host.rollback_to() : in.Below(3));
          held.set_backup(range.backup());
        }
        v1::HeldPartitions& held = *(known.held_size() > 0 ? known.mutable_held(0) : known.add_held());
        held.set_job_id(host.job_id());
        held.set_generation(host.generation());
        *held.mutable_partitions() = ready.partitions();
        break;
      }
      case v1::CoordinatorMessage::kInspectData:
        message.mutable_data_info()->set_request_id(command.inspect_data().request_id());
        *message.mutable_data_info()->mutable_info() = SmallData();
        break;
      case v1::CoordinatorMessage::kAssignReplicas: {
        const v1::AssignReplicas& assign = command.assign_replicas();
        v1::ReplicaReport& report = *message.mutable_replica_report();
        report.set_job_id(assign.job_id());
        report.set_generation(assign.generation());
        if (assign.replicas_size() > 0) report.set_replica(assign.replicas(0));
        report.set_last_step(static_cast<int64_t>(in.Below(10)));
        report.set_finished(in.Below(2) == 1);
        break;
      }
      case v1::CoordinatorMessage::kFiguresStored: {
        v1::FiguresReport& report = *message.mutable_figures();
        report.set_job_id(command.figures_stored().job_id());
        report.set_generation(in.Below(4) == 0 ? in.Edge() : 1 + in.Below(3));
        report.set_version(in.Below(4) == 0 ? in.Edge() : in.Below(12));
        for (uint64_t epochs = in.Below(4); epochs > 0; --epochs) {
          v1::EpochFigures& figures = *report.add_epochs();
          figures.set_epoch(static_cast<int32_t>(in.Below(8) == 0 ? in.Edge() : in.Below(3)));
          figures.set_replica_steps(in.Below(8) == 0 ? in.Edge() : in.Below(30));
        }
        break;
      }
      case v1::CoordinatorMessage::kEvaluateShard:
        message.mutable_evaluated()->set_request_id(command.evaluate_shard().request_id());
        message.mutable_evaluated()->set_shard(command.evaluate_shard().shard());
        message.mutable_evaluated()->mutable_sums()->set_examples(4);
        break;
      case v1::CoordinatorMessage::kFinalize:
        message.mutable_finalized()->set_job_id(command.finalize().job_id());
        message.mutable_finalized()->set_digest("00");
        break;
      case v1::CoordinatorMessage::kWriteSummaries:
        message.mutable_summaries_written()->set_job_id(command.write_summaries().job_id());
        message.mutable_summaries_written()->set_epochs(static_cast<int32_t>(in.Below(5)));
        if (in.Below(4) == 1) message.mutable_summaries_written()->set_error("disk full");
        break;
      case v1::CoordinatorMessage::kSaveModel:
        message.mutable_model_saved()->set_job_id(command.save_model().job_id());
        message.mutable_model_saved()->set_step(command.save_model().step());
        message.mutable_model_saved()->set_path(command.save_model().path());
        break;
      case v1::CoordinatorMessage::kRestore:
        message.mutable_restored()->set_request_id(command.restore().request_id());
        message.mutable_restored()->set_job_id(command.restore().job_id());
        message.mutable_restored()->set_step(static_cast<int64_t>(in.Below(10)));
        break;
      default: message.mutable_heartbeat();
    }
    return message;
  }

  void Beat(ByteSource& in) {
    v1::NodeMessage message;
    v1::JobProgress& progress = *message.mutable_heartbeat()->add_progress();
    progress.set_job_id(in.Below(4));
    progress.set_step(static_cast<int64_t>(in.Edge()));
    Say(in, message);
  }

  void Pass(ByteSource& in) {
    static constexpr int kMilliseconds[] = {10, 500, 600, 3000, 6000, 31'000, 70'000, 4'000'000};
    now_ += absl::Milliseconds(kMilliseconds[in.Below(std::size(kMilliseconds))]);
    Do(Tick{});
  }

  void Submit(ByteSource& in) {
    v1::JobSpec spec = SmallJob(in.Below(2) == 1);
    AlterSome(in, &spec);
    absl::StatusOr<CheckedJob> checked = CheckJob(spec);
    if (!checked.ok() || checked->spec.replicas() > 64 || checked->graph.space_size() > (1 << 16)) return;
    Do(SubmitJob{ReplyToken(++last_reply_),
                 std::make_shared<const CheckedJob>(*std::move(checked)),
                 std::string(in.Below(2), static_cast<char>('a' + in.Below(4))),
                 {},
                 in.Below(4) == 3});
  }

  void User(ByteSource& in) {
    v1::GetJobRequest job;
    job.set_job_id(in.Below(4));
    if (job.job_id() == 0) job.set_name("small");
    (void)core_->GetJob(job, now_);
    const ReplyToken reply(++last_reply_);
    v1::ListEventsRequest events;
    events.set_job_id(in.Below(4));
    events.set_after(in.Below(20));
    (void)core_->ListEvents(events);
    switch (in.Below(6)) {
      case 5: return Trace(in, reply, job.job_id());
      case 4: {
        v1::ReadLogRequest request;
        request.set_node("ps" + std::to_string(in.Below(3)));
        request.set_job_id(job.job_id());
        return Do(ReadLog{reply, request});
      }
      case 0: return Do(CancelJob{reply, job});
      case 1: return Do(DeleteJob{reply, job});
      case 3: {
        v1::DrainNodeRequest request;
        request.set_name("ps" + std::to_string(in.Below(3)));
        request.set_undo(in.Below(2) == 1);
        return Do(DrainNode{reply, request});
      }
      default: {
        v1::EvaluateRequest request;
        *request.mutable_job() = job;
        request.set_split(static_cast<v1::Split>(in.Below(5)));
        return Do(EvaluateJob{reply, request, now_ + absl::Seconds(20)});
      }
    }
  }

  void Trace(ByteSource& in, ReplyToken reply, uint64_t job) {
    v1::StartTraceRequest start;
    start.set_job_id(job);
    start.set_steps(static_cast<int32_t>(in.Below(3)));
    if (in.Below(3) == 0) return Do(StartTrace{reply, start});
    v1::ReadTraceRequest read;
    read.set_trace_id((incarnation_ << 32) + in.Below(40));  // one of the first requests
    read.set_node("ps" + std::to_string(in.Below(3)));
    read.set_stop(in.Below(2) == 1);
    if (in.Below(2) == 0) return Do(ReadTrace{reply, read});
    v1::EndTraceRequest end;
    end.set_trace_id(read.trace_id());
    Do(EndTrace{reply, end});
  }

  void Do(const Event& event) {
    for (const Effect& effect : core_->Step(event, now_)) {
      if (const auto* store = std::get_if<Store>(&effect)) {
        if (store->value) {
          stored_[store->key] = *store->value;
        } else {
          stored_.erase(store->key);
        }
      } else if (const auto* send = std::get_if<SendCommand>(&effect)) {
        auto it = sessions_.find(send->session);
        CAIRN_CHECK(it != sessions_.end(), "a command for a session that never was");
        if (it->second.pending.size() < kPendingMax) it->second.pending.push_back(send->message);
      } else if (const auto* close = std::get_if<CloseSession>(&effect)) {
        sessions_[close->session].pending.clear();
      }
    }
  }

  void Restart() {
    const absl::StatusOr<StoredState> state = ReadStored(stored_);
    CAIRN_CHECK(state.ok(), "what was stored cannot be read");
    core_ = std::make_unique<ClusterCore>(CoordinatorOptions(), ++incarnation_ << 32, *state, now_);
    for (auto& [token, session] : sessions_) session.pending.clear();
  }

  absl::Time now_ = absl::FromUnixSeconds(1'000'000'000);
  uint64_t incarnation_ = 0, last_session_ = 0, last_reply_ = 0;
  std::map<std::string, std::string> stored_;
  std::map<SessionToken, Session> sessions_;
  v1::Hello known_[6];  // what the nodes hold
  std::unique_ptr<ClusterCore> core_;
};

}  // namespace
}  // namespace cairn

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  cairn::ByteSource in(data, size);
  cairn::Cluster().Run(in);
  return 0;
}
