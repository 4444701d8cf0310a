#include "client/bench/exchange_load.h"

#include <memory>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "client/bench/bench_job.h"
#include "client/limits.h"
#include "common/tensor/buffer_pages.h"

namespace cairn {

struct ExchangeLoad::Answers {
  absl::Mutex mutex;
  int left ABSL_GUARDED_BY(mutex) = 0;
  absl::Status failed ABSL_GUARDED_BY(mutex);

  bool Complete() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) { return left == 0 || !failed.ok(); }
};

ExchangeLoad::ExchangeLoad(const std::string& ps_address, v1::HostPartitions job, int streams, bool shared_memory,
                           const SharedArena* arena)
    : job_(std::move(job)),
      gradient_(AllocateInSharedPages(static_cast<size_t>(ParameterBytes(job_)))),
      connection_(ps_address, {.outstanding_bytes_max = static_cast<size_t>(kBenchBytesMax) * 2,
                               .streams = streams,
                               .shared_memory = shared_memory,
                               .arena = arena}) {
  for (float& g : gradient_.mutable_floats()) g = 0.001f;
}

ExchangeLoad::~ExchangeLoad() = default;

absl::StatusOr<absl::Duration> ExchangeLoad::Round(absl::Duration timeout) {
  ++sequence_;
  const auto answers = std::make_shared<Answers>();
  {
    absl::MutexLock lock(&answers->mutex);
    answers->left = job_.partitions_size();
  }
  const absl::Time start = absl::Now();
  for (const v1::PartitionRange& range : job_.partitions()) {
    Frame push;
    push.kind = v1::ExchangeFrame::PUSH;
    push.job = JobId(job_.job_id());
    push.generation = Generation(job_.generation());
    push.partition = PartitionId(range.partition());
    push.replica_count = 1;
    push.sequence = sequence_;
    push.examples = 1;
    push.learning_rate = 0.01f;
    push.dtype = push.reply_dtype = v1::FLOAT32;
    push.payload = gradient_.Slice(range.begin() * 4, (range.end() - range.begin()) * 4);
    connection_.Send(std::move(push), [answers, want = sequence_](absl::StatusOr<Frame> answer) {
      absl::Status status = answer.status();
      if (status.ok() && answer->version != want) {
        status =
            absl::InternalError(absl::StrFormat("partition %d is at version %d, not %d; does somebody else push to it?",
                                                answer->partition.value, answer->version, want));
      }
      absl::MutexLock lock(&answers->mutex);
      --answers->left;
      answers->failed.Update(status);
    });
  }
  absl::MutexLock lock(&answers->mutex);
  if (!answers->mutex.AwaitWithTimeout(absl::Condition(answers.get(), &Answers::Complete), timeout)) {
    return absl::DeadlineExceededError(
        absl::StrFormat("the ps did not answer %d pushes within %s", answers->left, absl::FormatDuration(timeout)));
  }
  CAIRN_RETURN_IF_ERROR(answers->failed);
  return absl::Now() - start;
}

}  // namespace cairn
