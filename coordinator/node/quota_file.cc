#include "coordinator/node/quota_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "common/base/log.h"
#include "coordinator/core/limits.h"

namespace cairn {
namespace {

absl::StatusOr<std::string> Read(const std::string& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  char part[4096];
  ssize_t got = file.get() < 0 ? -1 : 1;
  while (got > 0 && text.size() <= kQuotaFileBytesMax) {
    got = read(file.get(), part, sizeof(part));
    if (got > 0) text.append(part, static_cast<size_t>(got));
  }
  if (got < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--quotas: ", path, ": ", absl::ErrnoToStatus(errno, "cannot be read").message()));
  }
  if (text.size() <= kQuotaFileBytesMax) return text;
  return absl::InvalidArgumentError(
      absl::StrCat("--quotas: ", path, ": is longer than ", kQuotaFileBytesMax >> 10, " KiB"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<QuotaFile>> QuotaFile::Open(const std::string& path, Clock* clock) {
  CAIRN_ASSIGN_OR_RETURN(std::string text, Read(path));
  CAIRN_ASSIGN_OR_RETURN(Quotas quotas, Quotas::Parse(text, path));
  std::unique_ptr<QuotaFile> file(new QuotaFile(path, clock, std::move(quotas)));
  const absl::MutexLock lock(&file->mutex_);
  file->text_ = std::move(text);
  return file;
}

QuotaFile::QuotaFile(std::string path, Clock* clock, Quotas quotas)
    : path_(std::move(path)),
      clock_(clock),
      quotas_(std::make_shared<const Quotas>(std::move(quotas))),
      looked_at_(clock->Now()) {}

std::shared_ptr<const Quotas> QuotaFile::Current() {
  const absl::MutexLock lock(&mutex_);
  const absl::Time now = clock_->Now();
  if (now - looked_at_ < kQuotaFileRefresh) return quotas_;
  looked_at_ = now;
  absl::StatusOr<std::string> text = Read(path_);
  const absl::Status read = text.status();
  if (text.ok() && *text != text_) {
    absl::StatusOr<Quotas> quotas = Quotas::Parse(*text, path_);
    of_text_ = quotas.status();
    text_ = *std::move(text);
    if (quotas.ok()) {
      quotas_ = std::make_shared<const Quotas>(*std::move(quotas));
      LogInfo("--quotas: %s: the changed file is in use", path_);
    }
  }
  const absl::Status status = read.ok() ? of_text_ : read;
  if (!status.ok() && status != said_) LogWarning("%s; the quotas stay as they were", status.message());
  said_ = status;
  return quotas_;
}

}  // namespace cairn
