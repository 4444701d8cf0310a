#include "worker/core/replica_context.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/limits.h"
#include "common/model/learning_rate.h"
#include "common/model/loss_scale.h"
#include "common/model/metric_sums.h"
#include "common/tensor/dtype.h"
#include "worker/limits.h"

namespace cairn::replica {
namespace {

// A token: serial number (37 bits), owner (11), partition (16).
static_assert(kPartitionsMax <= (1 << 16));
static_assert(kReplicasMax <= static_cast<int32_t>(kOwnersMax) && kOwnersMax == 1 << 11);

uint64_t MakeToken(uint64_t serial, uint32_t owner, uint32_t partition) {
  return serial << 27 | static_cast<uint64_t>(owner) << 16 | partition;
}

// Fenced: only a new assignment helps, and its arrival triggers a retry at once. This pause is for the case that it was
// lost.
constexpr absl::Duration kFencedPause = absl::Seconds(1);

}  // namespace

RequestName NameOf(uint64_t token) {
  return {static_cast<uint32_t>(token >> 16) & (kOwnersMax - 1), static_cast<uint32_t>(token & 0xffff)};
}

void BufferPool::Resize(size_t bytes, size_t spares_max) {
  if (bytes != bytes_) spares_.clear();
  bytes_ = bytes;
  spares_max_ = spares_max;
  if (spares_.size() > spares_max_) spares_.resize(spares_max_);
}

Buffer BufferPool::Acquire() {
  for (size_t i = spares_.size(); i-- > 0;) {
    if (!spares_[i].unique()) continue;  // a connection or stale work is still reading it
    Buffer buffer = std::move(spares_[i]);
    spares_.erase(spares_.begin() + static_cast<int64_t>(i));
    return buffer;
  }
  return Buffer::Allocate(bytes_);
}

void BufferPool::Release(Buffer buffer) {
  if (buffer.size() != bytes_ || bytes_ == 0) return;
  if (spares_.size() >= spares_max_) return;
  spares_.push_back(std::move(buffer));
}

void Context::SendRequest(Request& request, uint32_t owner, Frame frame) {
  const uint32_t partition = frame.partition.value;
  request.state = Request::State::kSent;
  request.token = MakeToken(++serial, owner, partition);
  request.generation = generation.value;
  effects.emplace_back(Send{request.token, parts[partition].address, std::move(frame)});
}

void Context::Retry(Request& request, uint32_t partition, const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
      FailJob(absl::StrCat("partition ", partition, " at ", parts[partition].address, ": ", status.message()));
      return;
    case absl::StatusCode::kFailedPrecondition:
      // If the generation known here is newer than the one sent, retry at once with it.
      RetryAfter(request, request.generation < generation.value ? options.retry_min : kFencedPause);
      return;
    default: RetryAfter(request, Pause(request.attempt));
  }
}

void Context::RetryAfter(Request& request, absl::Duration pause) {
  request.state = Request::State::kWaiting;
  request.token = 0;
  ++request.attempt;
  request.retry_at = now + pause;
  retry_earliest = std::min(retry_earliest, request.retry_at);
}

bool Context::Due(const Request& request) {
  if (request.state != Request::State::kWaiting) return false;
  if (request.retry_at <= now) return true;
  retry_earliest = std::min(retry_earliest, request.retry_at);
  return false;
}

bool Context::ResendAtOnce(const Request& request, bool moved, bool raised) const {
  return (request.state == Request::State::kSent && moved) ||
         (request.state == Request::State::kWaiting && (moved || raised));
}

absl::Duration Context::Pause(int attempt) {
  absl::Duration pause = options.retry_min * (int64_t{1} << std::min(attempt, 16));
  // Jitter: 0.5 to 1 of the pause, from a counter hashed with SplitMix64's finalizer (Steele et al. 2014).
  uint64_t z = options.jitter_seed + 0x9e3779b97f4a7c15u * ++jitter;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  z ^= z >> 31;
  pause = std::min(pause, options.retry_max) * (0.5 + 0.5 * static_cast<double>(z >> 11) * 0x1.0p-53);
  return std::max(pause, options.retry_min);
}

void Context::FailJob(std::string message) {
  if (failed) return;
  failed = true;
  effects.emplace_back(Fail{std::move(message)});
}

absl::Status Context::CheckLossScale(const Frame& frame) const {
  if (!has_loss_scale || IsLossScale(frame.loss_scale)) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("the answer says ", frame.loss_scale, " of the loss scale; use a newer ps"));
}

absl::Status Context::CheckValues(const Frame& frame, uint32_t partition) const {
  if (frame.kind != v1::ExchangeFrame::VALUES) return absl::UnavailableError("the answer holds no values");
  if (frame.partition.value != partition) return absl::UnavailableError("the answer is of another partition");
  const size_t element = SizeOf(frame.dtype);
  if (element == 0 || frame.payload.size() != parts[partition].numbers() * element) {
    return absl::UnavailableError(absl::StrCat("partition ", partition, ": ", frame.payload.size(),
                                               " bytes of values, expected ", parts[partition].numbers(), " numbers"));
  }
  return CheckLossScale(frame);
}

void Context::CopyValues(const Frame& frame, Buffer& into) const {
  const Part& part = parts[frame.partition.value];
  ToFloat({frame.payload.data(), frame.payload.size()}, frame.dtype,
          into.mutable_floats().subspan(part.range.begin(), part.numbers()));
}

Frame Context::MakePull(uint32_t partition) const {
  Frame frame;
  frame.kind = v1::ExchangeFrame::PULL;
  frame.job = job;
  frame.partition = PartitionId(partition);
  frame.reply_dtype = ValuesTypeOf(wire);
  return frame;
}

GradientRounding Context::RoundingOf(uint32_t partition, int64_t step) const {
  return {wire, spec.seed(), static_cast<uint64_t>(step) + 1, static_cast<int64_t>(parts[partition].range.begin()),
          &layout};
}

Frame Context::MakePush(uint32_t partition, const TreeNode& node, int64_t step, uint64_t examples,
                        const Buffer& gradient, bool packed) const {
  const Part& part = parts[partition];
  Frame frame;
  frame.kind = v1::ExchangeFrame::PUSH;
  frame.job = job;
  frame.partition = PartitionId(partition);
  frame.generation = generation;
  frame.replica_first = ReplicaId(static_cast<int32_t>(node.first));
  frame.replica_count = node.count;
  frame.sequence = static_cast<uint64_t>(step) + 1;
  frame.examples = examples;
  frame.learning_rate = rates.At(step);
  frame.ema_overwrite = EmaOverwritesAfter(spec.optimizer(), step, plan.steps_per_epoch * spec.epochs());
  frame.dtype = wire;
  frame.reply_dtype = ValuesTypeOf(wire);
  if (examples > 0) {
    if (wire == v1::FLOAT32 || packed) {
      frame.payload = gradient.Slice(BytesOf(wire, part.range.begin()), BytesOf(wire, part.numbers()));
    } else {
      const GradientRounding rounding = RoundingOf(partition, step);
      frame.payload = Buffer::Allocate(PackedBytes(rounding, part.numbers()));
      PackRounded(rounding, node, gradient.floats().subspan(part.range.begin(), part.numbers()),
                  {frame.payload.mutable_data(), frame.payload.size()});
    }
  }
  frame.payload_total = frame.payload.size();
  return frame;
}

std::shared_ptr<const Joint> Context::MakeJoint(const TreeNode& node, int64_t step, v1::DataType type) {
  if (!options.joins || step >= plan.total_steps || type == v1::INT8) return nullptr;  // blocks are made on the host
  auto joint = std::make_shared<Joint>();
  for (uint32_t replica = node.first; replica < node.end(); ++replica) {
    joint->leaves.push_back(plan.Places(step, ReplicaId(static_cast<int32_t>(replica))).size() > 0);
  }
  const auto computing = std::count(joint->leaves.begin(), joint->leaves.end(), true);
  if (computing == 0 || (computing == 1 && plan.pieces == 1 && type == v1::FLOAT32)) return nullptr;
  joint->number = ++joints;
  joint->node = node;
  joint->type = type;
  joint->layout = layout;
  joint->gradient = pool.Acquire();
  return joint;
}

v1::EpochFigures Context::FiguresOf(const TreeNode& node, int64_t step,
                                    const std::function<const BatchSums&(uint32_t)>& sums) const {
  const std::function<v1::EpochFigures(const TreeNode&)> of = [&](const TreeNode& subtree) {
    v1::EpochFigures figures;
    if (subtree.count > 1) {
      figures = of(LeftChild(subtree));
      AddFigures(of(RightChild(subtree)), figures);
    } else {
      figures.set_epoch(static_cast<int32_t>(plan.EpochOf(step)));
      *figures.mutable_train() = ToMetricSums(sums(subtree.first - node.first));
      figures.set_replica_steps(1);
    }
    return figures;
  };
  return of(node);
}

Frame Context::MakeClip(uint32_t partition, int64_t step, std::string factors, uint64_t norms_xxh3) const {
  Frame frame;
  frame.kind = v1::ExchangeFrame::CLIP;
  frame.job = job;
  frame.partition = PartitionId(partition);
  frame.generation = generation;
  frame.sequence = static_cast<uint64_t>(step) + 1;
  frame.scalars = std::move(factors);
  frame.norms_xxh3 = norms_xxh3;
  frame.reply_dtype = ValuesTypeOf(wire);
  return frame;
}

Context::Evaluation Context::EvaluationBefore(int64_t step) const {
  Evaluation evaluation;
  if (validation_examples == 0 || step == 0 || spec.validation_by() == v1::BY_EVALUATOR) return evaluation;
  evaluation.by_steps = spec.validation_freq_steps() > 0 && step % spec.validation_freq_steps() == 0;
  if (step % plan.steps_per_epoch != 0) return evaluation;
  const int64_t epochs_done = step / plan.steps_per_epoch;
  const int64_t every = std::max(spec.validation_freq(), 1);
  if (epochs_done % every == 0 || step == plan.total_steps) evaluation.epoch = static_cast<int32_t>(epochs_done - 1);
  return evaluation;
}

void Context::AddValidation(ReplicaId replica, int64_t step, const BatchSums& sums) {
  const Evaluation evaluation = EvaluationBefore(step);
  if (evaluation.epoch) reports.AddValidation(replica, *evaluation.epoch, sums);
  if (evaluation.by_steps) reports.AddStepValidation(replica, step, sums);
}

void Context::CheckpointIfDue(int64_t step, std::optional<uint64_t> want_version) {
  if (!chief || checkpoint_step || failed || !checkpoint_rule->Due(step, now)) return;
  if (now < next_cut) {
    retry_earliest = std::min(retry_earliest, next_cut);
    return;
  }
  TakeCheckpoint take;
  take.number = ++checkpoints;
  take.step = step;
  take.last_try = step == plan.total_steps && now - last_cut_fails_since >= options.last_cut_max;
  for (uint32_t p = 0; p < parts.size(); ++p) {
    Frame frame;
    frame.kind = v1::ExchangeFrame::SNAPSHOT;
    frame.job = job;
    frame.partition = PartitionId(p);
    frame.generation = generation;
    frame.want_version = want_version;
    take.requests.push_back({parts[p].address, std::move(frame)});
  }
  checkpoint_step = step;
  cut_is_last_try = take.last_try;
  effects.emplace_back(std::move(take));
}

bool Context::EndCheckpoint(const CheckpointDone& event) {
  if (!checkpoint_step || event.number != checkpoints) return false;
  const bool last = *checkpoint_step == plan.total_steps;  // there is no later step at which to retry it
  if (event.outcome != CheckpointDone::Outcome::kNoCut || cut_is_last_try) {
    checkpoint_rule->Taken(*checkpoint_step, now);
    cuts_failed = 0;
    last_cut_fails_since = absl::InfiniteFuture();
  } else {
    if (last) last_cut_fails_since = std::min(last_cut_fails_since, now);
    next_cut = now + Pause(cuts_failed++);
    retry_earliest = std::min(retry_earliest, next_cut);  // there may be no later step at which to retry it
  }
  checkpoint_step.reset();
  return true;
}

void Context::Finish(ReplicaId replica) {
  if (CheckpointOwed()) {
    finished_later.push_back(replica);
  } else {
    reports.Finish(replica, now);
  }
}

void Context::FinishLater() {
  if (CheckpointOwed()) return;
  for (ReplicaId replica : std::exchange(finished_later, {})) {
    if (std::binary_search(replicas.begin(), replicas.end(), replica.value)) reports.Finish(replica, now);
  }
}

uint64_t Context::StartEvaluation(ReplicaId replica, int64_t step, const Buffer& values, bool by_layer) {
  if (!EvaluationBefore(step)) return 0;
  const PlaceRange places = Share(validation_examples, replica.value, plan.replicas);
  if (places.size() == 0) {
    AddValidation(replica, step, BatchSums{0, 0, std::vector<double>(static_cast<size_t>(MetricSumCount(spec)))});
    return 0;
  }
  const uint64_t work = NewWork();
  effects.emplace_back(Evaluate{work, replica, step, places, values, by_layer});
  return work;
}

}  // namespace cairn::replica
