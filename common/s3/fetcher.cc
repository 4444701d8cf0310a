#include "common/s3/fetcher.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/s3/limits.h"

namespace cairn {
namespace {

// Threads take parts from it in the order of the objects. Thread-safe.
class Fetch {
 public:
  explicit Fetch(const FetchOrder& order) : order_(order) {}

  absl::Status Run() {
    std::vector<std::thread> threads;
    const size_t count = std::min<size_t>(kS3RequestsMax, PartsAtMost());
    for (size_t i = 0; i < count; ++i) threads.emplace_back([this] { Work(); });
    for (std::thread& thread : threads) thread.join();
    const absl::Status kept = KeepDone(/*all=*/true);  // also after an error
    absl::MutexLock lock(&mutex_);
    return status_.ok() ? kept : status_;
  }

 private:
  struct File {
    size_t index = 0;
    FileDescriptor descriptor;
    uint64_t parts_left = 0;
  };
  struct Part {
    std::shared_ptr<File> file;
    uint64_t begin = 0, bytes = 0;  // 0: of an object without bytes
  };

  const S3Object& ObjectOf(size_t index) const { return (*order_.objects)[index]; }
  size_t PartsAtMost() const {
    return std::max<uint64_t>(order_.set->missing().size(), order_.set->missing_bytes() / kS3PartBytesMax);
  }

  void Work() {
    while (const std::optional<Part> part = Next()) {
      absl::Status status = Take(*part);
      if (status.ok()) status = KeepDone(/*all=*/false);
      if (!status.ok()) Fail(std::move(status));
    }
  }

  void Fail(absl::Status status) {
    absl::MutexLock lock(&mutex_);
    if (status_.ok()) status_ = std::move(status);
  }

  std::optional<Part> Next() {
    absl::MutexLock lock(&mutex_);
    if (!status_.ok()) return std::nullopt;
    if (current_ == nullptr) {
      const std::vector<size_t>& missing = order_.set->missing();
      if (next_ == missing.size()) return std::nullopt;
      current_ = std::make_shared<File>();
      current_->index = missing[next_++];
      absl::StatusOr<FileDescriptor> created = order_.set->Create(current_->index);
      if (!created.ok()) {
        status_ = created.status();
        return std::nullopt;
      }
      current_->descriptor = *std::move(created);
      const uint64_t bytes = ObjectOf(current_->index).bytes;
      current_->parts_left = std::max<uint64_t>(1, (bytes + kS3PartBytesMax - 1) / kS3PartBytesMax);
      begin_ = 0;
    }
    const uint64_t size = ObjectOf(current_->index).bytes;
    Part part{current_, begin_, std::min(kS3PartBytesMax, size - begin_)};
    begin_ += part.bytes;
    if (begin_ == size) current_.reset();
    return part;
  }

  absl::Status Take(const Part& part) {
    const S3Object& object = ObjectOf(part.file->index);
    if (part.bytes > 0) {
      CAIRN_ASSIGN_OR_RETURN(const std::string bytes, order_.store->Get(order_.bucket, object, part.begin, part.bytes));
      CAIRN_RETURN_IF_ERROR(Write(part, bytes));
    }
    order_.on_bytes(part.bytes);
    absl::MutexLock lock(&mutex_);
    if (--part.file->parts_left > 0) return absl::OkStatus();
    part.file->descriptor = FileDescriptor();
    done_.push_back(part.file->index);
    done_bytes_ += object.bytes;
    return absl::OkStatus();
  }

  absl::Status Write(const Part& part, const std::string& bytes) const {
    for (size_t done = 0; done < bytes.size();) {
      const ssize_t n = ::pwrite(part.file->descriptor.get(), bytes.data() + done, bytes.size() - done,
                                 static_cast<off_t>(part.begin + done));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) {
        return FileError(order_.set->files_folder(), "the cache cannot be written (see --s3-cache)",
                         n == 0 ? ENOSPC : errno);
      }
      done += static_cast<size_t>(n);
    }
    return absl::OkStatus();
  }

  // One thread at a time.
  absl::Status KeepDone(bool all) {
    absl::MutexLock keeping(&keeping_);
    std::vector<size_t> done;
    {
      absl::MutexLock lock(&mutex_);
      if (!all && done_.size() < kS3GroupObjectsMax && done_bytes_ < kS3GroupBytesMax) return absl::OkStatus();
      done.swap(done_);
      done_bytes_ = 0;
    }
    return order_.set->Keep(done);
  }

  const FetchOrder& order_;
  absl::Mutex keeping_;  // taken before mutex_
  absl::Mutex mutex_;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  size_t next_ ABSL_GUARDED_BY(mutex_) = 0;                // of the missing files
  std::shared_ptr<File> current_ ABSL_GUARDED_BY(mutex_);  // of which parts are left to take; null: none
  uint64_t begin_ ABSL_GUARDED_BY(mutex_) = 0;             // of its next part
  std::vector<size_t> done_ ABSL_GUARDED_BY(mutex_);
  uint64_t done_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace

absl::Status FetchMissing(const FetchOrder& order) { return Fetch(order).Run(); }

}  // namespace cairn
