// A ps written down naively, as a yardstick for ReplicaCore: one struct a partition, exact rules, no tricks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "common/model/clip_norm.h"
#include "common/model/epoch_figures.h"
#include "common/tensor/dtype.h"
#include "common/tensor/frame.h"
#include "common/tensor/summation_tree.h"

namespace cairn {

// The sum of replicas [first, first + count) by the definition of the tree: split at the largest power of two below
// count; what has no examples is skipped; every sum is rounded. leaf(r) is replica r's {gradient, examples}, rounded.
struct NaiveSum {
  std::vector<float> gradient;
  uint64_t examples = 0;
  v1::EpochFigures figures = {};  // of a push
};
template <typename Leaf>
NaiveSum SumTree(const GradientRounding& rounding, uint32_t first, uint32_t count, const Leaf& leaf) {
  if (std::optional<NaiveSum> whole = leaf(first, count)) return *whole;
  uint32_t half = 1;
  while (half * 2 < count) half *= 2;
  NaiveSum left = SumTree(rounding, first, half, leaf);
  const NaiveSum right = SumTree(rounding, first + half, count - half, leaf);
  if (right.examples == 0) return left;
  if (left.examples == 0) return right;
  for (size_t i = 0; i < left.gradient.size(); ++i) left.gradient[i] = left.gradient[i] + right.gradient[i];
  RoundGradient(rounding, {first, count}, absl::MakeSpan(left.gradient));
  left.examples += right.examples;
  return left;
}

inline void NaiveApply(std::vector<float>& values, const NaiveSum& sum, float learning_rate) {
  if (sum.examples == 0) return;
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] -= learning_rate * (sum.gradient[i] / static_cast<float>(sum.examples));
  }
}

// Multiplies each scope by its factor as the whole space knows it.
inline void NaiveClip(NaiveSum& sum, const std::vector<ClipScope>& scopes, double clip) {
  for (const ClipScope& scope : scopes) {
    const double factor = ClipFactor(clip, MeasureNorm(scope, sum.gradient, sum.examples).squares);
    ScaleGradient(scope, factor, absl::MakeSpan(sum.gradient));
  }
}

// The scale of the next step.
inline float NaiveLossScale(float scale, int& finite_steps, bool finite, int growth_steps) {
  if (!finite) {
    finite_steps = 0;
    return scale > 1 ? scale / 2 : 1;
  }
  if (++finite_steps < growth_steps) return scale;
  finite_steps = 0;
  return scale * 2;
}

struct NaiveAnswer {
  uint64_t ticket = 0;
  absl::StatusOr<Frame> frame;
};

class NaivePartition {
 public:
  // clip_scopes: those in it that it is to clip; synchronous.
  NaivePartition(uint32_t id, std::vector<float> values, uint32_t replicas, bool synchronous, int staleness,
                 std::vector<ClipScope> clip_scopes = {}, double clip = 0)
      : id_(id),
        values_(std::move(values)),
        previous_(values_),
        last_(replicas, 0),
        synchronous_(synchronous),
        staleness_(staleness),
        clip_scopes_(std::move(clip_scopes)),
        clip_(clip) {}

  // Answers what can be answered now, this request or others that it set free.
  std::vector<NaiveAnswer> Handle(uint64_t ticket, const Frame& frame) {
    waiting_.emplace_back(ticket, frame);
    if (frame.kind == v1::ExchangeFrame::CLIP) {
      if (absl::Status status = AcceptFactors(frame); !status.ok()) {
        waiting_.pop_back();
        return {{ticket, status}};
      }
    }
    if (frame.kind == v1::ExchangeFrame::PUSH) {
      if (absl::Status status = Accept(frame); !status.ok()) {
        waiting_.pop_back();
        return {{ticket, status}};
      }
    }
    return Release();
  }
  // What was not complete is forgotten; values, the ones before and the sequence numbers stay.
  std::vector<NaiveAnswer> Restart() {
    sums_.clear();
    measured_.reset();
    std::vector<NaiveAnswer> answers;
    for (auto& [ticket, frame] : waiting_) answers.push_back({ticket, absl::UnavailableError("restarted")});
    waiting_.clear();
    return answers;
  }
  // Synchronous: steps that are not finite are left out. initial 0: the job has no loss scale.
  void UseLossScale(float initial, int growth_steps) {
    scale_ = previous_scale_ = initial;
    growth_steps_ = growth_steps;
  }
  float scale() const { return scale_; }
  // For gradients that are rounded: the job's seed, where the partition begins, and how they travel.
  void UseRounding(uint64_t seed, int64_t begin, GradientLayout layout) {
    seed_ = seed;
    begin_ = begin;
    layout_ = std::move(layout);
  }
  void RaiseGeneration(uint64_t generation) { generation_ = std::max(generation_, generation); }

  const std::vector<float>& values() const { return values_; }
  uint64_t version() const { return version_; }
  uint64_t last(uint32_t replica) const { return last_[replica]; }
  uint64_t generation() const { return generation_; }
  const std::map<int, v1::EpochFigures>& figures() const { return figures_; }  // of all updates, by epoch

 private:
  absl::Status Accept(const Frame& f) {
    if (f.generation.value < generation_) return absl::FailedPreconditionError("fenced");
    if (f.generation.value > generation_) return absl::UnavailableError("newer generation");
    const uint32_t first = static_cast<uint32_t>(f.replica_first.value);
    NaiveSum sum;
    sum.examples = f.examples;
    if (f.examples > 0) {
      const GradientRounding rounding = {f.dtype, seed_, f.sequence, begin_, &layout_};
      if (f.payload.size() != PackedBytes(rounding, values_.size())) return absl::InvalidArgumentError("payload size");
      sum.gradient.resize(values_.size());
      UnpackRounded(rounding, {f.payload.data(), f.payload.size()}, absl::MakeSpan(sum.gradient));
    } else if (!f.payload.empty()) {
      return absl::InvalidArgumentError("payload without examples");
    }
    if (f.figures.empty() != (id_ != 0))
      return absl::InvalidArgumentError("figures belong into pushes to the first partition");
    if (!sum.figures.ParseFromString(f.figures)) return absl::InvalidArgumentError("no figures");
    return synchronous_ ? AcceptStep(f, first, std::move(sum)) : AcceptOne(f, first, sum);
  }
  absl::Status AcceptStep(const Frame& f, uint32_t first, NaiveSum sum) {
    if (f.sequence <= version_) return absl::OkStatus();
    if (f.sequence != version_ + 1) return absl::InvalidArgumentError("a step from the future");
    if (measured_) return absl::OkStatus();
    if (f.loss_scale != scale_) return absl::InvalidArgumentError("another loss scale");
    for (const auto& [node, s] : sums_) {
      if (node.first <= first && first + f.replica_count <= node.first + node.second) return absl::OkStatus();
    }
    for (auto it = sums_.begin(); it != sums_.end();) {
      const bool inside = first <= it->first.first && it->first.first + it->first.second <= first + f.replica_count;
      it = inside ? sums_.erase(it) : std::next(it);
    }
    sums_[{first, f.replica_count}] = std::move(sum);
    uint32_t covered = 0;
    for (const auto& [node, s] : sums_) covered += node.second;
    if (covered < last_.size()) return absl::OkStatus();
    v1::EpochFigures figures;
    for (const auto& [node, s] : sums_) AddFigures(s.figures, figures);
    NaiveSum total = SumTree({f.dtype, seed_, f.sequence, begin_, &layout_}, 0, static_cast<uint32_t>(last_.size()),
                             [&](uint32_t a, uint32_t n) -> std::optional<NaiveSum> {
                               const auto it = sums_.find({a, n});
                               return it == sums_.end() ? std::nullopt : std::optional(it->second);
                             });
    total.figures = std::move(figures);
    sums_.clear();
    std::vector<NormRecord> shares;
    bool finite = true;
    for (const ClipScope& scope : clip_scopes_) {
      const NormRecord record = MeasureNorm(scope, total.gradient, total.examples);
      if (scope.whole()) {
        if (scope.id == kFiniteScope) finite = record.squares.finite();
        ScaleGradient(scope, ClipFactor(clip_, record.squares), absl::MakeSpan(total.gradient));
      } else {
        shares.push_back(record);
      }
    }
    if (shares.empty()) {
      Update(total, f.learning_rate, "", finite);
    } else {
      measured_ = Measured{std::move(total), f.learning_rate, EncodeNorms(shares), shares.size()};
    }
    return absl::OkStatus();
  }
  absl::Status AcceptFactors(const Frame& f) {
    if (f.generation.value < generation_) return absl::FailedPreconditionError("fenced");
    if (f.generation.value > generation_) return absl::UnavailableError("newer generation");
    if (f.sequence <= version_) return absl::OkStatus();
    if (f.sequence != version_ + 1) return absl::InvalidArgumentError("a step from the future");
    if (!measured_) return absl::AbortedError("no sum");
    if (f.norms_xxh3 != HashOfNorms(measured_->norms)) return absl::AbortedError("factors of other norms");
    const auto factors = DecodeFactors(f.scalars, measured_->shares);
    if (!factors.ok()) return factors.status();
    size_t i = 0;
    for (const ClipScope& scope : clip_scopes_) {
      if (!scope.whole()) ScaleGradient(scope, (*factors)[i++], absl::MakeSpan(measured_->sum.gradient));
    }
    const bool skipped = scale_ > 0 && !clip_scopes_.back().whole() && factors->back() == 0;
    const Measured measured = *std::exchange(measured_, std::nullopt);
    Update(measured.sum, measured.learning_rate, measured.norms + f.scalars, !skipped);
    return absl::OkStatus();
  }
  void Update(const NaiveSum& sum, float learning_rate, std::string norms, bool finite) {
    previous_ = values_;
    previous_scale_ = scale_;
    if (finite) NaiveApply(values_, sum, learning_rate);
    if (scale_ > 0) scale_ = NaiveLossScale(scale_, finite_steps_, finite, growth_steps_);
    norms_ = std::move(norms);
    if (id_ == 0) AddFigures(sum.figures, figures_[sum.figures.epoch()]);
    ++version_;
    for (uint64_t& last : last_) last = version_;
  }
  absl::Status AcceptOne(const Frame& f, uint32_t replica, const NaiveSum& sum) {
    if (f.replica_count != 1) return absl::InvalidArgumentError("one replica at a time");
    if (f.sequence <= last_[replica]) return absl::OkStatus();
    if (f.sequence != last_[replica] + 1) return absl::InvalidArgumentError("a gap in the sequence");
    NaiveApply(values_, sum, f.learning_rate);
    if (id_ == 0) AddFigures(sum.figures, figures_[sum.figures.epoch()]);
    ++version_;
    last_[replica] = f.sequence;
    return absl::OkStatus();
  }

  std::vector<NaiveAnswer> Release() {
    std::vector<NaiveAnswer> answers;
    for (size_t i = 0; i < waiting_.size();) {
      const auto& [ticket, frame] = waiting_[i];
      absl::StatusOr<Frame> answer = absl::CancelledError("not yet");
      if (TryAnswer(frame, answer)) {
        answers.push_back({ticket, std::move(answer)});
        waiting_.erase(waiting_.begin() + static_cast<int64_t>(i));
      } else {
        ++i;
      }
    }
    return answers;
  }
  bool TryAnswer(const Frame& f, absl::StatusOr<Frame>& answer) const {
    const uint64_t slowest = *std::min_element(last_.begin(), last_.end());
    const std::vector<float>* values = &values_;
    uint64_t version = version_;
    const bool pushes = f.kind == v1::ExchangeFrame::PUSH || f.kind == v1::ExchangeFrame::CLIP;
    if (pushes && synchronous_ && version_ < f.sequence) {
      if (f.kind == v1::ExchangeFrame::CLIP || !measured_) return false;
      Frame norms;
      norms.kind = v1::ExchangeFrame::NORMS;
      norms.partition = PartitionId(id_);
      norms.sequence = f.sequence;
      norms.scalars = measured_->norms;
      answer = std::move(norms);
      return true;
    }
    if (staleness_ > 0 && f.replica_count == 1 && slowest + static_cast<uint64_t>(staleness_) < f.sequence)
      return false;
    if (f.want_version && *f.want_version != version_) {
      if (*f.want_version > version_) return false;
      if (*f.want_version + 1 < version_) {
        answer = absl::FailedPreconditionError("gone");
        return true;
      }
      values = &previous_;
      version = version_ - 1;
    }
    Frame reply;
    reply.kind = v1::ExchangeFrame::VALUES;
    reply.job = f.job;
    reply.partition = PartitionId(id_);
    reply.version = version;
    if (pushes) reply.scalars = norms_;
    reply.loss_scale = version < version_ ? previous_scale_ : scale_;
    if (f.replica_count > 0) reply.sequence = last_[static_cast<size_t>(f.replica_first.value)];
    reply.dtype = f.reply_dtype;
    reply.payload = Buffer::Allocate(BytesOf(f.reply_dtype, values->size()));
    FromFloat(*values, f.reply_dtype, {reply.payload.mutable_data(), reply.payload.size()});
    answer = std::move(reply);
    return true;
  }

  const uint32_t id_;
  std::vector<float> values_, previous_;
  uint64_t version_ = 0, generation_ = 1;
  std::vector<uint64_t> last_;
  std::map<std::pair<uint32_t, uint32_t>, NaiveSum> sums_;
  struct Measured {
    NaiveSum sum;
    float learning_rate;
    std::string norms;
    size_t shares;
  };
  uint64_t seed_ = 0;
  int64_t begin_ = 0;
  GradientLayout layout_;
  std::optional<Measured> measured_;
  std::string norms_;  // of the last update
  std::map<int, v1::EpochFigures> figures_;
  std::vector<std::pair<uint64_t, Frame>> waiting_;
  const bool synchronous_;
  const int staleness_;
  float scale_ = 0, previous_scale_ = 0;
  int growth_steps_ = 0, finite_steps_ = 0;
  const std::vector<ClipScope> clip_scopes_;
  const double clip_;
};

}  // namespace cairn
