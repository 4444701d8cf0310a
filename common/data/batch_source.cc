#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/random.h"
#include "common/data/augment.h"
#include "common/data/dataset.h"
#include "common/data/input_target.h"
#include "common/data/limits.h"

namespace cairn {
namespace {

// Small batches are decoded several per wake-up: as many as fit in these bytes, up to a limit.
constexpr int64_t kAheadBytes = int64_t{1} << 20;
// A batch takes a few seconds at most; anything longer is a hanging file system.
constexpr absl::Duration kDecodeTimeout = absl::Minutes(5);

// Recycles the memory of batches when their last reference is dropped: fresh memory of this size would cause page
// faults each time. Thread-safe. Blocks may outlive the pool's owner.
class BlockPool : public std::enable_shared_from_this<BlockPool> {
 public:
  BlockPool(size_t block_bytes, size_t kept_max) : block_bytes_(block_bytes), kept_max_(kept_max) {}

  // Returns a block with arbitrary contents.
  Buffer Take() {
    Buffer block;
    {
      absl::MutexLock lock(&mutex_);
      if (!kept_.empty()) {
        block = std::move(kept_.back());
        kept_.pop_back();
      }
    }
    if (block.empty()) block = Buffer::Allocate(block_bytes_);
    const uint8_t* data = block.data();
    // The deleter owns the block and returns it to the pool instead of freeing it.
    std::shared_ptr<const void> owner(data, [pool = shared_from_this(), block = std::move(block)](const void*) mutable {
      pool->GiveBack(std::move(block));
    });
    return Buffer::Wrap(std::move(owner), data, block_bytes_);
  }

 private:
  void GiveBack(Buffer block) {
    absl::MutexLock lock(&mutex_);
    if (kept_.size() < kept_max_) kept_.push_back(std::move(block));
  }

  const size_t block_bytes_, kept_max_;
  absl::Mutex mutex_;
  std::vector<Buffer> kept_ ABSL_GUARDED_BY(mutex_);
};

size_t RoundUp(size_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

// With gradient accumulation, a "step" in this class is a piece, numbered across all steps. Invariants:
//   1. A replica's slots are for steps in (last_step, last_step + ahead_]; no two threads decode the same step.
//   2. slots_ <= slots_max_.
//   3. A batch is a pure function of (dataset, plan, options, step, replica): slots only save time.
class BatchSource::Impl {
 public:
  Impl(std::shared_ptr<const Dataset> dataset, const StepPlan& plan, const BatchSourceOptions& options)
      : dataset_(std::move(dataset)),
        plan_(plan),
        shuffle_(options.shuffle),
        augmenter_(options.augmenter),
        element_(augmenter_ == nullptr ? dataset_->element() : Element::kFloat),
        key_(StreamKey(options.seed, RandomStream::kShuffle)),
        examples_max_(plan.piece_max()),
        end_(plan.total_steps * plan.pieces),
        example_size_(augmenter_ == nullptr ? dataset_->example_size() : augmenter_->input_size()),
        input_target_(options.input_target),
        input_target_place_(options.input_target_place),
        label_size_(input_target_ && input_target_place_ < 0 ? example_size_ : dataset_->label_size()),
        input_bytes_(RoundUp(examples_max_ * example_size_ * SizeOf(element_))),
        label_bytes_(RoundUp(examples_max_ * (label_size_ + (dataset_->weighted() ? 1 : 0)) * sizeof(float))) {
    const int64_t bytes = std::max<int64_t>(1, input_bytes_ + label_bytes_);
    if (options.prefetch > 0 && options.decode_threads > 0) {
      ahead_ = std::max<int64_t>(options.prefetch, std::min(kAheadSmallMax, kAheadBytes / bytes));
    }
    slots_max_ = kAheadBytesMax / bytes;
    pool_ = std::make_shared<BlockPool>(input_bytes_ + label_bytes_, ahead_ + 4);
    for (int i = 0; ahead_ > 0 && i < options.decode_threads; ++i) threads_.emplace_back([this] { DecodeLoop(); });
  }

  ~Impl() {
    {
      absl::MutexLock lock(&mutex_);
      stopping_ = true;
      work_.SignalAll();
    }
    for (std::thread& thread : threads_) thread.join();
  }

  absl::StatusOr<Batch> Get(int64_t of_step, ReplicaId replica, int32_t piece) {
    CAIRN_RETURN_IF_ERROR(Check(of_step, replica, piece));
    const int64_t step = of_step * plan_.pieces + piece;
    std::shared_ptr<Slot> slot;
    {
      absl::MutexLock lock(&mutex_);
      Replica& r = replicas_[replica.value];
      if (const auto it = r.slots.find(step); it != r.slots.end()) slot = it->second;
      MoveWindow(step, &r);
      // On busy cores the decoding thread may not run for milliseconds; a copy from memory takes microseconds.
      const bool cheap = dataset_->in_memory() && augmenter_ == nullptr;
      if (slot != nullptr && (slot->ready || !cheap)) {
        if (!mutex_.AwaitWithTimeout(absl::Condition(&slot->ready), kDecodeTimeout)) {
          return absl::DeadlineExceededError(
              absl::StrFormat("%s: decoding a batch took more than %s; does the file "
                              "system hang?",
                              dataset_->info().path(), absl::FormatDuration(kDecodeTimeout)));
        }
        return std::move(slot->batch);
      }
    }
    return Decode(step, replica);
  }

  std::optional<Batch> Peek(int64_t of_step, ReplicaId replica, int32_t piece) {
    absl::MutexLock lock(&mutex_);
    const auto of_replica = replicas_.find(replica.value);
    if (of_replica == replicas_.end()) return std::nullopt;
    const auto slot = of_replica->second.slots.find(of_step * plan_.pieces + piece);
    if (slot == of_replica->second.slots.end() || !slot->second->ready || !slot->second->batch.ok())
      return std::nullopt;
    return *slot->second->batch;
  }

  Element element() const { return element_; }

  void Forget(ReplicaId replica) {
    absl::MutexLock lock(&mutex_);
    const auto it = replicas_.find(replica.value);
    if (it == replicas_.end()) return;
    slots_ -= static_cast<int64_t>(it->second.slots.size());
    replicas_.erase(it);
  }

 private:
  // Filled by the thread that inserted it into the map, even if it has been removed from the map meanwhile.
  struct Slot {
    bool ready = false;  // guarded by mutex_; once true, `batch` is final
    absl::StatusOr<Batch> batch = Batch{};
  };
  struct Replica {
    int64_t last_step = -1;  // of the last Get
    bool hungry = false;     // at the last Get, less than half of the batches to be decoded ahead was there
    std::map<int64_t, std::shared_ptr<Slot>> slots;
  };
  struct Task {
    int64_t step;
    ReplicaId replica;
    std::shared_ptr<Slot> slot;
  };

  // The coordinator may have counted the examples on another machine.
  absl::Status Check(int64_t step, ReplicaId replica, int32_t piece) const {
    if (plan_.examples != dataset_->size(v1::TRAIN)) {
      return absl::FailedPreconditionError(
          absl::StrFormat("%s: has %d training examples on this worker, but the job was planned with %d; give every "
                          "worker the same data",
                          dataset_->info().path(), dataset_->size(v1::TRAIN), plan_.examples));
    }
    if (step < 0 || step >= plan_.total_steps || replica.value < 0 || replica.value >= plan_.replicas || piece < 0 ||
        piece >= plan_.pieces) {
      return absl::OutOfRangeError(absl::StrFormat("step %d of replica %d; the job has %d steps and %d replicas", step,
                                                   replica.value, plan_.total_steps, plan_.replicas));
    }
    return absl::OkStatus();
  }

  void MoveWindow(int64_t step, Replica* r) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    r->last_step = step;
    for (auto it = r->slots.begin(); it != r->slots.end();) {
      if (it->first > step && it->first <= step + ahead_) {
        ++it;
      } else {
        it = r->slots.erase(it);
        --slots_;
      }
    }
    const int64_t want = std::min(ahead_, end_ - 1 - step);
    if (static_cast<int64_t>(r->slots.size()) * 2 <= want && want > 0) {
      r->hungry = true;  // set it even if it is set already: the limit on all slots may have stopped the decoding
      work_.Signal();
    }
  }

  // The step that is needed soonest by its replica.
  std::optional<Task> NextTask() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (slots_ >= slots_max_) return std::nullopt;
    Replica* best = nullptr;
    int32_t best_id = 0;
    int64_t best_distance = ahead_ + 1;
    for (auto& [id, r] : replicas_) {
      if (!r.hungry) continue;
      int64_t distance = 1;
      while (distance <= ahead_ && r.slots.contains(r.last_step + distance)) ++distance;
      if (distance > ahead_ || r.last_step + distance >= end_) {
        r.hungry = false;
      } else if (distance < best_distance) {
        best = &r;
        best_id = id;
        best_distance = distance;
      }
    }
    if (best == nullptr) return std::nullopt;
    Task task{best->last_step + best_distance, ReplicaId(best_id), std::make_shared<Slot>()};
    best->slots.emplace(task.step, task.slot);
    ++slots_;
    return task;
  }

  void DecodeLoop() {
    absl::MutexLock lock(&mutex_);
    while (!stopping_) {
      std::optional<Task> task = NextTask();
      if (!task) {
        work_.Wait(&mutex_);
        continue;
      }
      if (threads_.size() > 1) work_.Signal();  // there may be more to do
      mutex_.Unlock();
      absl::StatusOr<Batch> batch = Decode(task->step, task->replica);
      mutex_.Lock();
      task->slot->batch = std::move(batch);
      task->slot->ready = true;
    }
  }

  absl::StatusOr<Batch> Decode(int64_t step, ReplicaId replica) const {
    const PlaceRange places = plan_.Piece(step / plan_.pieces, replica, static_cast<int32_t>(step % plan_.pieces));
    Batch batch;
    batch.examples = places.size();
    batch.label_size = label_size_;
    if (batch.examples == 0) return batch;
    const Buffer block = pool_->Take();
    const bool weights = dataset_->weighted();
    const size_t input = example_size_ * SizeOf(element_), label = label_size_;
    batch.element = element_;
    batch.inputs = block.Slice(0, batch.examples * input);
    batch.labels = block.Slice(input_bytes_, batch.examples * (label + (weights ? 1 : 0)) * sizeof(float));
    uint8_t* inputs = batch.inputs.mutable_data();
    float* labels = batch.labels.mutable_floats().data();
    const uint64_t pass = static_cast<uint64_t>(plan_.PassOf(step / plan_.pieces));
    const Permutation order(key_, pass, plan_.examples);
    const bool alone = input_target_ && input_target_place_ < 0;
    std::vector<float> own_label(static_cast<size_t>(alone ? dataset_->label_size() : 0));
    std::vector<float> larger;  // used for an example that augmentation makes smaller
    if (dataset_->example_size() > example_size_) larger.resize(static_cast<size_t>(dataset_->example_size()));
    for (int64_t i = 0; i < batch.examples; ++i) {
      const int64_t place = places.begin + i;
      const int64_t example = shuffle_ ? static_cast<int64_t>(order(place)) : place;
      uint8_t* const to = inputs + i * input;
      uint8_t* const read = larger.empty() ? to : reinterpret_cast<uint8_t*>(larger.data());
      float* const of_label = alone ? own_label.data() : labels + i * label;
      CAIRN_RETURN_IF_ERROR(dataset_->ReadAs(element_, v1::TRAIN, example, read, of_label));
      if (weights) labels[batch.examples * label + i] = dataset_->Weight(v1::TRAIN, example);
      if (augmenter_ != nullptr)
        augmenter_->Apply(pass, static_cast<uint64_t>(example), reinterpret_cast<float*>(read));
      if (read != to) std::memcpy(to, read, input);
      if (!input_target_) continue;
      float* const target = labels + i * label + (alone ? 0 : input_target_place_);
      TakeInput(element_, to, *input_target_, absl::MakeSpan(target, static_cast<size_t>(example_size_)));
    }
    return batch;
  }

  const std::shared_ptr<const Dataset> dataset_;
  const StepPlan plan_;
  const bool shuffle_;
  const std::shared_ptr<const Augmenter> augmenter_;
  const Element element_;
  const std::array<uint32_t, 2> key_;
  const int64_t examples_max_;  // in one batch of a replica
  const int64_t end_;           // number of batches of a replica
  const int64_t example_size_;  // in a batch, in numbers
  const std::optional<InputScale> input_target_;
  const int64_t input_target_place_;
  const int64_t label_size_;
  const size_t input_bytes_, label_bytes_;
  int64_t ahead_ = 0;      // how many steps are decoded ahead for each replica
  int64_t slots_max_ = 0;  // how many batches are decoded ahead in total
  std::shared_ptr<BlockPool> pool_;

  absl::Mutex mutex_;
  absl::CondVar work_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t slots_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<int32_t, Replica> replicas_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;
};

BatchSource::BatchSource(std::shared_ptr<const Dataset> dataset, const StepPlan& plan,
                         const BatchSourceOptions& options)
    : impl_(std::make_unique<Impl>(std::move(dataset), plan, options)) {}
BatchSource::~BatchSource() = default;
Element BatchSource::element() const { return impl_->element(); }
absl::StatusOr<Batch> BatchSource::Get(int64_t step, ReplicaId replica, int32_t piece) {
  return impl_->Get(step, replica, piece);
}
std::optional<Batch> BatchSource::Peek(int64_t step, ReplicaId replica, int32_t piece) {
  return impl_->Peek(step, replica, piece);
}
void BatchSource::Forget(ReplicaId replica) { impl_->Forget(replica); }

}  // namespace cairn
