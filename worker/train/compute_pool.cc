#include "worker/train/compute_pool.h"

#include <pthread.h>

#include <algorithm>
#include <string>
#include <utility>

#include "common/model/job_outputs.h"
#include "common/model/mixed_labels.h"
#include "common/model/text_inputs.h"
#include "worker/limits.h"
#include "worker/train/penalized_program.h"
#include "worker/train/spectral_program.h"

namespace cairn {
namespace {

// Training tasks in a row of one slot while evaluation waits.
constexpr int kTrainingRun = 4;

}  // namespace

absl::StatusOr<std::shared_ptr<const JobModel>> MakeJobModel(const v1::JobSpec& spec) {
  if (spec.replicas() < 1 || spec.batch_size() < 1) {
    return absl::InvalidArgumentError("job: replicas or batch_size is not filled in");
  }
  CAIRN_ASSIGN_OR_RETURN(Graph graph, Graph::Build(spec.model()));
  std::vector<JoinedOutput> outputs;
  if (TrainsOutputs(spec)) {
    outputs = JoinedOutputsOf(graph, spec);
    CAIRN_ASSIGN_OR_RETURN(graph, BuildJoined(spec.model(), outputs));
  }
  auto model = std::make_shared<JobModel>();
  model->spec = spec;
  model->given = std::make_shared<const Graph>(std::move(graph));
  model->graph = HasTexts(*model->given) ? std::make_shared<const Graph>(ComputedGraph(*model->given)) : model->given;
  model->options.batch_max = (spec.batch_size() + spec.replicas() - 1) / spec.replicas();
  model->options.threads = std::max(1, spec.threads_per_replica());
  if (spec.compute_dtype() != v1::DATA_TYPE_UNSPECIFIED) model->options.compute = spec.compute_dtype();
  if (spec.has_deterministic()) model->options.deterministic = spec.deterministic();
  model->options.allow_tf32 = spec.allow_tf32();
  model->options.loss = ComputedLoss(spec);
  model->options.metrics = FiguresOfJob(spec);
  model->options.outputs = std::move(outputs);
  model->options.class_weights.assign(spec.class_weight().begin(), spec.class_weight().end());
  return model;
}

std::shared_ptr<const JobModel> WithInputs(const JobModel& model, Element inputs) {
  auto with = std::make_shared<JobModel>(model);
  with->options.inputs = inputs;
  return with;
}

absl::StatusOr<Program*> ProgramCache::Get(const std::shared_ptr<const JobModel>& model) {
  DropGone();
  const auto it =
      std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.model.lock() == model; });
  if (it != entries_.end()) {
    std::rotate(it, it + 1, entries_.end());
    return entries_.back().program.get();
  }
  if (entries_.size() >= kProgramsPerSlotMax) entries_.erase(entries_.begin());
  CAIRN_ASSIGN_OR_RETURN(std::unique_ptr<Program> program, backend_.Compile(model->graph, model->options));
  program = WithSpectralNormalization(WithPenalty(std::move(program), *model->graph), *model->graph);
  entries_.push_back({model, std::move(program)});
  return entries_.back().program.get();
}

void ProgramCache::DropGone() {
  std::erase_if(entries_, [](const Entry& e) { return e.model.expired(); });
}

ComputePool::ComputePool(int slots, Backend& backend)
    : slots_(slots), backend_(backend), states_(static_cast<size_t>(slots)) {
  for (int i = 0; i < slots; ++i) {
    threads_.emplace_back([this, i] {
      pthread_setname_np(pthread_self(), ("slot-" + std::to_string(i)).c_str());
      Loop(i);
    });
  }
}

ComputePool::~ComputePool() { Stop(); }

void ComputePool::Stop() {
  std::vector<Task> dropped;  // destroyed without the lock
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    for (Queue* queue : {&training_, &evaluation_}) {
      for (Queued& queued : *queue) dropped.push_back(std::move(queued.task));
      queue->clear();
    }
    for (Slot& slot : states_) {
      dropped.push_back(std::exchange(slot.next, nullptr));
      slot.wake.Signal();
    }
  }
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

void ComputePool::Submit(Priority priority, Task task, int home) {
  absl::MutexLock lock(&mutex_);
  if (stopping_) return;
  const int slot = SlotFor(home);
  if (slot == kNoSlot) {
    (priority == Priority::kTraining ? training_ : evaluation_).push_back({std::move(task), home});
    return;
  }
  Slot& taker = states_[static_cast<size_t>(slot)];
  taker.next = std::move(task);
  taker.next_priority = priority;
  taker.wake.Signal();
}

// Who takes a task at once: its home, else the first that is idle; kNoSlot: nobody.
int ComputePool::SlotFor(int home) const {
  const auto open = [this](int i, Slot::State least) ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    const Slot& slot = states_[static_cast<size_t>(i)];
    return (slot.state == Slot::State::kIdle || slot.state == least) && !slot.next;
  };
  if (home >= 0 && home < slots_ && open(home, Slot::State::kEnding)) return home;
  for (int i = 0; i < slots_; ++i) {
    if (open(i, Slot::State::kIdle)) return i;
  }
  return kNoSlot;
}

void ComputePool::Ending(int slot) {
  absl::MutexLock lock(&mutex_);
  states_[static_cast<size_t>(slot)].state = Slot::State::kEnding;
}

void ComputePool::Purge() {
  absl::MutexLock lock(&mutex_);
  ++purge_;
  for (Slot& slot : states_) slot.wake.Signal();
}

ComputePool::Task ComputePool::Take(int slot) {
  Slot& taker = states_[static_cast<size_t>(slot)];
  Task task;
  Priority priority = taker.next_priority;
  if (taker.next) {
    task = std::exchange(taker.next, nullptr);
  } else {
    const bool turn_of_evaluation = training_.empty() || taker.training_run >= kTrainingRun;
    priority = turn_of_evaluation && !evaluation_.empty() ? Priority::kEvaluation : Priority::kTraining;
    task = TakeFrom(priority == Priority::kTraining ? training_ : evaluation_, slot);
  }
  if (task) taker.training_run = priority == Priority::kTraining ? std::min(taker.training_run + 1, kTrainingRun) : 0;
  return task;
}

ComputePool::Task ComputePool::TakeFrom(Queue& queue, int slot) {
  if (queue.empty()) return nullptr;
  auto taken = std::find_if(queue.begin(), queue.end(), [slot](const Queued& queued) { return queued.home == slot; });
  if (taken == queue.end() || queue.front().passed >= kPassesMax) taken = queue.begin();
  for (auto before = queue.begin(); before != taken; ++before) ++before->passed;
  Task task = std::move(taken->task);
  queue.erase(taken);
  return task;
}

void ComputePool::Loop(int slot) {
  ProgramCache cache(slot, backend_);
  uint64_t purged = 0;
  while (true) {
    Task task;
    bool purge = false;
    {
      absl::MutexLock lock(&mutex_);
      Slot& own = states_[static_cast<size_t>(slot)];
      while (!stopping_) {
        purge = std::exchange(purged, purge_) != purge_;
        task = Take(slot);
        if (task || purge) break;
        own.state = Slot::State::kIdle;
        own.wake.Wait(&mutex_);
      }
      if (stopping_) return;
      own.state = Slot::State::kBusy;
    }
    if (purge) cache.DropGone();
    if (task) task(cache);
  }
}

}  // namespace cairn
