#include "server/storage/persistence.h"

#include <algorithm>
#include <deque>
#include <iterator>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/core/snapshot_stride.h"
#include "server/storage/core_timer.h"
#include "server/storage/stored_format.h"

namespace cairn {
namespace {

absl::Status Damaged(const PartitionConfig& c, const std::string& what) {
  return absl::DataLossError(
      absl::StrCat(c.Name(), ": ", what, " is damaged; restore the data directory or delete the job"));
}

// ---- images ----

ImageParts PartsOf(const PartitionConfig& c, const v1::PartitionImage& header) {
  return c.kind->PartsOf(header, static_cast<size_t>(header.xxh3_size()));
}

absl::Status CheckHeader(const PartitionConfig& c, const v1::PartitionImage& header) {
  const int replicas = header.sequences().last_sequence_size();
  if (header.begin() != static_cast<uint64_t>(c.begin) || header.end() != static_cast<uint64_t>(c.end) ||
      replicas != static_cast<int>(c.replicas)) {
    return absl::FailedPreconditionError(absl::StrCat(c.Name(), ": the stored image is of numbers [", header.begin(),
                                                      ",", header.end(), ") and ", replicas, " replicas; the job has [",
                                                      c.begin, ",", c.end, ") and ", c.replicas));
  }
  absl::Status fits = c.kind->CheckHeader(c, header, static_cast<size_t>(header.xxh3_size()));
  if (fits.ok()) return fits;
  return absl::FailedPreconditionError(absl::StrCat(c.Name(), ": the stored image: ", fits.message()));
}

absl::StatusOr<PartitionState> LoadImage(KvStore& store, const PartitionConfig& c, const v1::PartitionImage& header) {
  CAIRN_RETURN_IF_ERROR(CheckHeader(c, header));
  Image image{header, {}};
  for (int t = 0; t < header.xxh3_size(); ++t) {
    CAIRN_ASSIGN_OR_RETURN(std::optional<std::string> bytes, store.Get(TensorKey(c, header.version(), t)));
    if (!bytes || !c.kind->CheckTensor(c, static_cast<size_t>(t), bytes->size()).ok() ||
        Checksum(bytes->data(), bytes->size()) != header.xxh3(t)) {
      return Damaged(c, absl::StrCat("tensor ", t, " of image ", header.version()));
    }
    image.tensors.push_back(Buffer::CopyOf(bytes->data(), bytes->size()));
  }
  return StateFrom(c, image);
}

void PutImage(const PartitionConfig& c, const Image& image, KvBatch& batch) {
  v1::PartitionImage header = image.header;
  header.clear_xxh3();
  for (size_t t = 0; t < image.tensors.size(); ++t) {
    const Buffer& tensor = image.tensors[t];
    header.add_xxh3(Checksum(tensor.data(), tensor.size()));
    batch.Put(TensorKey(c, header.version(), t), std::string(), tensor);
  }
  batch.Put(VersionKey(c, 'h', header.version()), Seal(header));
}

// Newest first.
absl::StatusOr<std::vector<v1::PartitionImage>> ReadHeaders(KvStore& store, const PartitionConfig& c) {
  std::vector<v1::PartitionImage> headers;
  absl::Status status;
  const std::string prefix = KindPrefix(c, 'h');
  CAIRN_RETURN_IF_ERROR(store.Scan(prefix, [&](std::string_view key, std::string_view value) {
    const uint64_t version = ReadBigEndian(key.substr(prefix.size()));
    v1::PartitionImage header;
    if (!Unseal(value, header) || header.version() != version) {
      status = Damaged(c, absl::StrCat("the header of image ", version));
      return false;
    }
    headers.insert(headers.begin(), std::move(header));
    return true;
  }));
  CAIRN_RETURN_IF_ERROR(status);
  return headers;
}

// ---- log ----

absl::Status ReplayEntry(const PartitionConfig& c, uint64_t version, std::string_view value, PartitionState& state) {
  v1::LogEntry entry;
  if (!Unseal(value, entry) || entry.version() != version) return Damaged(c, absl::StrCat("log entry ", version));
  if (Checksum(value.data(), value.size()) != entry.xxh3()) {
    return Damaged(c, absl::StrCat("the gradient of log entry ", version));
  }
  CAIRN_RETURN_IF_ERROR(CheckEntry(c, state, entry, value.size()));
  ApplyEntry(c, entry, c.kind->Unpack(c, entry, Buffer::CopyOf(value.data(), value.size())), state);
  return absl::OkStatus();
}

absl::Status ReplayLog(KvStore& store, const PartitionConfig& c, PartitionState& state) {
  absl::Status status;
  const std::string prefix = KindPrefix(c, 'l');
  CAIRN_RETURN_IF_ERROR(store.Scan(prefix, [&](std::string_view key, std::string_view value) {
    const uint64_t version = ReadBigEndian(key.substr(prefix.size()));
    if (version > state.version) status = ReplayEntry(c, version, value, state);
    return status.ok();
  }));
  return status;
}

PartitionEffects StepCore(PartitionCore& core, PartitionEvent event, absl::Time now, TraceRecorder* trace) {
  const CoreTimer timer(trace, core, event);
  return core.Step(std::move(event), now);
}

}  // namespace

absl::StatusOr<uint64_t> Persistence::ClusterId() const {
  CAIRN_ASSIGN_OR_RETURN(const std::optional<std::string> stored, store_.Get(kClusterIdKey));
  if (!stored) return 0;
  const std::string_view id = std::string_view(*stored).substr(0, 8);
  if (stored->size() != 16 || ReadBigEndian(stored->substr(8)) != Checksum(id.data(), id.size())) {
    return absl::DataLossError("the cluster's id is damaged");
  }
  return ReadBigEndian(id);
}

absl::Status Persistence::SetClusterId(uint64_t id) {
  std::string value;
  AppendBigEndian(id, 8, &value);
  AppendBigEndian(Checksum(value.data(), value.size()), 8, &value);
  KvBatch batch;
  batch.Put(std::string(kClusterIdKey), std::move(value));
  return store_.Write(batch, /*sync=*/true);
}

absl::StatusOr<std::vector<v1::HostPartitions>> Persistence::ListHostedJobs() const {
  std::vector<v1::HostPartitions> jobs;
  absl::Status status;
  CAIRN_RETURN_IF_ERROR(store_.Scan("j", [&](std::string_view key, std::string_view value) {
    v1::HostedJob hosted;
    const uint64_t job = ReadBigEndian(key.substr(1));
    if (!Unseal(value, hosted) || hosted.host().job_id() != job) {
      status =
          absl::DataLossError(absl::StrCat("job ", job, ": its assignment is damaged; restore the data directory"));
      return false;
    }
    jobs.push_back(std::move(*hosted.mutable_host()));
    return true;
  }));
  CAIRN_RETURN_IF_ERROR(status);
  return jobs;
}

absl::Status Persistence::SetHostedJob(const v1::HostPartitions& host) {
  const JobId job(host.job_id());
  std::set<uint32_t> named;
  for (const v1::PartitionRange& p : host.partitions()) named.insert(p.partition());

  KvBatch batch;
  CAIRN_ASSIGN_OR_RETURN(std::optional<std::string> stored, store_.Get(HostedKey(job)));
  v1::HostedJob before;
  if (stored) {
    std::string_view bytes = *stored;
    if (!Unseal(bytes, before)) {
      return absl::DataLossError(
          absl::StrCat("job ", job.value, ": its assignment is damaged; restore the data directory"));
    }
  }
  for (const v1::PartitionRange& p : before.host().partitions()) {
    if (named.contains(p.partition())) continue;
    const std::string prefix = PartitionPrefix(job, p.partition());
    batch.DeleteRange(prefix, PrefixEnd(prefix));
  }
  v1::HostedJob hosted;
  *hosted.mutable_host() = host;
  batch.Put(HostedKey(job), Seal(hosted));
  return store_.Write(batch, /*sync=*/true);
}

absl::Status Persistence::DropJob(JobId job) {
  KvBatch batch;
  batch.Delete(HostedKey(job));
  batch.DeleteRange(JobPrefix(job), PrefixEnd(JobPrefix(job)));
  return store_.Write(batch, /*sync=*/true);
}

absl::StatusOr<PartitionState> Persistence::Recover(const PartitionConfig& config) const {
  const auto logged = [&](uint64_t version) -> absl::StatusOr<bool> {
    CAIRN_ASSIGN_OR_RETURN(std::optional<std::string> entry, store_.Get(VersionKey(config, 'l', version)));
    return entry.has_value();
  };
  CAIRN_ASSIGN_OR_RETURN(std::vector<v1::PartitionImage> headers, ReadHeaders(store_, config));
  const v1::PartitionImage* base = headers.empty() ? nullptr : &headers.front();
  bool found = false;
  for (const v1::PartitionImage& header : headers) {
    if (config.durability == v1::SNAPSHOT) break;  // there is no log: use the newest
    CAIRN_ASSIGN_OR_RETURN(found, logged(header.version() + 1));
    found = found || PartsOf(config, header).previous;
    if (!found) continue;
    base = &header;
    break;
  }
  if (!found && base != nullptr) {  // the only image is the newest version; the log may go back to the initial values
    CAIRN_ASSIGN_OR_RETURN(const bool from_start, logged(1));
    if (from_start) base = nullptr;
  }
  PartitionState state;
  if (base == nullptr) {
    state = PartitionState::Initial(config);
  } else {
    CAIRN_ASSIGN_OR_RETURN(state, LoadImage(store_, config, *base));
  }
  CAIRN_RETURN_IF_ERROR(ReplayLog(store_, config, state));
  return state;
}

absl::StatusOr<PartitionState> Persistence::Open(const PartitionConfig& config) const {
  if (!config.ended) return Recover(config);
  CAIRN_ASSIGN_OR_RETURN(const std::vector<v1::PartitionImage> headers, ReadHeaders(store_, config));
  bool logs = false;
  CAIRN_RETURN_IF_ERROR(
      store_.Scan(KindPrefix(config, 'l'), [&](std::string_view, std::string_view) { return !(logs = true); }));
  if (headers.size() == 1 && !PartsOf(config, headers.front()).training && !logs) {
    CAIRN_RETURN_IF_ERROR(CheckHeader(config, headers.front()));
    return StateAtRest(config, headers.front());
  }
  if (!headers.empty() || logs || !config.backup) return Recover(config);
  PartitionState nothing;
  nothing.contents = config.kind->MakeEmpty();
  nothing.sequences.assign(config.replicas, 0);
  return nothing;
}

absl::StatusOr<Persistence::Reach> Persistence::ReachOf(const PartitionConfig& config, uint64_t version) const {
  CAIRN_ASSIGN_OR_RETURN(const std::vector<v1::PartitionImage> headers, ReadHeaders(store_, config));
  const auto has = [&](uint64_t image) {
    return image == 0 ||
           std::any_of(headers.begin(), headers.end(), [&](const auto& h) { return h.version() == image; });
  };
  // The log must be contiguous, and reach down to its first entry.
  std::optional<uint64_t> first;
  const std::string prefix = KindPrefix(config, 'l');
  CAIRN_RETURN_IF_ERROR(store_.Scan(prefix, [&](std::string_view key, std::string_view) {
    first = ReadBigEndian(key.substr(prefix.size()));
    return false;
  }));
  Reach reach;
  reach.version_min = version;
  if (first && *first <= version) {
    if (has(*first - 1)) {
      reach.version_min = *first - 1;
    } else {  // from the oldest image at which the log continues
      for (const v1::PartitionImage& h : headers) {
        if (h.version() >= *first && h.version() <= version) reach.version_min = h.version();
      }
    }
  }
  if (config.durability == v1::SNAPSHOT && reach.version_min > 0) reach.versions.push_back(0);  // the initial values
  for (auto h = headers.rbegin(); h != headers.rend(); ++h) {
    if (h->version() > reach.version_min) continue;
    if (PartsOf(config, *h).previous && h->version() > 0 && !has(h->version() - 1)) {
      reach.versions.push_back(h->version() - 1);
    }
    if (h->version() < reach.version_min) reach.versions.push_back(h->version());
  }
  return reach;
}

absl::Status Persistence::RollBack(const PartitionConfig& config, uint64_t version) {
  CAIRN_ASSIGN_OR_RETURN(const std::vector<v1::PartitionImage> headers, ReadHeaders(store_, config));
  CAIRN_ASSIGN_OR_RETURN(const PartitionState present, Recover(config));
  if (present.version == version) return absl::OkStatus();
  CAIRN_ASSIGN_OR_RETURN(const Reach reach, ReachOf(config, present.version));
  const bool offered = std::count(reach.versions.begin(), reach.versions.end(), version) > 0;
  if (version > present.version || (version < reach.version_min && !offered)) {
    return absl::FailedPreconditionError(
        absl::StrCat(config.Name(), ": it is at version ", present.version, " and cannot be taken to ", version));
  }
  uint64_t kept = version;
  if (version < reach.version_min && version > 0 &&
      std::none_of(headers.begin(), headers.end(), [version](const auto& h) { return h.version() == version; })) {
    kept = version + 1;  // an image that has the values before it
  }
  KvBatch batch;
  for (const char kind : {'l', 'h', 'i'}) {
    batch.DeleteRange(VersionKey(config, kind, kept + 1), PrefixEnd(KindPrefix(config, kind)));
  }
  return Annotate(store_.Write(batch, /*sync=*/true), config.Name());
}

absl::Status Persistence::Forget(const PartitionConfig& config) {
  KvBatch batch;
  const std::string prefix = PartitionPrefix(config.job, config.partition.value);
  batch.DeleteRange(prefix, PrefixEnd(prefix));
  return Annotate(store_.Write(batch, /*sync=*/true), config.Name());
}

absl::Status Persistence::ResetTo(const PartitionConfig& config, const Image& image) {
  KvBatch batch;
  if (config.ended) batch.set_lasting();
  const std::string prefix = PartitionPrefix(config.job, config.partition.value);
  batch.DeleteRange(prefix, PrefixEnd(prefix));
  PutImage(config, image, batch);
  return Annotate(store_.Write(batch, config.fsync || config.keep), config.Name());
}

absl::Status Persistence::Append(const PartitionConfig& config, const Persist& persist) {
  v1::LogEntry entry = persist.entry;
  entry.set_xxh3(Checksum(persist.gradient.data(), persist.gradient.size()));
  KvBatch batch;
  batch.Put(VersionKey(config, 'l', entry.version()), Seal(entry), persist.gradient);
  if (persist.image_version > 0) {
    batch.DeleteRange(VersionKey(config, 'l', 0), VersionKey(config, 'l', persist.image_version + 1));
    batch.DeleteRange(VersionKey(config, 'h', 0), VersionKey(config, 'h', persist.image_version));
    batch.DeleteRange(VersionKey(config, 'i', 0), VersionKey(config, 'i', persist.image_version));
  }
  return Annotate(store_.Write(batch, config.fsync), config.Name());
}

absl::Status Persistence::WriteImage(const PartitionConfig& config, const Image& image) {
  if (config.ended) return ResetTo(config, image);
  KvBatch batch;
  batch.set_background();
  PutImage(config, image, batch);
  if (config.durability == v1::SNAPSHOT) {
    CAIRN_ASSIGN_OR_RETURN(const std::vector<v1::PartitionImage> headers, ReadHeaders(store_, config));
    std::vector<uint64_t> versions{image.header.version()};  // newest first
    for (const v1::PartitionImage& header : headers) {
      if (header.version() != versions.front())
        versions.push_back(header.version());  // otherwise it is written again, with a sync
    }
    for (uint64_t version : SuperfluousSnapshots(versions, config.image.snapshot_every)) {
      batch.DeleteRange(VersionKey(config, 'h', version), VersionKey(config, 'h', version + 1));
      batch.DeleteRange(VersionKey(config, 'i', version), VersionKey(config, 'i', version + 1));
    }
  }
  return Annotate(store_.Write(batch, config.fsync || config.keep), config.Name());
}

absl::Status Persistence::GiveBackSpace(JobId job) { return store_.GiveBackSpace(JobPrefix(job)); }

absl::Status RunEvent(PartitionCore& core, Persistence& persistence, PartitionEvent event, absl::Time now,
                      const std::function<void(PartitionEffects&)>& carry_out, TraceRecorder* trace) {
  std::deque<PartitionEvent> events;
  events.push_back(std::move(event));
  while (!events.empty()) {
    PartitionEffects effects = StepCore(core, std::move(events.front()), now, trace);
    events.pop_front();
    carry_out(effects);
    const std::vector<Persist> persists = std::move(effects.persists);
    const std::optional<Image> reset = std::move(effects.reset);
    effects = {};  // releases its references to gradients, so that the update can reuse their memory
    if (reset) {
      CAIRN_RETURN_IF_ERROR(persistence.ResetTo(core.config(), *reset));
      events.push_back(ResetEvent{reset->header.version()});
    }
    for (const Persist& p : persists) {
      const LogTimer timer(trace, core.config(), p);
      CAIRN_RETURN_IF_ERROR(persistence.Append(core.config(), p));
    }
    if (!persists.empty()) events.push_back(PersistedEvent{persists.back().entry.version()});
  }
  return absl::OkStatus();
}

absl::StatusOr<PartitionEffects> RunEvent(PartitionCore& core, Persistence& persistence, PartitionEvent event,
                                          absl::Time now) {
  PartitionEffects all;
  const auto append = [](auto& from, auto& to) { std::move(from.begin(), from.end(), std::back_inserter(to)); };
  CAIRN_RETURN_IF_ERROR(RunEvent(core, persistence, std::move(event), now, [&](PartitionEffects& e) {
    append(e.sends, all.sends);
    append(e.replies, all.replies);
    append(e.reports, all.reports);
    append(e.connect, all.connect);
    if (e.image) all.image = std::move(e.image);
    if (e.figures) all.figures = std::move(e.figures);
    if (e.wake_at) all.wake_at = e.wake_at;
    all.load = all.load || e.load;
  }));
  return all;
}

}  // namespace cairn
