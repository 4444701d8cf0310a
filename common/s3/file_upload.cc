#include "common/s3/file_upload.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/s3/bytes_text.h"
#include "common/s3/limits.h"

namespace cairn {

absl::StatusOr<std::unique_ptr<RemoteUpload>> S3FileUpload::Begin(std::shared_ptr<const S3Session> session,
                                                                  S3Location at, uint64_t bytes) {
  if (bytes > kS3PartsMax * kS3PartBytesMax) {
    return absl::ResourceExhaustedError(absl::StrCat(S3Address(at.bucket, at.key), ": a file of ", BytesText(bytes),
                                                     " is larger than what is uploaded, ",
                                                     BytesText(kS3PartsMax * kS3PartBytesMax)));
  }
  std::unique_ptr<S3FileUpload> upload(new S3FileUpload(std::move(session), std::move(at), bytes));
  if (bytes <= kS3PartBytesMax) return upload;
  CAIRN_ASSIGN_OR_RETURN(upload->upload_, upload->session_->store->BeginUpload(upload->at_.bucket, upload->at_.key));
  return upload;
}

S3FileUpload::~S3FileUpload() {
  if (finished_ || !in_parts()) return;
  {
    absl::MutexLock lock(&mutex_);
    if (failed_.ok()) failed_ = absl::CancelledError("the upload was given up");
  }
  Join().IgnoreError();
  const absl::Status status = session_->store->AbortUpload(upload_);
  if (!status.ok()) LogWarning("an upload that was given up is left for the next writer: %s", status.message());
}

absl::Status S3FileUpload::Add(absl::string_view bytes) {
  added_ += bytes.size();
  if (added_ > bytes_) return absl::InternalError(absl::StrCat(at_.key, ": more bytes than were announced"));
  while (!bytes.empty()) {
    const size_t taken = std::min<size_t>(bytes.size(), kS3PartBytesMax - filling_.size());
    filling_.append(bytes.data(), taken);
    bytes.remove_prefix(taken);
    if (in_parts() && filling_.size() == kS3PartBytesMax) CAIRN_RETURN_IF_ERROR(Send());
  }
  return absl::OkStatus();
}

absl::Status S3FileUpload::Send() {
  {
    absl::MutexLock lock(&mutex_);
    const auto room = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return !failed_.ok() || waiting_.size() + under_way_ < kS3UploadsMax;
    };
    mutex_.Await(absl::Condition(&room));
    CAIRN_RETURN_IF_ERROR(failed_);
    etags_.emplace_back();
    waiting_.push_back({static_cast<int>(etags_.size()), std::exchange(filling_, {})});
  }
  if (threads_.size() < kS3UploadsMax) threads_.emplace_back([this] { Work(); });
  return absl::OkStatus();
}

void S3FileUpload::Work() {
  while (true) {
    Part part;
    {
      absl::MutexLock lock(&mutex_);
      const auto next = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return no_more_ || !failed_.ok() || !waiting_.empty();
      };
      mutex_.Await(absl::Condition(&next));
      if (!failed_.ok() || waiting_.empty()) return;
      part = std::move(waiting_.front());
      waiting_.pop_front();
      ++under_way_;
    }
    absl::StatusOr<std::string> etag = session_->store->PutPart(upload_, part.number, part.bytes);
    part.bytes = std::string();  // before another one takes its room
    absl::MutexLock lock(&mutex_);
    --under_way_;
    if (etag.ok()) {
      etags_[static_cast<size_t>(part.number) - 1] = *std::move(etag);
    } else if (failed_.ok()) {
      failed_ = etag.status();
    }
  }
}

absl::Status S3FileUpload::Join() {
  {
    absl::MutexLock lock(&mutex_);
    no_more_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  absl::MutexLock lock(&mutex_);
  return failed_;
}

absl::StatusOr<std::string> S3FileUpload::Finish() {
  if (added_ != bytes_) return absl::InternalError(absl::StrCat(at_.key, ": fewer bytes than were announced"));
  if (!in_parts()) {
    finished_ = true;
    return session_->store->Put(at_.bucket, at_.key, filling_, ObjectStore::PutRule::kReplace);
  }
  if (!filling_.empty()) CAIRN_RETURN_IF_ERROR(Send());
  CAIRN_RETURN_IF_ERROR(Join());
  std::vector<std::string> etags;
  {
    absl::MutexLock lock(&mutex_);
    etags = etags_;
  }
  absl::StatusOr<std::string> version = session_->store->CompleteUpload(upload_, etags, bytes_);
  finished_ = version.ok();
  return version;
}

}  // namespace cairn
