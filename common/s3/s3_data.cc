#include "common/s3/s3_data.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/digest.h"
#include "common/base/log.h"
#include "common/base/roots.h"
#include "common/s3/bytes_text.h"
#include "common/s3/fetcher.h"
#include "common/s3/limits.h"
#include "common/s3/listing.h"
#include "common/s3/signer.h"

namespace cairn {

// The objects at a path, with their names below the set's folder.
struct S3Data::Found {
  std::vector<S3Object> objects;
  std::vector<std::string> names;
  std::string file;  // of the path itself; empty: it is a folder
};

struct S3Data::Lister {
  ObjectStore* store = nullptr;
  std::function<void()> on_page;  // after each
};

struct S3Data::Running {
  std::atomic<uint64_t> bytes_done{0}, bytes_all{0};
  absl::Mutex mutex;
  bool done ABSL_GUARDED_BY(mutex) = false;
  Result result ABSL_GUARDED_BY(mutex) = absl::UnknownError("not fetched");
};

namespace {

// The same on every machine: names, sizes and ETags, not the endpoint, which may have several addresses.
std::string VersionOf(const std::vector<CacheFile>& files) {
  std::vector<std::string> lines;
  lines.reserve(files.size());
  for (const CacheFile& file : files) lines.push_back(absl::StrCat(file.path, "\n", file.etag, "\n", file.bytes, "\n"));
  std::sort(lines.begin(), lines.end());  // servers may list them in another order
  Digest digest;
  for (const std::string& line : lines) digest.Add(line.data(), line.size());
  return digest.Hex();
}

class CachedCopy : public LocalCopy {
 public:
  CachedCopy(std::shared_ptr<ObjectCache> cache, std::unique_ptr<ObjectCache::Set> set, const std::string& file)
      : cache_(std::move(cache)),
        set_(std::move(set)),
        path_(file.empty() ? set_->files_folder() : absl::StrCat(set_->files_folder(), "/", file)),
        version_(VersionOf(set_->files())) {}
  ~CachedCopy() override { cache_->Discard(std::move(set_)); }
  const std::string& path() const override { return path_; }
  const std::string& version() const override { return version_; }

 private:
  const std::shared_ptr<ObjectCache> cache_;  // outlives the set
  std::unique_ptr<ObjectCache::Set> set_;
  const std::string path_, version_;
};

std::string IdOf(const S3Settings& settings, const std::string& bucket, const S3Object& object) {
  return Sha256Hex(
      absl::StrCat(settings.endpoint, "\n", bucket, "\n", object.key, "\n", object.etag, "\n", object.bytes));
}

// Of one shard of several, "train.tfrecord-00000-of-00004", the part before the number: all of them are read. Empty: it
// is no shard.
std::string ShardBeginning(const std::string& key) {
  const auto digit = [&](size_t i) { return absl::ascii_isdigit(static_cast<unsigned char>(key[i])); };
  const size_t of = key.rfind("-of-");
  if (of == std::string::npos || of + 4 == key.size() || !digit(of + 4)) return "";
  size_t begin = of;
  while (begin > 0 && digit(begin - 1)) --begin;
  return begin < of && begin > 0 && key[begin - 1] == '-' ? key.substr(0, begin) : "";
}

}  // namespace

S3Data::S3Data(std::shared_ptr<ObjectCache> cache, Environment environment, MakeTransport make_transport)
    : cache_(std::move(cache)), sessions_(std::move(environment), std::move(make_transport)) {}

S3Data::~S3Data() {
  Stop();
  std::vector<Thread> threads;
  {
    absl::MutexLock lock(&mutex_);
    threads.swap(threads_);
  }
  for (Thread& one : threads) one.thread.join();
}

void S3Data::Stop() { sessions_.Stop(); }

bool S3Data::Has(absl::string_view path) const { return RemotePlaceOf(path).has_value(); }

absl::StatusOr<std::shared_ptr<const LocalCopy>> S3Data::Fetch(const std::string& path, absl::Duration wait_max) {
  CAIRN_ASSIGN_OR_RETURN(const std::shared_ptr<Running> running, Start(path));
  absl::MutexLock lock(&running->mutex);
  if (running->mutex.AwaitWithTimeout(absl::Condition(&running->done), wait_max)) return running->result;
  return absl::UnavailableError(absl::StrCat(path, " is being fetched from S3 into this worker's cache, ",
                                             BytesText(running->bytes_done), " of ", BytesText(running->bytes_all),
                                             " so far; submit again when it is there: the worker's log says so"));
}

// Also joins threads that are done.
absl::StatusOr<std::shared_ptr<S3Data::Running>> S3Data::Start(const std::string& path) {
  absl::MutexLock lock(&mutex_);
  std::erase_if(threads_, [](Thread& one) {
    if (*one.done) one.thread.join();
    return !one.thread.joinable();
  });
  if (sessions_.stopping()) return absl::CancelledError("the worker is stopping");
  if (const auto it = running_.find(path); it != running_.end()) return it->second;
  if (running_.size() == kS3FetchesMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat("this worker fetches ", kS3FetchesMax, " other data sets from S3; try again later"));
  }
  auto running = std::make_shared<Running>();
  running_[path] = running;
  Thread& one = threads_.emplace_back();
  one.done = std::make_shared<std::atomic<bool>>(false);
  one.thread = std::thread([this, path, running, done = one.done]() mutable {
    Run(path, std::move(running));
    *done = true;
  });
  return running;
}

// Who waits for the result has it; nobody else holds it.
void S3Data::Run(const std::string& path, std::shared_ptr<Running> running) {
  Result result = FetchNow(path, running.get());
  if (!result.ok()) LogWarning("%s: not fetched from S3: %s", path, result.status().message());
  {
    absl::MutexLock lock(&mutex_);
    running_.erase(path);
  }
  absl::MutexLock lock(&running->mutex);
  running->result = std::move(result);
  running->done = true;
}

// A folder, one object, or the shards of which one is named.
absl::StatusOr<S3Data::Found> S3Data::Find(const Lister& lister, const S3Location& at) const {
  Found found;
  CAIRN_RETURN_IF_ERROR(ListAll(lister, {at.bucket, at.key.empty() ? "" : at.key + "/"}, &found));
  if (!found.objects.empty()) return found;
  const std::string address = S3Address(at.bucket, at.key);
  if (at.key.empty()) return absl::NotFoundError(absl::StrCat(address, ": the bucket is empty"));
  found.file = at.key.substr(at.key.rfind('/') + 1);  // npos + 1 is 0
  if (const std::string shards = ShardBeginning(at.key); !shards.empty()) {
    CAIRN_RETURN_IF_ERROR(ListAll(lister, {at.bucket, shards}, &found));
  } else {
    CAIRN_ASSIGN_OR_RETURN(std::optional<S3Object> object, lister.store->Head(at.bucket, at.key));
    if (object) {
      found.objects.push_back(*std::move(object));
      found.names.push_back(found.file);
    }
  }
  if (std::find(found.names.begin(), found.names.end(), found.file) != found.names.end()) return found;
  return absl::NotFoundError(absl::StrCat(address, ": there is no object of this key, and none below it"));
}

// at.key: what keys begin with: with a slash at its end those of a folder, else names in one.
absl::Status S3Data::ListAll(const Lister& lister, const S3Location& at, Found* found) const {
  const std::string& prefix = at.key;
  const size_t named = prefix.rfind('/') + 1;  // where names begin: npos + 1 is 0
  return ListObjects(*lister.store, at.bucket, prefix, [&](std::vector<S3Object> objects) -> absl::Status {
    lister.on_page();
    for (S3Object& object : objects) {
      std::string name = object.key.substr(named);
      if (found->file.empty() || !absl::StrContains(name, '/')) {
        CAIRN_RETURN_IF_ERROR(CheckKey(at.bucket, object.key));
        found->names.push_back(std::move(name));
        found->objects.push_back(std::move(object));
      }
      if (found->objects.size() > kS3ObjectsMax) {
        return absl::ResourceExhaustedError(
            absl::StrCat(S3Address(at.bucket, prefix), ": more than ", kS3ObjectsMax,
                         " objects, the most of a data set; put them together into TFRecord files"));
      }
    }
    return absl::OkStatus();
  });
}

S3Data::Result S3Data::FetchNow(const std::string& path, Running* running) {
  const std::optional<RemotePlace> place = RemotePlaceOf(path);
  if (!place) return absl::InvalidArgumentError(absl::StrCat(path, ": lies in no S3 root of this worker"));
  const std::string below = place->below.empty() ? "" : absl::StrCat("/", place->below);
  CAIRN_ASSIGN_OR_RETURN(const S3Location at, ParseS3Address(place->root.folder + below));
  CAIRN_ASSIGN_OR_RETURN(const std::shared_ptr<const S3Session> session, sessions_.New());
  ObjectStore& store = *session->store;

  // One process fetches, and others find what it fetched.
  const std::string address = S3Address(at.bucket, at.key);
  CAIRN_ASSIGN_OR_RETURN(const FileDescriptor lock,
                         cache_->LockFetch(address, [this] { return sessions_.stopping(); }));
  const absl::Time begin = absl::Now();
  CAIRN_ASSIGN_OR_RETURN(const Found found, Find({&store, [&] { ObjectCache::TellProgress(lock); }}, at));
  std::vector<CacheFile> files;
  files.reserve(found.objects.size());
  for (size_t i = 0; i < found.objects.size(); ++i) {
    files.push_back({IdOf(session->settings, at.bucket, found.objects[i]), found.names[i], found.objects[i].bytes,
                     found.objects[i].etag});
    running->bytes_all += found.objects[i].bytes;
  }
  absl::StatusOr<std::unique_ptr<ObjectCache::Set>> set = cache_->Reserve(std::move(files));
  if (!set.ok()) return Annotate(set.status(), address);
  const uint64_t missing = (*set)->missing_bytes();
  running->bytes_done = running->bytes_all - missing;
  if (!(*set)->missing().empty()) {
    LogInfo("%s: fetching %d of %d objects from %s, %s", path, (*set)->missing().size(), found.objects.size(), address,
            BytesText(missing));
  }
  CAIRN_RETURN_IF_ERROR(FetchMissing({&store, at.bucket, &found.objects, set->get(), [&](uint64_t bytes) {
                                        running->bytes_done += bytes;
                                        ObjectCache::TellProgress(lock);
                                      }}));
  LogInfo("%s: %d objects of %s from %s are here after %s, %s of it from the cache", path, found.objects.size(),
          BytesText(running->bytes_all), address,
          absl::FormatDuration(absl::Trunc(absl::Now() - begin, absl::Milliseconds(1))),
          BytesText(running->bytes_all - missing));
  return std::make_shared<CachedCopy>(cache_, *std::move(set), found.file);
}

}  // namespace cairn
