// The coordinator's word to a worker, and what several ps answer, into ReplicaCore: an assignment with any field
// altered is refused, or trained with; no answer, late, wrong or twice, ends the process; and what the core wants is
// within what it was assigned.
//
//   input := mode:u8 joins:u8 assigned:u8 (0 modulo 4: not yet) (op:u8 arguments)*
#include <algorithm>
#include <deque>
#include <map>
#include <variant>

#include "common/base/overloaded.h"
#include "common/model/gradient_layout.h"
#include "common/model/job_check.h"
#include "tests/fuzz/alter.h"
#include "tests/fuzz/job_seed.h"
#include "tests/unit/worker/naive_ps.h"
#include "worker/core/replica_core.h"

namespace cairn {
namespace {

constexpr uint64_t kSpaceMax = 4096;  // numbers; larger assignments are not trained with here
constexpr size_t kHeldMax = 64;       // requests and works that wait

// The kinds of jobs that the core tells apart.
v1::JobSpec Spec(size_t mode) {
  v1::JobSpec spec = SmallJob(mode % 2 == 1);
  switch (mode / 2) {
    case 0: break;
    case 1: spec.set_wire_dtype(v1::INT8); break;
    case 2: spec.mutable_optimizer()->set_global_clipnorm(1); break;
    case 3:
      spec.set_compute_dtype(v1::FLOAT16);
      spec.mutable_loss_scaling()->set_dynamic_growth_steps(2);
      break;
    case 4: spec.set_strategy(mode % 2 == 1 ? v1::CENTRAL_STORAGE : v1::MIRRORED); break;
    case 5:
      if (mode % 2 == 1) spec.set_staleness_bound(1);
      spec.mutable_optimizer()->mutable_sgd()->clear_momentum();
      spec.mutable_optimizer()->mutable_ema();
      break;
  }
  return spec;
}

v1::AssignReplicas RightAssignment(size_t mode) {
  const absl::StatusOr<CheckedJob> job = CheckJob(Spec(mode));
  MustBeOk(job.status());
  v1::AssignReplicas right;
  right.set_job_id(3);
  right.set_generation(1);
  right.set_assignment(1);
  *right.mutable_spec() = job->spec;
  for (uint32_t i = 0; i < 3; ++i) {
    v1::Route& route = *right.add_routes();
    route.mutable_range()->set_partition(i);
    route.mutable_range()->set_begin(i * 64);
    route.mutable_range()->set_end((i + 1) * 64);
    route.set_address("ps:" + std::to_string(1 + i % 2));
  }
  *right.mutable_data() = SmallData();
  right.set_steps_per_epoch(5);
  right.set_total_steps(10);
  right.add_replicas(0);
  right.add_replicas(1);
  return right;
}

// Built once for each mode.
const v1::AssignReplicas& Right(size_t mode) {
  static v1::AssignReplicas built[12];
  if (built[mode].job_id() == 0) built[mode] = RightAssignment(mode);
  return built[mode];
}

class Worker {
 public:
  explicit Worker(ByteSource& in) : in_(in), message_(Right(in.Below(12))), core_(Options(in)) {}

  void Run() {
    if (in_.Below(4) != 0) Assign();
    for (int ops = 0; ops < 400 && !in_.empty(); ++ops) Op();
  }

 private:
  struct Work {
    uint64_t number = 0;
    bool training = true;
    uint64_t examples = 0;
    std::shared_ptr<const replica::Joint> joint;
    Buffer values, gradient;
  };

  static ReplicaCoreOptions Options(ByteSource& in) {
    ReplicaCoreOptions options;
    options.joins = in.Below(2) == 1;
    return options;
  }

  void Op() {
    switch (in_.Below(15)) {
      case 0: return Assign();
      case 1:
      case 2: return Answer(false);
      case 3: return Answer(true);
      case 4: return RefuseOne();
      case 5:
      case 6: return EndWork(true);
      case 7: return EndWork(false);
      case 8: now_ += absl::Milliseconds(int64_t{1} << in_.Below(18)); return Feed(replica::Timer{});
      case 9: return Feed(replica::ReportAgain{});
      case 10: return EndCheckpoint();
      case 11: return AnyEvent();
      case 12: return Weights();
      case 13: return Twice();
      case 14: Forget(); return Feed(replica::Drop{});
    }
  }

  // ---- the coordinator ----

  void Assign() {
    v1::AssignReplicas message = message_;
    message.set_assignment(message_.assignment() + in_.Below(2));
    message.set_generation(message_.generation() + in_.Below(2));
    if (in_.Below(2) == 1) message.set_chief(true);
    const size_t held = in_.Below(4);
    message.clear_replicas();
    for (int r = 0; r < 2; ++r) {
      if (held >> r & 1) message.add_replicas(r);
    }
    if (in_.Below(4) == 3) message.mutable_routes(static_cast<int>(in_.Below(3)))->set_address("ps:3");
    if (in_.Below(4) == 3) AlterSome(in_, &message);
    uint64_t numbers = 0;
    for (const v1::Route& route : message.routes()) numbers = std::max(numbers, route.range().end());
    if (numbers > kSpaceMax || message.routes_size() > 16 || message.spec().replicas() > 64) return;
    const bool first = core_.ranges().empty();
    // Model, loss and optimizer are what the coordinator's own check let pass; the rest is checked by the core.
    if (first && !CheckJob(message.spec()).ok()) return;
    failed_ = false;
    if (first) total_steps_ = INT64_MAX;
    if (first) spec_ = message.spec();
    Feed(replica::Assign{message});
    if (failed_) return;
    if (first) total_steps_ = message.total_steps();
    message_.set_assignment(std::max(message_.assignment(), message.assignment()));
    message_.set_generation(std::max(message_.generation(), message.generation()));
    if (first) MakePartitions(message);
    for (const int32_t replica : core_.replicas())
      CAIRN_CHECK(replica >= 0 && replica < spec_.replicas(), "a replica that the job does not have");
  }

  void MakePartitions(const v1::AssignReplicas& message) {
    ranges_ = core_.ranges();
    GradientLayout layout;
    if (NeedsLayout(spec_)) layout = GradientLayoutOf(*Graph::Build(spec_.model()), spec_);
    partitions_.clear();
    for (const v1::PartitionRange& range : ranges_) {
      const std::vector<float> values(range.end() - range.begin(), 0.25f);
      partitions_.emplace_back(range.partition(), values, static_cast<uint32_t>(spec_.replicas()), IsSynchronous(spec_),
                               spec_.staleness_bound());
      if (spec_.has_loss_scaling()) partitions_.back().UseLossScale(1024, 2);
      partitions_.back().UseRounding(spec_.seed(), static_cast<int64_t>(range.begin()), layout);
    }
  }

  // ---- the ps ----

  void Answer(bool altered) {
    if (sent_.empty()) return;
    replica::Send send = std::move(sent_.front());
    sent_.pop_front();
    const uint32_t p = send.frame.partition.value;
    tickets_[++ticket_] = send.request;
    partitions_[p].RaiseGeneration(send.frame.generation.value);
    if (BytesOf(send.frame.reply_dtype, 1) < 2) send.frame.reply_dtype = v1::FLOAT32;  // the naive ps rounds no values
    for (NaiveAnswer& answer : partitions_[p].Handle(ticket_, send.frame)) {
      if (altered && answer.frame.ok()) Alter(*answer.frame);
      answered_ = tickets_[answer.ticket];
      Feed(replica::Reply{tickets_[answer.ticket], std::move(answer.frame)});
    }
  }

  void Alter(Frame& f) {
    switch (in_.Below(9)) {
      case 0: f.kind = static_cast<Frame::Kind>(in_.Below(12)); break;
      case 1: f.version = in_.Edge(); break;
      case 2: f.sequence = in_.Edge(); break;
      case 3: f.partition = PartitionId(static_cast<uint32_t>(in_.Edge())); break;
      case 4: f.dtype = static_cast<v1::DataType>(in_.Below(12)); break;
      case 5: f.payload = Buffer::Zeros(in_.Byte() * in_.Below(9)); break;
      case 6: f.scalars.assign(in_.Byte(), static_cast<char>(in_.Byte())); break;
      case 7: f.loss_scale = static_cast<float>(in_.Edge()); break;
      case 8: f.job = JobId(in_.Edge()); break;
    }
  }

  void RefuseOne() {
    if (sent_.empty()) return;
    const replica::Send send = std::move(sent_.front());
    sent_.pop_front();
    Feed(replica::Reply{send.request, absl::Status(static_cast<absl::StatusCode>(1 + in_.Below(16)), "no")});
  }

  // ---- the slots ----

  // Announces what the work has, unless it fails, and ends it.
  void EndWork(bool ok) {
    if (works_.empty()) return;
    Work work = std::move(works_.front());
    works_.pop_front();
    const uint32_t partitions = static_cast<uint32_t>(ranges_.size());
    if (ok && work.training) {
      if (work.joint == nullptr) {
        Feed(replica::GradientReady{work.number, 0, partitions});
      } else if (--joints_[work.joint->number] == 0) {
        Feed(replica::GradientSummed{work.joint->number, 0, partitions});
      }
    }
    absl::StatusOr<BatchSums> sums = BatchSums{work.examples, 0.5 * static_cast<double>(work.examples), {1}};
    if (!ok) sums = absl::Status(static_cast<absl::StatusCode>(1 + in_.Below(16)), "no");
    const uint64_t number = ended_ = work.number;
    const bool training = work.training;
    work = Work();  // lets go of its buffers before the core hears of it
    if (training) {
      Feed(replica::Computed{number, std::move(sums)});
    } else {
      Feed(replica::Evaluated{number, std::move(sums)});
    }
  }

  void Weights() {
    if (works_.empty()) return;
    const uint64_t work = works_.front().number;
    const uint32_t n = static_cast<uint32_t>(in_.Below(ranges_.size() + 1));
    Feed(replica::WeightsWanted{work, 0, n});
    if (in_.Below(2) == 1) Feed(replica::WeightsDone{work, 0, n});
  }

  void EndCheckpoint() {
    const uint64_t number = in_.Below(2) == 1 ? checkpoint_ : in_.Edge();
    Feed(replica::CheckpointDone{number, static_cast<replica::CheckpointDone::Outcome>(in_.Below(3))});
  }

  // What was answered or ended is so once more.
  void Twice() {
    if (in_.Below(2) == 1) return Feed(replica::Reply{answered_, Frame()});
    if (in_.Below(2) == 1) return Feed(replica::Computed{ended_, BatchSums{1, 1, {1}}});
    Feed(replica::GradientReady{ended_, 0, static_cast<uint32_t>(ranges_.size())});
  }

  // Of a work or request that there may never have been.
  void AnyEvent() {
    const uint64_t number = 1'000'000 + in_.Edge() % 1'000'000'000;
    switch (in_.Below(6)) {
      case 0: return Feed(replica::Computed{number, BatchSums{1, 1, {1}}});
      case 1: return Feed(replica::Evaluated{number, BatchSums{1, 1, {1}}});
      case 2: return Feed(replica::GradientReady{number, 0, 1});
      case 3: return Feed(replica::Reply{number, Frame()});
      case 4: return Feed(replica::GradientSummed{number, 0, 1});
      case 5: return Feed(replica::Computed{number, absl::InternalError("no")});
    }
  }

  // ---- effects ----

  void Feed(replica::Event event) {
    for (replica::Effect& effect : core_.Step(std::move(event), now_)) {
      std::visit(Overloaded{
                     [&](replica::Send& send) { OnSend(std::move(send)); },
                     [&](replica::Compute& compute) { OnCompute(compute); },
                     [&](replica::Evaluate& evaluate) {
                       const uint64_t examples = static_cast<uint64_t>(evaluate.places.size());
                       works_.push_back({evaluate.work, false, examples, nullptr, std::move(evaluate.values), {}});
                     },
                     [&](replica::TakeCheckpoint& take) { checkpoint_ = take.number; },
                     [&](replica::Report& report) {
                       const int32_t replica = report.report.replica();
                       CAIRN_CHECK(replica >= 0 && replica < spec_.replicas(), "a report of no replica");
                     },
                     [&](replica::Fail& fail) {
                       CAIRN_CHECK(!fail.message.empty(), "a failure without a reason");
                       failed_ = true;
                     },
                     [](const auto&) {},
                 },
                 effect);
    }
    while (sent_.size() > kHeldMax) sent_.pop_front();
    CAIRN_CHECK(core_.step() <= total_steps_, "a step beyond the job");
    if (!failed_) return;
    Forget();
    (void)core_.Step(replica::Drop{}, now_);
    failed_ = true;
  }

  void OnSend(replica::Send send) {
    const Frame& f = send.frame;
    CAIRN_CHECK(f.partition.value < core_.ranges().size(), "a partition that the job does not have");
    const int64_t first = f.replica_first.value, count = f.replica_count;
    CAIRN_CHECK(first >= 0 && first + count <= spec_.replicas(), "replicas of no job");
    CAIRN_CHECK(!send.address.empty(), "to nobody");
    sent_.push_back(std::move(send));
  }

  void OnCompute(replica::Compute& compute) {
    const uint64_t bytes = core_.ranges().back().end() * sizeof(float);
    CAIRN_CHECK(compute.by_layer || compute.values.size() == bytes, "values of another size");
    if (compute.gradient.size() > 0)
      std::fill_n(compute.gradient.mutable_data(), compute.gradient.size(), uint8_t{0x3c});
    if (compute.joint != nullptr && !joints_.contains(compute.joint->number)) {
      joints_[compute.joint->number] = std::count(compute.joint->leaves.begin(), compute.joint->leaves.end(), true);
      Buffer sum = compute.joint->gradient;
      std::fill_n(sum.mutable_data(), sum.size(), uint8_t{0x3c});
    }
    works_.push_back({compute.work, true, 4, compute.joint, std::move(compute.values), std::move(compute.gradient)});
  }

  void Forget() {
    sent_.clear();
    works_.clear();
    joints_.clear();
    spec_.Clear();
    message_.set_assignment(1);
    message_.set_generation(1);
  }

  ByteSource& in_;
  v1::AssignReplicas message_;  // the next one, if nothing is altered
  ReplicaCore core_;
  absl::Time now_ = absl::FromUnixSeconds(1'000'000'000);
  bool failed_ = false;
  v1::JobSpec spec_;  // of the job that the core works for
  std::vector<v1::PartitionRange> ranges_;
  std::deque<replica::Send> sent_;
  std::deque<Work> works_;
  std::map<uint64_t, int64_t> joints_;  // the leaves that are left
  std::vector<NaivePartition> partitions_;
  std::map<uint64_t, uint64_t> tickets_;
  uint64_t ticket_ = 0, checkpoint_ = 0, answered_ = 0, ended_ = 0;
  int64_t total_steps_ = INT64_MAX;
};

}  // namespace
}  // namespace cairn

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  cairn::ByteSource in(data, size);
  cairn::Worker(in).Run();
  return 0;
}
