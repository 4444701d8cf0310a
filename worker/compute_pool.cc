#include "worker/compute_pool.h"

#include <pthread.h>

#include <algorithm>
#include <string>
#include <utility>

#include "worker/penalized_program.h"

namespace cairn {
namespace {

constexpr size_t kProgramsMax = 2;
// Training tasks in a row of one slot while evaluation waits.
constexpr int kTrainingRun = 4;

}  // namespace

absl::StatusOr<std::shared_ptr<const JobModel>> MakeJobModel(const v1::JobSpec& spec) {
  if (spec.replicas() < 1 || spec.batch_size() < 1) {
    return absl::InvalidArgumentError("job: replicas or batch_size is not filled in");
  }
  CAIRN_ASSIGN_OR_RETURN(Graph graph, Graph::Build(spec.model()));
  auto model = std::make_shared<JobModel>();
  model->spec = spec;
  model->graph = std::make_shared<const Graph>(std::move(graph));
  model->options.batch_max = (spec.batch_size() + spec.replicas() - 1) / spec.replicas();
  model->options.threads = std::max(1, spec.threads_per_replica());
  if (spec.compute_dtype() != v1::DATA_TYPE_UNSPECIFIED) model->options.compute = spec.compute_dtype();
  if (spec.has_deterministic()) model->options.deterministic = spec.deterministic();
  model->options.allow_tf32 = spec.allow_tf32();
  model->options.loss = spec.loss();
  model->options.metrics.assign(spec.metrics().begin(), spec.metrics().end());
  model->options.class_weights.assign(spec.class_weight().begin(), spec.class_weight().end());
  return model;
}

absl::StatusOr<Program*> ProgramCache::Get(const std::shared_ptr<const JobModel>& model) {
  DropGone();
  const auto it =
      std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.model.lock() == model; });
  if (it != entries_.end()) {
    std::rotate(it, it + 1, entries_.end());
    return entries_.back().program.get();
  }
  if (entries_.size() >= kProgramsMax) entries_.erase(entries_.begin());
  CAIRN_ASSIGN_OR_RETURN(std::unique_ptr<Program> program, backend_.Compile(model->graph, model->options));
  program = WithPenalty(std::move(program), *model->graph);
  entries_.push_back({model, std::move(program)});
  return entries_.back().program.get();
}

void ProgramCache::DropGone() {
  std::erase_if(entries_, [](const Entry& e) { return e.model.expired(); });
}

ComputePool::ComputePool(int slots, Backend& backend) : slots_(slots), backend_(backend) {
  for (int i = 0; i < slots; ++i) {
    threads_.emplace_back([this, i] {
      pthread_setname_np(pthread_self(), ("slot-" + std::to_string(i)).c_str());
      Loop(i);
    });
  }
}

ComputePool::~ComputePool() { Stop(); }

void ComputePool::Stop() {
  std::deque<Task> dropped[2];  // destroyed without the lock
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    dropped[0].swap(training_);
    dropped[1].swap(evaluation_);
    wake_.SignalAll();
  }
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

void ComputePool::Submit(Priority priority, Task task) {
  absl::MutexLock lock(&mutex_);
  if (stopping_) return;
  (priority == Priority::kTraining ? training_ : evaluation_).push_back(std::move(task));
  wake_.Signal();
}

void ComputePool::Purge() {
  absl::MutexLock lock(&mutex_);
  ++purge_;
  wake_.SignalAll();
}

bool ComputePool::Take(int& training_run, Task& task) {
  const bool turn_of_evaluation = training_.empty() || training_run >= kTrainingRun;
  std::deque<Task>& queue = turn_of_evaluation && !evaluation_.empty() ? evaluation_ : training_;
  if (queue.empty()) return false;
  training_run = &queue == &training_ ? std::min(training_run + 1, kTrainingRun) : 0;
  task = std::move(queue.front());
  queue.pop_front();
  return true;
}

void ComputePool::Loop(int /*slot*/) {
  ProgramCache cache(backend_);
  int training_run = 0;
  uint64_t purged = 0;
  while (true) {
    Task task;
    bool purge = false;
    {
      absl::MutexLock lock(&mutex_);
      while (!stopping_ && purged == purge_ && training_.empty() && evaluation_.empty()) wake_.Wait(&mutex_);
      if (stopping_) return;
      purge = std::exchange(purged, purge_) != purge_;
      Take(training_run, task);
    }
    if (purge) cache.DropGone();
    if (task) task(cache);
  }
}

}  // namespace cairn
