#include "worker/core/replica_context.h"

#include <algorithm>
#include <utility>

#include "common/model/metric_sums.h"
#include "common/tensor/buffer_pages.h"

namespace cairn::replica {

void BufferPool::Resize(size_t bytes, size_t spares_max) {
  if (bytes != bytes_) spares_.clear();
  bytes_ = bytes;
  spares_max_ = spares_max;
  if (spares_.size() > spares_max_) spares_.resize(spares_max_);
}

Buffer BufferPool::Acquire() {
  for (size_t i = spares_.size(); i-- > 0;) {
    if (!spares_[i].unique()) continue;  // a connection or stale work still reads it
    Buffer buffer = std::move(spares_[i]);
    spares_.erase(spares_.begin() + static_cast<int64_t>(i));
    return buffer;
  }
  return private_ ? Buffer::Allocate(bytes_) : AllocateInSharedPages(bytes_);
}

void BufferPool::Release(Buffer buffer) {
  if (buffer.size() != bytes_ || bytes_ == 0) return;
  if (spares_.size() >= spares_max_) return;
  spares_.push_back(std::move(buffer));
}

Context::Context(const ReplicaCoreOptions& o, const Numbers& last)
    : options(o),
      numbers(last),
      backoff(options),
      requests(assignment, numbers, backoff, output),
      frames(job, schedule, assignment),
      checkpoints(options, schedule, assignment, numbers, backoff, output),
      reports(options.report_interval, options.finished_interval) {}

std::shared_ptr<const Joint> Context::MakeJoint(const TreeNode& node, int64_t step, v1::DataType type) {
  if (!options.joins || step >= schedule.plan.total_steps || IsBlockInt(type))
    return nullptr;  // blocks are made on the host
  auto joint = std::make_shared<Joint>();
  for (uint32_t replica = node.first; replica < node.end(); ++replica) {
    joint->leaves.push_back(schedule.plan.Places(step, ReplicaId(static_cast<int32_t>(replica))).size() > 0);
  }
  const auto computing = std::count(joint->leaves.begin(), joint->leaves.end(), true);
  if (computing == 0 || (computing == 1 && schedule.plan.pieces == 1 && type == v1::FLOAT32)) return nullptr;
  joint->number = ++numbers.joints;
  joint->node = node;
  joint->type = type;
  joint->layout = job.layout;
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
      figures.set_epoch(static_cast<int32_t>(schedule.plan.EpochOf(step)));
      *figures.mutable_train() = ToMetricSums(sums(subtree.first - node.first));
      figures.set_replica_steps(1);
    }
    return figures;
  };
  return of(node);
}

Context::Evaluation Context::EvaluationBefore(int64_t step) const {
  Evaluation evaluation;
  if (job.validation_examples == 0 || step == 0 || job.spec.validation_by() == v1::BY_EVALUATOR) return evaluation;
  evaluation.by_steps = job.spec.validation_freq_steps() > 0 && step % job.spec.validation_freq_steps() == 0;
  if (step % schedule.plan.steps_per_epoch != 0) return evaluation;
  const int64_t epochs_done = step / schedule.plan.steps_per_epoch;
  const int64_t every = std::max(job.spec.validation_freq(), 1);
  if (epochs_done % every == 0 || step == schedule.plan.total_steps)
    evaluation.epoch = static_cast<int32_t>(epochs_done - 1);
  return evaluation;
}

void Context::AddValidation(ReplicaId replica, int64_t step, const BatchSums& sums) {
  const Evaluation evaluation = EvaluationBefore(step);
  if (evaluation.epoch) reports.AddValidation(replica, *evaluation.epoch, sums);
  if (evaluation.by_steps) reports.AddStepValidation(replica, step, sums);
}

void Context::Finish(ReplicaId replica) {
  if (checkpoints.Owed()) {
    finished_later.push_back(replica);
  } else {
    reports.Finish(replica, output.now());
  }
}

void Context::FinishLater() {
  if (checkpoints.Owed()) return;
  const std::vector<int32_t>& own = assignment.replicas;
  for (ReplicaId replica : std::exchange(finished_later, {})) {
    if (std::binary_search(own.begin(), own.end(), replica.value)) reports.Finish(replica, output.now());
  }
}

uint64_t Context::StartEvaluation(ReplicaId replica, int64_t step, const Buffer& values, bool by_layer) {
  if (!EvaluationBefore(step)) return 0;
  const PlaceRange places = Share(job.validation_examples, replica.value, schedule.plan.replicas);
  if (places.size() == 0) {
    AddValidation(replica, step, BatchSums{0, 0, std::vector<double>(static_cast<size_t>(MetricSumCount(job.spec)))});
    return 0;
  }
  const uint64_t work = NewWork();
  output.Emit(Evaluate{work, replica, step, places, values, by_layer});
  return work;
}

}  // namespace cairn::replica
