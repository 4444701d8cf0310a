#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/data/batch_decoder.h"
#include "common/data/block_pool.h"
#include "common/data/dataset.h"
#include "common/data/decode_window.h"
#include "common/data/limits.h"

namespace cairn {
namespace {

// Small batches are decoded several per wake-up: as many as fit in these bytes, up to a limit.
constexpr int64_t kAheadBytes = int64_t{1} << 20;
// A batch takes a few seconds at most; anything longer is a hanging file system.
constexpr absl::Duration kDecodeTimeout = absl::Minutes(5);
// Blocks that the pool keeps in addition to those decoded ahead: for batches in use by replicas.
constexpr int64_t kBlocksInUse = 4;

// How many pieces are decoded ahead for each replica.
int64_t AheadOf(const BatchSourceOptions& options, int64_t batch_bytes) {
  if (options.prefetch <= 0 || options.decode_threads <= 0) return 0;
  return std::max<int64_t>(options.prefetch, std::min(kAheadSmallMax, kAheadBytes / batch_bytes));
}

}  // namespace

// Runs the threads that decode ahead (DecodeWindow decides what), and lets replicas wait for them. A batch is the same
// whether a thread decodes it ahead or Get does: slots only save time.
class BatchSource::Impl {
 public:
  Impl(std::shared_ptr<const Dataset> dataset, const StepPlan& plan, const BatchSourceOptions& options)
      : decoder_(std::move(dataset), plan, options),
        batch_bytes_(std::max<int64_t>(1, static_cast<int64_t>(decoder_.block_bytes()))),
        ahead_(AheadOf(options, batch_bytes_)),
        pool_(std::make_shared<BlockPool>(decoder_.block_bytes(), ahead_ + kBlocksInUse)),
        trace_(options.trace),
        job_(options.job),
        thread_count_(ahead_ > 0 ? options.decode_threads : 0),
        window_(ahead_, kAheadBytesMax / batch_bytes_, plan.total_steps * plan.pieces) {
    for (int i = 0; i < thread_count_; ++i) threads_.emplace_back([this, i] { DecodeLoop(i); });
  }

  ~Impl() {
    {
      absl::MutexLock lock(&mutex_);
      stopping_ = true;
      work_.SignalAll();
    }
    for (std::thread& thread : threads_) thread.join();
  }

  absl::StatusOr<Batch> Get(int64_t step, ReplicaId replica, int32_t piece_of_step) {
    CAIRN_RETURN_IF_ERROR(decoder_.Check(step, replica, piece_of_step));
    const int64_t piece = PieceOf(step, piece_of_step);
    {
      absl::MutexLock lock(&mutex_);
      const auto [slot, hungry] = window_.Ask(replica, piece);
      if (hungry) work_.Signal();
      // On busy cores the decoding thread may not run for milliseconds; a copy from memory takes microseconds.
      if (slot != nullptr && (slot->ready || !decoder_.cheap())) {
        if (!mutex_.AwaitWithTimeout(absl::Condition(&slot->ready), kDecodeTimeout)) {
          return absl::DeadlineExceededError(
              absl::StrFormat("%s: decoding a batch took more than %s; does the file system hang?", decoder_.path(),
                              absl::FormatDuration(kDecodeTimeout)));
        }
        return std::move(slot->batch);
      }
    }
    return Decode(piece, replica, TraceTrack::kReplica, replica.value);
  }

  std::optional<Batch> Peek(int64_t step, ReplicaId replica, int32_t piece_of_step) {
    absl::MutexLock lock(&mutex_);
    const std::shared_ptr<const DecodeWindow::Slot> slot = window_.Find(replica, PieceOf(step, piece_of_step));
    if (slot == nullptr || !slot->ready || !slot->batch.ok()) return std::nullopt;
    return *slot->batch;
  }

  Element element() const { return decoder_.form().element; }

  void Forget(ReplicaId replica) {
    absl::MutexLock lock(&mutex_);
    window_.Forget(replica);
  }

 private:
  int64_t PieceOf(int64_t step, int32_t piece_of_step) const { return step * decoder_.plan().pieces + piece_of_step; }

  // track, number: whose time it takes.
  absl::StatusOr<Batch> Decode(int64_t piece, ReplicaId replica, TraceTrack track, int32_t number) const {
    TraceTimer timer(trace_, job_);
    if (timer.on()) {
      timer.span().kind = TraceKind::kDecode;
      timer.span().track = track;
      timer.span().track_number = number;
      timer.span().step = piece / decoder_.plan().pieces;
      timer.span().replica = replica.value;
      timer.span().bytes = decoder_.block_bytes();
    }
    return decoder_.Decode(piece, replica, *pool_);
  }

  void DecodeLoop(int32_t thread) {
    absl::MutexLock lock(&mutex_);
    while (!stopping_) {
      std::optional<DecodeWindow::Task> task = window_.Next();
      if (!task) {
        work_.Wait(&mutex_);
        continue;
      }
      if (thread_count_ > 1) work_.Signal();  // there may be more to do
      mutex_.Unlock();
      absl::StatusOr<Batch> batch = Decode(task->piece, task->replica, TraceTrack::kDecoder, thread);
      mutex_.Lock();
      task->slot->batch = std::move(batch);
      task->slot->ready = true;
    }
  }

  const BatchDecoder decoder_;
  const int64_t batch_bytes_;  // of the largest batch, at least 1
  const int64_t ahead_;
  const std::shared_ptr<BlockPool> pool_;
  TraceRecorder* const trace_;  // may be null
  const JobId job_;
  const int thread_count_;

  absl::Mutex mutex_;
  absl::CondVar work_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  DecodeWindow window_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;  // last: they use all of the above
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
