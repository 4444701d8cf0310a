// A cluster around a ClusterCore without I/O: a disk, a clock, ps and workers that do what they are told, and a
// training whose truth the test can see. The coordinator can crash at any effect: what was stored before it stays, what
// was to be sent after it is lost. Users, the coordinator's effects and the clock are in fake_cluster.cc, nodes in
// fake_nodes.cc, training in fake_training.cc.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "coordinator/core/cluster_core.h"

namespace cairn {

struct FakeNode {
  v1::Hello hello;       // name, role, address, slots, incarnation
  SessionToken session;  // 0: none open
  bool running = true;   // the process
  bool silent = false;   // hears and says nothing, while its session seems to be open
  std::vector<v1::CoordinatorMessage> inbox;
  std::string fault;                     // ps: what it reports of its store
  std::string blind;                     // worker: why it cannot see the data
  bool breaks_at_rollback = false;       // ps: its session breaks before it hears that it is to go back
  bool stuck = false;                    // worker: sends heartbeats, and answers no evaluation
  int commands = 0;                      // received since the last ClearCommands, Welcome and Readiness not counted
  std::optional<std::string> not_ready;  // ps: the last Readiness

  struct Hosted {
    uint64_t generation = 0;
    std::map<uint32_t, uint64_t> version;
    bool serving = false;  // this process was told to
    std::set<uint32_t> backup;
    std::map<uint32_t, std::map<std::string, bool>> links;  // of primaries: whether the backup has everything
  };
  // ps: as in Hello and PartitionsReady.
  uint64_t version_min = UINT64_MAX;
  bool writes = true;  // ps: what a job ends with; see TellKept
  std::vector<uint64_t> kept_versions;
  std::map<uint64_t, Hosted> hosted;                // ps
  std::set<uint64_t> keeps;                         // ps: jobs whose last values it is to write
  std::map<uint64_t, v1::AssignReplicas> assigned;  // worker
  std::vector<v1::EvaluateShard> shards;            // worker: asked, not answered
  std::vector<v1::InspectData> inspections;         // worker: asked, not answered
  std::vector<v1::Finalize> finalizes;              // worker: asked, not answered
  std::vector<v1::Restore> restores;                // worker: asked
  std::vector<v1::MarkBest> marks;                  // worker: asked
  std::vector<int64_t> kept;                        // worker: of those, the steps of checkpoints that it knew of
  std::map<uint64_t, std::vector<v1::NodeMessage>> reported;  // worker: by job; told again with each new session
  std::vector<v1::WriteSummaries> summaries;                  // worker: asked
  std::vector<v1::SaveModel> saves;                           // worker: asked
  std::vector<v1::DropJob> drops;                             // worker: with checkpoints to remove
  std::set<uint64_t> dropped;                                 // jobs, since it was started
  std::set<uint64_t> cancelled;                               // worker: those of which it was told so
  std::optional<absl::Status> closed;                         // how the last session ended
};

class FakeCluster {
 public:
  FakeCluster();

  // A small MLP of several partitions: 40 training examples, batch 8, 2 epochs: 10 steps; 8 validation and 16 test
  // examples.
  static v1::JobSpec Spec(int replicas = 4);
  v1::DataInfo data;
  std::string data_error;  // workers answer so
  bool replicate = true;   // backups are brought up to date
  // Sum of the two examples of a replica's share, by epoch; 0.25 if not given.
  std::map<int, double> validation_loss;
  bool tells_figures = true;         // the ps report figures after each step
  std::map<int, double> train_loss;  // of one replica's step, by epoch; 0.5 if not given
  std::string not_finite;            // the first variable of the final weights that is not finite
  bool write_checkpoints = false;    // the chief, at the end of each epoch
  std::string checkpoint_error;      // not empty: the chief cannot write checkpoints, and reports this
  bool answer_files = true;          // WriteSummaries and SaveModel
  int file_failures = 0;             // so many of the next ones are answered with an error
  bool answer_inspections = true, answer_evaluations = true, answer_finalizes = true;
  // Of every prediction, in order of arrival. A slow caller takes none by itself.
  std::map<ReplyToken, std::vector<v1::PredictResponse>> predictions;
  bool take_predictions = true;

  FakeNode& AddPs(const std::string& name, const std::string& host = "");
  // With a GPU it computes every compute_dtype, with a CPU all but FLOAT16.
  FakeNode& AddWorker(const std::string& name, int slots = 1, v1::Role role = v1::WORKER, v1::Device device = v1::CPU);
  // Adds a worker with one slot, these programs and no other backend.
  FakeNode& AddPrograms(const std::string& name, const std::vector<v1::ExternalProgram>& programs);
  FakeNode& node(const std::string& name) { return *nodes_.at(name); }

  // Cuts the link between two ps both ways. A primary reports it after 3 s.
  void CutLink(const std::string& a, const std::string& b) {
    cut_links_[{std::min(a, b), std::max(a, b)}] = clock_.Now();
  }
  void HealLink(const std::string& a, const std::string& b) { cut_links_.erase({std::min(a, b), std::max(a, b)}); }

  void Connect(FakeNode& node);       // opens a session
  void BreakSession(FakeNode& node);  // the process goes on
  void Kill(FakeNode& node);          // the process and its memory are gone; a ps' partitions stay on disk
  void Restart(FakeNode& node, const std::string& address = "");
  void Say(FakeNode& node, const v1::NodeMessage& message);
  // A job's first partition has made so many updates, and its figures of the epoch have these sums; its primary reports
  // them.
  void SayFigures(uint64_t job_id, uint64_t version, int epoch, uint64_t examples, double loss = 0);
  // A ps that had not written its values has written them now, and reports it.
  void TellKept(FakeNode& node, uint64_t job_id);

  ReplyToken Submit(const v1::JobSpec& spec, const std::string& key = "", const Requester& who = {});
  const Reply* ReplyTo(ReplyToken token) const;
  uint64_t SubmittedId(ReplyToken token) const;  // 0: no reply, or an error
  v1::JobStatus Job(uint64_t id) const;
  v1::JobState State(uint64_t id) const { return Job(id).state(); }

  void Do(const Event& event);
  // Delivers commands and answers until nothing is pending.
  void Settle();
  // Lets time pass in steps of 100 ms, with heartbeats and without training.
  void Pass(absl::Duration duration);
  // Trains one step of every job whose replicas and partitions are all up.
  void TrainStep();
  // Repeats Settle, Pass(100 ms) and TrainStep until the job is in a final state; false after 2,000 rounds.
  bool RunToEnd(uint64_t job_id);

  // The coordinator dies before it carries out effect number `at` (counted from 0 over the whole test), and restarts.
  void CrashAt(int at) { crash_at_ = at; }
  void CrashSoon(int effects) { crash_at_ = effect_count_ + effects; }
  bool crashed() const { return crashed_; }
  void RestartCoordinator();
  void ReconnectAll();

  ClusterCore& core() { return *core_; }
  ManualClock& clock() { return clock_; }
  const std::vector<std::string>& log() const { return log_; }
  bool Logged(const std::string& part) const;
  void ClearCommands();
  // The number of steps that the replicas of the job have really done.
  int64_t TrueStep(uint64_t job_id) const;
  uint64_t ExamplesOf(const v1::EvaluateShard& shard) const;
  // A worker's whole answer to a shard of a prediction: output i of example e is e + i / 10.
  static std::vector<v1::NodeMessage> Outputs(const v1::EvaluateShard& shard, int64_t examples, int outputs);

  CoordinatorOptions options;
  std::function<void(const Event&, const Effects&)> observe;  // called after each Step, before its effects
  std::function<void(const Effect&)> observe_end;             // the coordinator ends before it carries this effect out
  std::map<std::string, std::string> disk;
  size_t bytes_stored = 0;  // all that was ever written to it

 private:
  void Deliver(FakeNode& node);
  void Handle(FakeNode& node, const v1::CoordinatorMessage& message);
  void AnswerQueries(FakeNode& node);
  void Beat(FakeNode& node);
  void HostPartitions(FakeNode& node, const v1::HostPartitions& host);
  // Brings the backups of this primary up to date and reports it, repeatedly.
  void Replicate(FakeNode& primary);
  bool Served(const v1::AssignReplicas& assign);
  void Update(const v1::AssignReplicas& assign, int64_t step);
  void CountFigures(const v1::AssignReplicas& assign, int64_t step);
  void TellFigures(FakeNode& node, uint64_t job_id);
  v1::NodeMessage StepReport(const v1::AssignReplicas& assign, int32_t replica, int64_t step) const;
  v1::NodeMessage CheckpointReport(const v1::AssignReplicas& assign, int64_t step);
  std::optional<absl::Time> CutSince(const std::string& a, const std::string& b) const;
  v1::HeldPartition HeldOf(const FakeNode& node, uint64_t job_id, uint32_t partition) const;
  v1::Hello HelloOf(const FakeNode& node) const;

  ManualClock clock_;
  std::unique_ptr<ClusterCore> core_;
  uint64_t incarnation_ = 1'000'000;
  uint64_t last_token_ = 0;
  uint64_t last_incarnation_ = 0;
  std::map<std::string, std::unique_ptr<FakeNode>> nodes_;
  std::map<ReplyToken, Reply> replies_;
  std::vector<std::string> log_;
  std::map<uint64_t, int64_t> true_step_;
  struct Figures {
    std::map<uint64_t, EpochList> at;  // by version of the first partition
    int32_t stored = 0;                // epochs, according to the coordinator
  };
  std::map<uint64_t, Figures> figures_;  // by job
  std::map<std::pair<std::string, std::string>, absl::Time> cut_links_;
  int effect_count_ = 0;
  int crash_at_ = -1;
  bool crashed_ = false;
};

}  // namespace cairn
