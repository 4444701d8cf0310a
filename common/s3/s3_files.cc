#include "common/s3/s3_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <random>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "common/base/files.h"
#include "common/base/log.h"
#include "common/s3/file_upload.h"
#include "common/s3/limits.h"
#include "common/s3/listing.h"

namespace cairn {
namespace {

constexpr size_t kReadBytes = size_t{1} << 20;

constexpr char kProbeBytes[] = "x", kOtherProbeBytes[] = "y";

std::string NewProbeName() {
  std::random_device random;
  return absl::StrFormat(".cairn-probe-%08x%08x", random(), random());
}

std::string PrefixOf(const S3Location& folder) { return folder.key.empty() ? "" : folder.key + "/"; }

// Reads an object by parts, several at the same time. The first error ends it.
class ObjectReader {
 public:
  ObjectReader(ObjectStore& store, const std::string& bucket, const S3Object& object, char* to)
      : store_(store), bucket_(bucket), object_(object), to_(to) {}

  absl::Status Run() {
    const uint64_t parts = (object_.bytes + kS3PartBytesMax - 1) / kS3PartBytesMax;
    if (parts <= 1) {
      Work();
    } else {
      std::vector<std::thread> threads;
      const uint64_t count = std::min<uint64_t>(kS3RequestsMax, parts);
      for (uint64_t i = 0; i < count; ++i) threads.emplace_back([this] { Work(); });
      for (std::thread& thread : threads) thread.join();
    }
    absl::MutexLock lock(&mutex_);
    return failed_;
  }

 private:
  void Work() {
    while (true) {
      const uint64_t begin = next_.fetch_add(kS3PartBytesMax);
      if (begin >= object_.bytes) return;
      const uint64_t bytes = std::min(kS3PartBytesMax, object_.bytes - begin);
      const absl::StatusOr<std::string> part = store_.Get(bucket_, object_, begin, bytes);
      if (part.ok()) {
        std::copy(part->begin(), part->end(), to_ + begin);
        continue;
      }
      next_ = object_.bytes;
      absl::MutexLock lock(&mutex_);
      if (failed_.ok()) failed_ = part.status();
    }
  }

  ObjectStore& store_;
  const std::string& bucket_;
  const S3Object& object_;
  char* const to_;
  std::atomic<uint64_t> next_{0};
  absl::Mutex mutex_;
  absl::Status failed_ ABSL_GUARDED_BY(mutex_);
};

class StagedForS3 : public StagedFile {
 public:
  StagedForS3(RemoteFiles& files, std::string path, std::string folder, std::string local)
      : files_(files), path_(std::move(path)), folder_(std::move(folder)), local_(std::move(local)) {}
  ~StagedForS3() override {
    std::error_code error;
    std::filesystem::remove_all(folder_, error);
    if (error) LogWarning("%s: cannot be removed: %s", folder_, error.message());
  }
  const std::string& local() const override { return local_; }

  absl::Status Put() override {
    const FileDescriptor file = OpenPath(local_, O_RDONLY);
    struct stat found {};
    if (file.get() < 0 || ::fstat(file.get(), &found) != 0) return FileError(path_, "its copy here cannot be opened");
    CAIRN_RETURN_IF_ERROR(RemoveFormerUploads());
    CAIRN_ASSIGN_OR_RETURN(const std::unique_ptr<RemoteUpload> upload,
                           files_.Create(path_, static_cast<uint64_t>(found.st_size)));
    std::string buffer(kReadBytes, '\0');
    while (true) {
      const ssize_t n = ::read(file.get(), buffer.data(), buffer.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return FileError(path_, "its copy here cannot be read");
      if (n == 0) return upload->Finish().status();
      CAIRN_RETURN_IF_ERROR(upload->Add(absl::string_view(buffer.data(), static_cast<size_t>(n))));
    }
  }

 private:
  // Of this file, by a worker that was killed.
  absl::Status RemoveFormerUploads() {
    const size_t slash = path_.rfind('/');
    if (slash == std::string::npos) return absl::OkStatus();
    const std::string name = path_.substr(slash + 1);
    return files_.RemoveUnfinished(path_.substr(0, slash), [&](absl::string_view below) { return below == name; });
  }

  RemoteFiles& files_;
  const std::string path_, folder_, local_;
};

absl::Status NotThere(const S3Location& at) {
  return absl::NotFoundError(absl::StrCat(S3Address(at.bucket, at.key), ": there is no object of this key"));
}

}  // namespace

S3Files::S3Files(std::shared_ptr<RemoteData> data, Staging staging, Environment environment,
                 S3Sessions::MakeTransport make_transport)
    : data_(std::move(data)),
      staging_(std::move(staging)),
      environment_(std::move(environment)),
      make_transport_(std::move(make_transport)),
      sessions_(environment_, make_transport_) {}

std::shared_ptr<RemoteFiles> S3Files::ForJob() {
  auto files = std::make_shared<S3Files>(data_, staging_, environment_, make_transport_);
  files->known_ = known_;
  absl::MutexLock lock(&mutex_);
  std::erase_if(of_jobs_, [](const std::weak_ptr<RemoteFiles>& one) { return one.expired(); });
  of_jobs_.push_back(files);
  if (sessions_.stopping()) files->Stop();
  return files;
}

void S3Files::Stop() {
  sessions_.Stop();
  absl::MutexLock lock(&mutex_);
  for (const std::weak_ptr<RemoteFiles>& one : of_jobs_) {
    if (const std::shared_ptr<RemoteFiles> files = one.lock()) files->Stop();
  }
}

bool S3Files::Has(absl::string_view path) const { return RemotePlaceOf(path).has_value(); }

absl::StatusOr<S3Files::Place> S3Files::PlaceOf(const std::string& path, Access access) {
  const std::optional<RemotePlace> place = RemotePlaceOf(path);
  if (!place) return absl::InvalidArgumentError(absl::StrCat(path, ": lies in no S3 root of this worker"));
  CAIRN_RETURN_IF_ERROR(CheckInAnyRoot("path", path, access));
  std::string below;  // "a//b" is "a/b", as in paths of this machine
  for (const absl::string_view part : absl::StrSplit(place->below, '/', absl::SkipEmpty()))
    absl::StrAppend(&below, "/", part);
  Place found;
  CAIRN_ASSIGN_OR_RETURN(found.at, ParseS3Address(place->root.folder + below));
  CAIRN_ASSIGN_OR_RETURN(found.session, sessions_.Current());
  return found;
}

void S3Files::WarnOnce(std::atomic<bool>& warned, const absl::Status& why, const char* what) const {
  if (!warned.exchange(true)) LogWarning("%s: %s", why.message(), what);
}

// ---- reading ----

absl::StatusOr<std::vector<RemoteFiles::File>> S3Files::List(const std::string& folder) {
  CAIRN_ASSIGN_OR_RETURN(const Place place, PlaceOf(folder, Access::kRead));
  const std::string prefix = PrefixOf(place.at);
  std::vector<File> files;
  const auto take = [&](const std::vector<S3Object>& objects) -> absl::Status {
    for (const S3Object& object : objects)
      files.push_back({object.key.substr(prefix.size()), object.bytes, object.etag});
    if (files.size() <= kS3FilesListedMax) return absl::OkStatus();
    return absl::ResourceExhaustedError(absl::StrCat(S3Address(place.at.bucket, prefix), ": more than ",
                                                     kS3FilesListedMax, " objects; give it a folder of its own"));
  };
  CAIRN_RETURN_IF_ERROR(ListObjects(*place.session->store, place.at.bucket, prefix, take));
  return files;
}

absl::StatusOr<std::optional<RemoteFiles::File>> S3Files::Look(const std::string& path) {
  CAIRN_ASSIGN_OR_RETURN(const Place place, PlaceOf(path, Access::kRead));
  CAIRN_ASSIGN_OR_RETURN(const std::optional<S3Object> object,
                         place.session->store->Head(place.at.bucket, place.at.key));
  if (!object) return std::optional<File>();
  return std::optional<File>(File{"", object->bytes, object->etag, object->modified});
}

absl::Status S3Files::Read(const std::string& path, uint64_t bytes_max, const Room& room) {
  CAIRN_ASSIGN_OR_RETURN(const Place place, PlaceOf(path, Access::kRead));
  const S3Location& at = place.at;
  CAIRN_ASSIGN_OR_RETURN(const std::optional<S3Object> object, place.session->store->Head(at.bucket, at.key));
  if (!object) return NotThere(at);
  if (object->bytes > bytes_max) {
    return absl::InvalidArgumentError(
        absl::StrCat(S3Address(at.bucket, at.key), ": has ", object->bytes, " bytes, more than ", bytes_max));
  }
  return ObjectReader(*place.session->store, at.bucket, *object, room(object->bytes)).Run();
}

absl::StatusOr<std::string> S3Files::ReadRange(const std::string& path, const File& file, uint64_t begin,
                                               uint64_t bytes) {
  CAIRN_ASSIGN_OR_RETURN(const Place place, PlaceOf(path, Access::kRead));
  const S3Location& at = place.at;
  if (begin > file.bytes || bytes > file.bytes - begin) {
    return absl::InvalidArgumentError(absl::StrCat(S3Address(at.bucket, at.key), ": has ", file.bytes, " bytes, not ",
                                                   bytes, " from ", begin, " on"));
  }
  std::string read;
  while (read.size() < bytes) {
    const uint64_t from = begin + read.size(), wanted = std::min<uint64_t>(kS3PartBytesMax, bytes - read.size());
    CAIRN_ASSIGN_OR_RETURN(const std::string part,
                           place.session->store->Get(at.bucket, {at.key, file.version, file.bytes}, from, wanted));
    read += part;
  }
  return read;
}

absl::StatusOr<std::shared_ptr<const LocalCopy>> S3Files::Fetch(const std::string& path, absl::Duration wait_max) {
  return data_->Fetch(path, wait_max);
}

// ---- writing ----

absl::Status S3Files::TryConditions(ObjectStore& store, const S3Location& there) {
  {
    absl::MutexLock lock(&known_->mutex);
    if (known_->conditions.contains(there.bucket)) return absl::OkStatus();
  }
  const absl::Status status = store.Put(there.bucket, there.key, kOtherProbeBytes, ObjectStore::PutRule::kNew).status();
  if (!status.ok() && !absl::IsAlreadyExists(status) && !absl::IsUnimplemented(status)) return status;
  const bool kept = absl::IsAlreadyExists(status);
  if (!kept) {
    WarnOnce(known_->warned_of_conditions,
             status.ok() ? absl::UnimplementedError(absl::StrCat(S3Address(there.bucket, ""), ": the server")) : status,
             "it does not keep If-None-Match, so that of two writers of one checkpoint the later one is not always "
             "found");
  }
  absl::MutexLock lock(&known_->mutex);
  known_->conditions[there.bucket] = kept;
  return absl::OkStatus();
}

absl::StatusOr<bool> S3Files::KeepsConditions(ObjectStore& store, const S3Location& at) {
  const auto known = [&]() -> std::optional<bool> {
    absl::MutexLock lock(&known_->mutex);
    const auto it = known_->conditions.find(at.bucket);
    return it == known_->conditions.end() ? std::nullopt : std::optional<bool>(it->second);
  };
  if (const std::optional<bool> kept = known()) return *kept;
  const S3Location probe{at.bucket, absl::StrCat(at.key.substr(0, at.key.rfind('/') + 1), NewProbeName())};
  absl::Status status = store.Put(probe.bucket, probe.key, kProbeBytes, ObjectStore::PutRule::kReplace).status();
  if (status.ok()) status = TryConditions(store, probe);
  status.Update(store.Remove(probe.bucket, probe.key));
  CAIRN_RETURN_IF_ERROR(status);
  return known().value_or(false);
}

absl::Status S3Files::TryToWrite(const std::string& folder, absl::Time until) {
  CAIRN_ASSIGN_OR_RETURN(const Place place, PlaceOf(absl::StrCat(folder, "/", NewProbeName()), Access::kWrite));
  CAIRN_ASSIGN_OR_RETURN(const std::shared_ptr<const S3Session> puts, sessions_.New(kS3ProbeRetryMax, until));
  CAIRN_ASSIGN_OR_RETURN(const std::shared_ptr<const S3Session> removes,
                         sessions_.New(kS3ProbeRemovalMax, until + kS3ProbeRemovalMax));
  const S3Location& at = place.at;
  absl::Status status = puts->store->Put(at.bucket, at.key, kProbeBytes, ObjectStore::PutRule::kReplace).status();
  if (status.ok()) status = TryConditions(*puts->store, at);
  // Also where the put failed: perhaps only its reply was lost.
  status.Update(removes->store->Remove(at.bucket, at.key));
  return status;
}

absl::StatusOr<std::unique_ptr<RemoteUpload>> S3Files::Create(const std::string& path, uint64_t bytes) {
  CAIRN_ASSIGN_OR_RETURN(const Place place, PlaceOf(path, Access::kWrite));
  return S3FileUpload::Begin(place.session, place.at, bytes);
}

absl::Status S3Files::PutNew(const std::string& path, const std::string& bytes) {
  CAIRN_ASSIGN_OR_RETURN(const Place place, PlaceOf(path, Access::kWrite));
  ObjectStore& store = *place.session->store;
  const S3Location& at = place.at;
  CAIRN_ASSIGN_OR_RETURN(const bool conditions, KeepsConditions(store, at));
  if (conditions) return store.Put(at.bucket, at.key, bytes, ObjectStore::PutRule::kNew).status();
  CAIRN_ASSIGN_OR_RETURN(const std::optional<S3Object> there, store.Head(at.bucket, at.key));
  if (there) return absl::AlreadyExistsError(absl::StrCat(S3Address(at.bucket, at.key), ": is there already"));
  return store.Put(at.bucket, at.key, bytes, ObjectStore::PutRule::kReplace).status();
}

absl::Status S3Files::PutOver(const std::string& path, const std::string& version, const std::string& bytes) {
  CAIRN_ASSIGN_OR_RETURN(const Place place, PlaceOf(path, Access::kWrite));
  ObjectStore& store = *place.session->store;
  const S3Location& at = place.at;
  const absl::Status status = store.PutOver(at.bucket, {at.key, version, 0}, bytes).status();
  if (!absl::IsUnimplemented(status)) return status;
  CAIRN_ASSIGN_OR_RETURN(const std::optional<S3Object> there, store.Head(at.bucket, at.key));
  if (there && there->etag == version)
    return store.Put(at.bucket, at.key, bytes, ObjectStore::PutRule::kReplace).status();
  return absl::AbortedError(absl::StrCat(S3Address(at.bucket, at.key), ": was replaced by another worker meanwhile"));
}

absl::Status S3Files::Copy(const std::string& from, const std::string& to) {
  CAIRN_ASSIGN_OR_RETURN(const Place source, PlaceOf(from, Access::kRead));
  CAIRN_ASSIGN_OR_RETURN(const Place target, PlaceOf(to, Access::kWrite));
  ObjectStore& store = *target.session->store;
  CAIRN_ASSIGN_OR_RETURN(const std::optional<S3Object> object, store.Head(source.at.bucket, source.at.key));
  if (!object) return NotThere(source.at);
  if (object->bytes <= kS3CopyBytesMax && source.at.bucket == target.at.bucket) {
    CAIRN_RETURN_IF_ERROR(store.Copy(source.at.bucket, *object, target.at.key).status());
    CAIRN_ASSIGN_OR_RETURN(const std::optional<S3Object> copy, store.Head(target.at.bucket, target.at.key));
    if (copy && copy->bytes == object->bytes) return absl::OkStatus();
    return absl::UnavailableError(absl::StrCat(S3Address(target.at.bucket, target.at.key), ": is no whole copy of ",
                                               S3Address(source.at.bucket, source.at.key)));
  }
  CAIRN_ASSIGN_OR_RETURN(const std::unique_ptr<RemoteUpload> upload,
                         S3FileUpload::Begin(target.session, target.at, object->bytes));
  for (uint64_t begin = 0; begin < object->bytes; begin += kS3PartBytesMax) {
    CAIRN_ASSIGN_OR_RETURN(const std::string part, store.Get(source.at.bucket, *object, begin,
                                                             std::min(kS3PartBytesMax, object->bytes - begin)));
    CAIRN_RETURN_IF_ERROR(upload->Add(part));
  }
  return upload->Finish().status();
}

absl::Status S3Files::Remove(const std::string& path) {
  CAIRN_ASSIGN_OR_RETURN(const Place place, PlaceOf(path, Access::kWrite));
  return place.session->store->Remove(place.at.bucket, place.at.key);
}

absl::Status S3Files::RemoveUnfinished(const std::string& folder,
                                       const std::function<bool(absl::string_view below)>& which) {
  CAIRN_ASSIGN_OR_RETURN(const Place place, PlaceOf(folder, Access::kWrite));
  ObjectStore& store = *place.session->store;
  const std::string& bucket = place.at.bucket;
  const std::string prefix = PrefixOf(place.at);
  S3PendingUpload from;
  for (int pages = 0; pages < kS3PagesMax; ++pages) {
    const absl::StatusOr<S3UploadsPage> page = store.ListUploads(bucket, prefix, from);
    if (absl::IsUnimplemented(page.status()) || absl::IsPermissionDenied(page.status())) {
      WarnOnce(known_->warned_of_uploads, page.status(),
               "parts that a killed worker has uploaded are not removed; give the bucket a rule that does it "
               "(AbortIncompleteMultipartUpload)");
      return absl::OkStatus();
    }
    CAIRN_RETURN_IF_ERROR(page.status());
    for (const S3PendingUpload& upload : page->uploads) {
      if (!which(absl::string_view(upload.key).substr(prefix.size()))) continue;
      LogInfo("%s: an upload that was not finished is removed", S3Address(bucket, upload.key));
      CAIRN_RETURN_IF_ERROR(store.AbortUpload({bucket, upload.key, upload.id}));
    }
    if (page->next.key.empty()) return absl::OkStatus();
    if (page->next.key == from.key && page->next.id == from.id) break;
    from = page->next;
  }
  return absl::DataLossError(absl::StrCat(S3Address(bucket, prefix), ": the server's list of uploads does not end"));
}

absl::StatusOr<std::unique_ptr<StagedFile>> S3Files::Stage(const std::string& path) {
  CAIRN_ASSIGN_OR_RETURN(const Place place, PlaceOf(path, Access::kWrite));
  const std::string serial = absl::StrCat(++known_->staged), folder = absl::StrCat(staging_.folder, "/", serial);
  if (::mkdir(folder.c_str(), 0700) != 0) return FileError(folder, "cannot create the folder (see --s3-cache)");
  const std::string name = place.at.key.substr(place.at.key.rfind('/') + 1);  // npos + 1 is 0
  return std::make_unique<StagedForS3>(*this, path, folder, absl::StrCat(staging_.root, ":/", serial, "/", name));
}

}  // namespace cairn
