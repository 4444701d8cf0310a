#include "worker/backend/cudnn/mailbox.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace cairn::cudnn {

void Mailbox::Reset(int count) {
  absl::MutexLock lock(&mutex_);
  arrived_.assign(static_cast<size_t>(count), false);
}

void Mailbox::Put(int signal) {
  absl::MutexLock lock(&mutex_);
  if (signal < static_cast<int>(arrived_.size())) arrived_[static_cast<size_t>(signal)] = true;
}

uint64_t Mailbox::AskDrain() {
  absl::MutexLock lock(&mutex_);
  return ++drains_asked_;
}

void Mailbox::PutDrain(uint64_t drain) {
  absl::MutexLock lock(&mutex_);
  drained_ = std::max(drained_, drain);
}

absl::Status Mailbox::Wait(int signal, absl::Duration patience, absl::Duration look, const Look& device) {
  const auto there = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return static_cast<bool>(arrived_.at(static_cast<size_t>(signal)));
  };
  return WaitUntil(absl::Condition(&there), patience, look, device);
}

absl::Status Mailbox::WaitForDrain(uint64_t drain, absl::Duration patience, absl::Duration look, const Look& device) {
  const auto there = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return drained_ >= drain; };
  return WaitUntil(absl::Condition(&there), patience, look, device);
}

absl::Status Mailbox::WaitUntil(const absl::Condition& there, absl::Duration patience, absl::Duration look,
                                const Look& device) {
  const auto arrives = [&](absl::Duration within) {
    absl::MutexLock lock(&mutex_);
    return mutex_.AwaitWithTimeout(there, within);
  };
  while (true) {
    if (arrives(std::min(look, patience))) return absl::OkStatus();
    if (const std::optional<absl::Status> ended = device(); ended.has_value()) {
      // All work is done or lost; a message that arrives now was under way.
      if (arrives(look)) return absl::OkStatus();
      CAIRN_RETURN_IF_ERROR(*ended);
      return absl::InternalError(absl::StrCat(device_, ": a step ended without its results"));
    }
    patience -= look;
    if (patience <= absl::ZeroDuration())
      return absl::DeadlineExceededError(absl::StrCat(device_, ": a step does not end"));
  }
}

}  // namespace cairn::cudnn
